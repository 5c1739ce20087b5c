"""What must not grow: the log with beats, the broker's work with routers."""

from __future__ import annotations

import asyncio
import logging
import resource
import time
from contextlib import AsyncExitStack

import pytest

import controlplane as cp
from controlplane.beats import Beat, encode_signal
from controlplane.broker import Outgoing, StreamSpec
from controlplane.eventlog import Pending
from controlplane.identifiers import new_uuid7
from projections import FoldState, fold_all
from tests.support.fleet_builder import given, ready, registered
from tests.support.servers import consumers_of, unique
from tests.support.waiting import eventually

WORKERS = 500
BEATS = 20_000


@pytest.fixture
async def plane():
    """A whole plane of the test's own."""
    async with cp.local() as plane:
        yield plane


async def fill(plane: cp.Plane, workers: int) -> int:
    """Append the arrivals of so many workers; the last revision."""
    steps = [
        step
        for number in range(workers)
        for step in (registered(f"w{number}", lease_ttl_s=3600.0), ready(f"w{number}"))
    ]
    story = [Pending(record.event) for record in given(*steps)]
    revision = 0
    for start in range(0, len(story), 1000):
        revision = (await plane.log.append_all(story[start : start + 1000])).revision
    return revision


async def test_beats_leave_no_trace_in_the_log(plane):
    """S53: rebuilding costs what happened, not how long it was quiet."""
    revision = await fill(plane, WORKERS)
    log_id = (await plane.log.state()).log_id
    beat = Beat(incarnation=new_uuid7(), log_id=log_id, revision=revision)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for number in range(BEATS):
        subject = plane.names.beat("prod", f"w{number % WORKERS}")
        await plane.broker.publish(subject, encode_signal(beat))
    projector = plane.projector
    assert projector is not None
    heard = 0

    def all_heard() -> bool:
        nonlocal heard
        heard += projector.service._ear.take_heard()
        return heard >= BEATS

    await eventually(all_heard, within_s=20)
    assert (await plane.log.state()).last_revision == revision
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 * 1024
    started = time.perf_counter()
    records = [record async for record in plane.log.read()]
    state = fold_all(FoldState(), records)
    assert time.perf_counter() - started < 5
    assert len(state.fleet_state.workers) == WORKERS


async def test_routers_add_no_reader_to_the_broker(plane):
    """S53: a hundred routers live from what one republish sends."""
    await fill(plane, 20)
    async with AsyncExitStack() as stack:
        one = await stack.enter_async_context(plane.view(name="router-0"))
        await one.synced(10)
        alone = await readers(plane)
        for number in range(1, 100):
            view = plane.view(name=f"router-{number}")
            await stack.enter_async_context(view)
            await view.synced(10)
            assert view.digest == one.digest
        await eventually(lambda: no_more_readers(plane, alone), within_s=15)


async def no_more_readers(plane: cp.Plane, alone: dict[str, int]) -> bool:
    return await readers(plane) == alone


async def readers(plane: cp.Plane) -> dict[str, int]:
    streams = (plane.names.log_stream, plane.names.view_stream)
    return {name: len(await consumers_of(plane.url, name)) for name in streams}


async def test_a_thousand_idle_reads_do_not_slow_the_next_message(
    broker_factory, caplog
):
    """S50: nothing that gave up waits on, and idleness is no error."""
    broker = await broker_factory()
    name = unique("IDLE")
    await broker.create_stream(StreamSpec(name=name, subjects=(f"{name}.>",)))
    follower = broker.follow(name)
    arrived = asyncio.create_task(anext(follower))
    with caplog.at_level(logging.WARNING, logger="controlplane"):
        for _ in range(1000):
            assert [batch async for batch in broker.read(name)] == []
            assert await broker.last(name, f"{name}.a") is None
        sent_at = time.perf_counter()
        await broker.store(name, Outgoing(subject=f"{name}.a", payload=b"x"))
        (message,) = await asyncio.wait_for(arrived, 5)
        delay_s = time.perf_counter() - sent_at
    await follower.aclose()
    assert message.sequence == 1
    assert delay_s < 0.1
    assert not caplog.records
