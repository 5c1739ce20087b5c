"""Load reports: what they may say, their bytes, and how a worker sends them."""

import asyncio
import math
from contextlib import asynccontextmanager

import msgspec
import pytest

from controlplane.broker.memory import MemoryBroker, MemoryServer
from controlplane.errors import SettingsError
from controlplane.loads import (
    LoadReport,
    checked_load,
    decode_load,
    encode_load,
    reporting_worker,
)
from controlplane.topology import Names
from controlplane.worker.reporting import LoadReporter

NAMES = Names("c")
SUBJECT = NAMES.load("prod", "w.1")


def load(**said):
    nothing = {"kv_usage": None, "running": None, "waiting": None}
    return checked_load("life-1", **{**nothing, **said})


# ---- what it may say ---------------------------------------------------------------
@pytest.mark.parametrize(
    "said",
    [
        {},
        {"kv_usage": 0},
        {"kv_usage": 1.0, "running": 0, "waiting": 3},
        {"running": 12.0},
    ],
)
def test_a_report_comes_back_from_its_bytes(said):
    report = load(**said)
    assert decode_load(encode_load(report)) == report


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(("kv_usage", v) for v in (math.nan, math.inf, -0.1, 1.1, True, "1", 10**400)),
        *(("running", v) for v in (-1, 1.5, math.nan, math.inf, True, "1", 2**40)),
        ("waiting", -1),
    ],
)
def test_what_can_be_no_load_is_refused_by_name(field, value):
    with pytest.raises(SettingsError) as refused:
        load(**{field: value})
    assert refused.value.field == field


@pytest.mark.parametrize(
    "said",
    [
        {"kv_usage": math.nan},
        {"kv_usage": 2.0},
        {"running": -1},
        {"waiting": 2**40},
        {"running": "many"},
        {"incarnation": 7},
    ],
)
def test_foreign_bytes_that_say_no_load_are_none(said):
    payload = msgspec.msgpack.encode({"incarnation": "life-1", **said})
    assert decode_load(payload) is None
    assert decode_load(b"\xff") is None


def test_the_subject_names_the_worker():
    assert SUBJECT == "cp.c.load.prod.w%2E1"
    assert reporting_worker(NAMES.relative(SUBJECT)) == ("prod", "w.1")
    assert reporting_worker("beat.prod.w1") is None
    assert reporting_worker("load.prod.%zz") is None


# ---- sending -----------------------------------------------------------------------
@asynccontextmanager
async def reporting(every_s=0.0):
    """A reporter at work for a life that may change, and what arrives of it."""
    broker = MemoryBroker(MemoryServer())
    await broker.start()
    arriving = await broker.subscribe(NAMES.all_loads)
    reporter, lives = LoadReporter(broker, every_s), ["life-1"]
    async with asyncio.TaskGroup() as tasks:
        reporter.start(tasks, SUBJECT, lambda: lives[-1])
        yield reporter, lives, aiter(arriving)
        reporter.stop()
    await arriving.close()
    await broker.stop()


async def arrived(arriving):
    message = await asyncio.wait_for(anext(arriving), 5)
    return decode_load(message.payload)


async def test_of_several_reports_the_latest_is_sent():
    async with reporting() as (reporter, _, arriving):
        for running in range(5):
            reporter.report(load(running=running))
        assert await arrived(arriving) == LoadReport(incarnation="life-1", running=4)
        reporter.report(load(running=7))
        assert (await arrived(arriving)).running == 7


async def test_a_report_is_of_the_life_in_which_it_is_sent():
    async with reporting() as (reporter, lives, arriving):
        reporter.report(load(waiting=1))
        lives.append("life-2")
        assert (await arrived(arriving)).incarnation == "life-2"


async def test_reports_come_from_any_thread():
    async with reporting() as (reporter, _, arriving):
        await asyncio.to_thread(reporter.report, load(running=3))
        assert (await arrived(arriving)).running == 3


async def test_reports_keep_their_pace():
    async with reporting(every_s=3600.0) as (reporter, _, arriving):
        reporter.report(load(running=1))
        assert (await arrived(arriving)).running == 1
        reporter.report(load(running=2))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(anext(arriving), 0.05)


async def test_a_report_of_nobody_who_runs_is_dropped():
    reporter = LoadReporter(MemoryBroker(MemoryServer()), 0.0)
    reporter.report(load(running=1))
    reporter.stop()
