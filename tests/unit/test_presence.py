"""Who is there, who lapsed, and whether the routers of this epoch are far enough."""

from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from controlplane.broker import Outgoing
from controlplane.broker.memory import MemoryBroker
from controlplane.broker.memory_server import MemoryServer
from controlplane.errors import AppendConflictError
from controlplane.eventlog import EventLog
from controlplane.identifiers import new_uuid7
from controlplane.presence import (
    Presence,
    RouterReport,
    RouterSeen,
    judge_wait,
    names_astray,
    reports,
    routers,
    say_goodbye,
    say_presence,
    say_report,
)
from controlplane.settings import Settings
from controlplane.topology import Names, init
from events import ModelForgotten

NOW = datetime(2026, 1, 1, tzinfo=UTC)
EPOCH = "log-a.1.1@0"
NAMES = Names("default")


def presence(name="r1", **fields):
    said = Presence(
        name=name,
        epoch=EPOCH,
        revision=10,
        digest="0" * 32,
        source="live",
        stale_for_s=0.1,
    )
    return msgspec.structs.replace(said, **fields)


def seen(name="r1", *, live=True, **fields):
    age_s = 1.0 if live else 15.0
    return RouterSeen(presence=presence(name, **fields), age_s=age_s, live=live)


@pytest.mark.parametrize(
    ("who", "wanted", "reached", "missing"),
    [
        ([], None, False, ()),
        ([], 1, False, ()),
        ([seen("a"), seen("b")], None, True, ()),
        ([seen("a"), seen("b", revision=9)], None, False, ("b",)),
        ([seen("a"), seen("b", revision=9)], 1, True, ("b",)),
        ([seen("a"), seen("b", revision=9)], 2, False, ("b",)),
        ([seen("a"), seen("b", epoch="log-a.1.2@5")], None, False, ("b",)),
        ([seen("a"), seen("b", epoch=None, revision=0)], None, False, ("b",)),
        ([seen("a"), seen("b", live=False)], None, False, ("b",)),
        ([seen("a"), seen("b", live=False)], 1, True, ("b",)),
        ([seen("b", live=False)], None, False, ("b",)),
        ([seen("a"), seen("b")], 3, False, ()),
    ],
)
def test_waiting_for_routers(who, wanted, reached, missing):
    result = judge_wait(who, EPOCH, 10, wanted, log_end=10)
    assert (result.reached, result.missing) == (reached, missing)


def test_a_router_that_follows_lost_history_has_reached_nothing():
    """The numbers are right; the log holds other records under them."""
    who = [seen("a"), seen("b")]
    assert judge_wait(who, EPOCH, 10, None, log_end=12).reached
    result = judge_wait(who, EPOCH, 10, None, log_end=12, astray={"b"})
    assert (result.reached, result.missing) == (False, ("b",))


def test_without_an_epoch_nobody_has_reached_anything():
    assert not judge_wait([seen()], None, 10, None, log_end=10).reached


@pytest.mark.parametrize("revision", [8, 10])
def test_a_router_beyond_the_log_s_end_has_reached_nothing(revision):
    """It stands in history that the log lost, whether the revision is there or not."""
    result = judge_wait(
        [seen("a"), seen("b", revision=9)], EPOCH, revision, 1, log_end=9
    )
    assert result.reached == (revision == 8)
    assert "a" in result.missing
    assert not judge_wait([seen("a")], EPOCH, revision, None, log_end=9).reached


class MovedClock:
    """A clock for the broker; tests move it."""

    def __init__(self):
        self.now = NOW

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return MovedClock()


@pytest.fixture
async def broker(clock):
    made = MemoryBroker(MemoryServer(clock))
    await made.start()
    await init(made, "default", Settings())
    yield made
    await made.stop()


async def present(broker):
    found = await routers(broker, NAMES, Settings())
    return {router.presence.name: router.live for router in found}


async def test_a_router_is_live_then_missing_then_absent(broker, clock):
    await say_presence(broker, NAMES, presence("a b/ü"))
    assert await present(broker) == {"a b/ü": True}
    clock.now += timedelta(seconds=10)
    assert await present(broker) == {"a b/ü": True}
    clock.now += timedelta(seconds=1)
    assert await present(broker) == {"a b/ü": False}
    clock.now += timedelta(seconds=60)
    assert await present(broker) == {}


async def test_a_router_that_says_goodbye_is_absent_at_once(broker):
    said = await say_presence(broker, NAMES, presence("a"))
    await say_presence(broker, NAMES, presence("b"))
    await say_goodbye(broker, NAMES, "a", said)
    assert await present(broker) == {"b": True}


async def test_a_goodbye_is_only_for_what_one_said_oneself(broker):
    said = await say_presence(broker, NAMES, presence("a"))
    await say_presence(broker, NAMES, presence("a"))
    with pytest.raises(AppendConflictError):
        await say_goodbye(broker, NAMES, "a", said)
    assert await present(broker) == {"a": True}


async def test_a_router_that_comes_back_is_live_again(broker, clock):
    said = await say_presence(broker, NAMES, presence("a"))
    await say_goodbye(broker, NAMES, "a", said)
    clock.now += timedelta(seconds=1)
    await say_presence(broker, NAMES, presence("a"))
    assert await present(broker) == {"a": True}


async def test_what_is_no_presence_is_nobody(broker):
    bucket = NAMES.presence_bucket
    for name, payload in {
        "x": b"?",
        "y": msgspec.json.encode(presence("z")),
    }.items():
        await broker.store(f"KV_{bucket}", outgoing(NAMES.entry(bucket, name), payload))
    assert await present(broker) == {}


async def test_who_is_astray_is_told_by_the_record_it_stands_on(broker):
    log = EventLog(broker, "default", Settings())
    first, second = (forgotten(model) for model in ("a", "b"))
    await log.append(first)
    await log.append(second)
    who = [
        seen("right", fingerprint=second.event_id, fingerprint_at=2),
        seen("wrong", fingerprint="another", fingerprint_at=2),
        seen("behind", fingerprint=first.event_id, fingerprint_at=1),
        seen("silent"),
        seen("purged", fingerprint="whatever", fingerprint_at=9),
    ]
    assert await names_astray(log, who) == {"wrong"}


def forgotten(model):
    return ModelForgotten(event_id=new_uuid7(), at=NOW, by="test", model=model)


def outgoing(subject, payload):
    return Outgoing(subject=subject, payload=payload)


async def test_reports_can_be_asked_for_in_order(broker):
    for reason in ("resync: start", "ejected"):
        report = RouterReport(
            presence=presence("a b"), at=NOW, ejected=("prod/w1",), reason=reason
        )
        await say_report(broker, NAMES, report)
    await broker.store(NAMES.report_stream, outgoing(NAMES.report("a b"), b"?"))
    found = await reports(broker, NAMES, "a b")
    assert [report.reason for report in found] == ["resync: start", "ejected"]
    assert found[0].ejected == ("prod/w1",)
    assert await reports(broker, NAMES, "nobody") == ()
