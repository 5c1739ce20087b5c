"""When beats are due, and what becomes of them while the broker is away."""

import asyncio
from contextlib import asynccontextmanager

import pytest
from prometheus_client import CollectorRegistry

from controlplane.beats import Beat, decode_beat
from controlplane.broker.memory import MemoryBroker, MemoryServer
from controlplane.broker.publisher import ACK_TIMEOUT_S
from controlplane.eventlog import REPEAT_AFTER_S
from controlplane.settings import Settings
from controlplane.telemetry import WorkerMetrics
from controlplane.worker.beat import Beater, BeatSchedule, BeatThread, Kept
from events.identity import LEASE_TTL_S_MIN
from tests.support.reading import receive
from tests.support.waiting import eventually

BEAT = Beat(incarnation="life-1", log_id="log", revision=1)
LATER = Beat(incarnation="life-2", log_id="log", revision=5)


def kept(every_s: float = 3.0, beat: Beat = BEAT) -> Kept:
    return Kept("cp.t.beat.ns.w", beat, every_s)


def due(schedule: BeatSchedule, at: float) -> list[str]:
    return [beat.incarnation for _, beat in schedule.due(at)]


def test_a_life_beats_at_once_and_then_each_interval():
    schedule = BeatSchedule()
    assert schedule.next_at() is None
    schedule.keep("w", kept())
    assert due(schedule, 10.0) == ["life-1"]
    assert due(schedule, 12.9) == []
    assert schedule.next_at() == 13.0
    assert due(schedule, 13.0) == ["life-1"]


def test_a_late_beat_is_not_made_up_for():
    schedule = BeatSchedule()
    schedule.keep("w", kept())
    assert due(schedule, 0.0) == ["life-1"]
    assert due(schedule, 30.0) == ["life-1"]
    assert due(schedule, 30.1) == []


def test_a_changed_beat_is_sent_at_once():
    schedule = BeatSchedule()
    schedule.keep("w", kept())
    due(schedule, 10.0)
    assert schedule.change("w", LATER)
    assert due(schedule, 10.1) == ["life-2"]


def test_a_dropped_life_is_silent_and_stays_so():
    schedule = BeatSchedule()
    schedule.keep("w", kept())
    schedule.drop("w")
    schedule.drop("w")
    assert not schedule.change("w", LATER)
    assert due(schedule, 10.0) == []


def test_each_life_has_its_own_interval():
    schedule = BeatSchedule()
    schedule.keep("a", kept(1.0))
    schedule.keep("b", kept(3.0, LATER))
    assert due(schedule, 0.0) == ["life-1", "life-2"]
    assert due(schedule, 1.0) == ["life-1"]
    schedule.hurry()
    assert due(schedule, 1.0) == ["life-1", "life-2"]


@asynccontextmanager
async def beating(schedule: BeatSchedule, metrics: WorkerMetrics | None = None):
    """A beater on a memory broker, and a listener on another client."""
    server = MemoryServer()
    broker, listener = MemoryBroker(server), MemoryBroker(server)
    await broker.start()
    await listener.start()
    beats = await listener.subscribe("cp.t.beat.*.*")
    beater = Beater(schedule, metrics)
    task = asyncio.create_task(beater.run(broker))
    try:
        yield server, broker, beater, beats
    finally:
        task.cancel()
        await asyncio.wait({task})
        await broker.stop()
        await listener.stop()


async def test_a_beat_names_the_server_that_it_enters_by():
    schedule = BeatSchedule()
    schedule.keep("w", kept())
    registry = CollectorRegistry()
    async with beating(schedule, WorkerMetrics(registry)) as (_, broker, _, beats):
        (message,) = await receive(beats, 1)
        assert message.subject == "cp.t.beat.ns.w"
        beat = decode_beat(message.payload)
        assert beat.incarnation == "life-1"
        assert beat.server_id == (broker.server_id or "")
    assert registry.get_sample_value("controlplane_worker_beats_sent_total") == 1


async def test_nothing_is_kept_for_later_and_a_connection_is_greeted_at_once():
    schedule = BeatSchedule()
    schedule.keep("w", kept(0.01))
    async with beating(schedule) as (server, broker, beater, beats):
        await receive(beats, 3)
        server.disconnect(broker)
        await eventually(lambda: not broker.connected)
        schedule.keep("w", kept(3600.0, LATER))
        beater.wake()
        server.reconnect(broker)
        messages = aiter(beats)
        beat = BEAT
        while beat.incarnation != LATER.incarnation:
            beat = decode_beat((await anext(messages)).payload)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(anext(messages), 0.1)


async def test_the_thread_survives_whatever_a_connection_does(monkeypatch):
    monkeypatch.setattr("controlplane.worker.beat.AGAIN_S", 0.001)
    tries = []

    def connect():
        tries.append(1)
        if len(tries) < 3:
            raise ZeroDivisionError
        return MemoryBroker(MemoryServer())

    beats = BeatThread(connect, Settings())
    assert not beats.running
    beats.keep("w", "cp.t.beat.ns.w", BEAT, ttl_s=10.0)
    await eventually(lambda: len(tries) == 3)
    assert beats.running
    thread = beats._thread
    await beats.stop()
    await beats.stop()
    assert not thread.is_alive()


async def test_the_thread_does_not_start_again_after_a_stop():
    """Whoever comes late would beat for as long as the process lives."""
    beats = BeatThread(lambda: MemoryBroker(MemoryServer()), Settings())
    beats.change("w", BEAT)
    beats.drop("w")
    assert not beats.running
    beats.keep("w", "cp.t.beat.ns.w", BEAT, ttl_s=10.0)
    assert beats.running
    for _ in range(2):
        await beats.stop()
        beats.keep("late", "cp.t.beat.ns.late", BEAT, ttl_s=10.0)
        assert not beats.running


def test_the_longest_silence_of_a_life_is_remembered():
    schedule = BeatSchedule()
    assert schedule.silence_s("w", 100.0) == 0.0
    schedule.keep("w", kept(1.0))
    assert schedule.silence_s("w", 100.0) == 0.0
    schedule.due(10.0)
    assert schedule.silence_s("w", 10.5) == 0.5
    schedule.due(11.0)
    assert schedule.silence_s("w", 17.0) == 6.0  # it may just be waking up…
    schedule.due(17.0)
    schedule.due(18.0)
    assert schedule.silence_s("w", 18.0) == 6.0  # …or beat since


async def test_silence_is_counted_from_the_first_word_on():
    beats = BeatThread(lambda: MemoryBroker(MemoryServer()), Settings())
    assert beats.silence_s("w") == 0.0
    beats.keep("w", "cp.t.beat.ns.w", BEAT, ttl_s=10.0)
    assert 0.0 <= beats.silence_s("w") < 5.0
    await beats.stop()


def test_a_lost_answer_costs_nobody_a_beat_of_the_shortest_lease():
    """What is not known to be stored does not beat: it is asked again in time."""
    asked_again_s = ACK_TIMEOUT_S + REPEAT_AFTER_S
    assert asked_again_s <= LEASE_TTL_S_MIN / Settings().beats_per_ttl
