"""What a worker makes of notices, lost logs, lost answers and absent brokers."""

import asyncio
import os
import signal
import subprocess
import sys
from contextlib import suppress

import pytest

from controlplane.beats import decode_beat
from controlplane.errors import (
    AppendOutcomeUnknownError,
    IncarnationSupersededError,
    LogUnavailableError,
)
from controlplane.worker import Notice
from events import Status, WorkerRegistered, WorkerStatusChanged
from tests.support.reading import receive
from tests.support.servers import frozen
from tests.support.waiting import eventually
from tests.support.workers import worker_cell


@pytest.fixture
async def cell(broker_factory):
    async with worker_cell(await broker_factory()) as made:
        yield made


@pytest.fixture
async def own(nats_server, broker_factory):
    """A cell on a server that may be broken: the server and the cell."""
    server = await nats_server()
    broker = await broker_factory(server.url, connect_timeout_s=0.5)
    async with worker_cell(broker, connect_timeout_s=0.5) as made:
        yield server, made


async def next_beat(subscription, wanted):
    """The next beat that is wanted."""
    async with asyncio.timeout(10):
        async for message in subscription:
            beat = decode_beat(message.payload)
            if wanted(beat):
                return beat
    raise AssertionError


# ---- notices -----------------------------------------------------------------------
async def test_an_expired_worker_begins_a_new_life_with_its_status(cell):
    async with cell.worker(worker_id="w1") as worker:
        await worker.ready()
        await worker.load_adapter("sql")
        old = worker.incarnation
        expired_at = await cell.expire(worker)
        await cell.notify(worker, "expired", expired_at)
        await eventually(lambda: worker.incarnation != old)
        assert worker.revision == expired_at + 1
        record = await cell.last(worker)
        assert record.event.incarnation == worker.incarnation
        assert record.event.status is Status.READY
        assert record.event.adapters == ("sql",)
        assert await anext(worker.notices()) == Notice(
            "expired", "the test says so", expired_at
        )


async def test_an_expiry_that_nobody_told_is_found_by_the_next_command(cell):
    async with cell.worker(worker_id="w1") as worker:
        old = worker.incarnation
        await cell.expire(worker)
        await worker.ready()
        assert worker.incarnation != old
        record = await cell.last(worker)
        assert record.event.status is Status.READY
        assert isinstance(record.event, WorkerRegistered)


async def test_a_new_life_beats_as_itself(cell):
    async with cell.worker(worker_id="w1") as worker:
        beats = await cell.broker.subscribe(cell.names.beat("prod", "w1"))
        old = worker.incarnation
        await cell.notify(worker, "expired", await cell.expire(worker))
        beat = await next_beat(beats, lambda b: b.incarnation != old)
        assert (beat.incarnation, beat.revision) == (worker.incarnation, 3)
        await beats.close()


async def test_a_false_alarm_changes_nothing(cell):
    async with cell.worker(worker_id="w1") as worker:
        before = (worker.incarnation, worker.revision)
        for kind in ("expired", "superseded"):
            await cell.notify(worker, kind)
        await worker.ready()
        assert (worker.incarnation, worker.revision) == before
    assert await cell.kinds() == [
        "WorkerRegistered",
        "WorkerStatusChanged",
        "WorkerDeregistered",
    ]


async def test_a_second_process_of_the_same_id_supersedes_the_first(cell):
    first = await cell.worker(worker_id="w1").start()
    second = await cell.worker(worker_id="w1").start()
    assert first.incarnation < second.incarnation
    await cell.notify(first, "superseded", second.revision)
    lost = await asyncio.wait_for(first.wait_lost(), 5)
    assert isinstance(lost, IncarnationSupersededError)
    assert lost.by == second.incarnation
    with pytest.raises(IncarnationSupersededError):
        await first.ready()
    await first.stop()
    await second.ready()
    await second.stop()
    assert await cell.kinds() == [
        "WorkerRegistered",
        "WorkerRegistered",
        "WorkerStatusChanged",
        "WorkerDeregistered",
    ]


async def test_a_superseded_worker_finds_out_by_its_next_command(cell):
    async with cell.worker(worker_id="w1") as first:
        async with cell.worker(worker_id="w1"):
            with pytest.raises(IncarnationSupersededError):
                await first.ready()
        assert [notice async for notice in first.notices()] == []


async def test_a_crowd_of_one_id_ends_with_one_life(cell):
    workers = [cell.worker(worker_id="w1") for _ in range(6)]
    outcomes = await asyncio.gather(
        *(worker.start() for worker in workers), return_exceptions=True
    )
    assert all(
        outcome in workers or isinstance(outcome, IncarnationSupersededError)
        for outcome in outcomes
    )
    current = (await cell.last(workers[0])).event.incarnation
    assert current == max(w.incarnation for w in workers)
    for worker in workers:
        await worker.stop()
    events = await cell.events()
    farewells = [e for e in events if not isinstance(e, WorkerRegistered)]
    assert [event.incarnation for event in farewells] == [current]


async def test_the_caller_is_told_what_is_for_him(cell):
    async with cell.worker() as worker:
        assert not worker.drain_requested.is_set()
        for _ in range(2):
            await cell.notify(worker, "quarantined", 7)
        await cell.notify(worker, "drain_requested", 8)
        notices = worker.notices()
        kinds = [(await anext(notices)).kind for _ in range(2)]
        assert kinds == ["quarantined", "drain_requested"]
        assert worker.drain_requested.is_set()
    assert [notice async for notice in worker.notices()] == []


async def test_told_unknown_it_registers_again_in_a_log_that_was_recreated(cell):
    async with cell.worker(worker_id="w1") as worker:
        await worker.ready()
        incarnation = worker.incarnation
        log_id = (await cell.log.state()).log_id
        await cell.broker.delete_stream(cell.names.log_stream)
        await cell.create()
        assert (await cell.log.state()).log_id != log_id
        beats = await cell.broker.subscribe(cell.names.beat("prod", "w1"))
        await cell.notify(worker, "unknown", 0)
        beat = await next_beat(beats, lambda b: b.log_id != log_id)
        assert worker.incarnation == incarnation
        record = await cell.last(worker)
        assert record.event.status is Status.READY
        assert beat.log_id == (await cell.log.state()).log_id
        assert beat.revision == worker.revision == record.revision == 1
        await beats.close()


async def test_a_log_that_was_recreated_is_found_by_the_next_command(cell):
    async with cell.worker(worker_id="w1") as worker:
        await cell.broker.delete_stream(cell.names.log_stream)
        await cell.create()
        await worker.ready()
        assert await cell.kinds() == ["WorkerRegistered"]
        assert (await cell.last(worker)).event.status is Status.READY


async def test_told_unknown_by_a_leader_that_is_past_it_it_says_all_again(cell):
    async with cell.worker(worker_id="w1") as worker:
        first = worker.revision
        await cell.notify(worker, "unknown", first)
        await eventually(lambda: worker.revision != first)
        kinds = await cell.kinds()
        assert kinds == ["WorkerRegistered", "WorkerRegistered"]


# ---- the broker goes and comes -----------------------------------------------------
async def test_what_was_wanted_without_a_broker_is_said_when_it_is_back(
    nats_server, broker_factory
):
    server = await nats_server()
    broker = await broker_factory(server.url, connect_timeout_s=0.5)
    async with worker_cell(broker, connect_timeout_s=20) as cell:
        async with cell.worker(worker_id="w1") as worker:
            incarnation = worker.incarnation
            await server.kill()
            wanted = asyncio.create_task(worker.ready())
            await asyncio.wait({wanted}, timeout=1.0)
            assert not wanted.done()
            await server.start()
            async with asyncio.timeout(10):
                assert await wanted == 2
            assert worker.incarnation == incarnation
        assert await cell.kinds() == [
            "WorkerRegistered",
            "WorkerStatusChanged",
            "WorkerDeregistered",
        ]


async def test_a_command_gives_up_but_what_it_wanted_stays(nats_server, broker_factory):
    server = await nats_server()
    broker = await broker_factory(server.url, connect_timeout_s=0.2)
    async with (
        worker_cell(broker, append_timeout_s=0.6) as cell,
        cell.worker(worker_id="w1") as worker,
    ):
        await server.kill()
        with pytest.raises((LogUnavailableError, AppendOutcomeUnknownError)):
            await worker.set_status(Status.READY, "loaded")
        assert worker.status is Status.READY
        await server.start()

        async def said() -> bool:
            with suppress(LogUnavailableError):
                return isinstance((await cell.last(worker)).event, WorkerStatusChanged)
            return False

        await eventually(said, within_s=15)
        assert (await cell.last(worker)).event.reason == "loaded"


async def test_a_command_says_soon_that_the_broker_is_away(own):
    """After the 0.5 s in which it may be reached, not the 30 s of an append."""
    server, cell = own
    loop = asyncio.get_running_loop()
    async with cell.worker(worker_id="w1") as worker:
        await server.kill()
        await eventually(lambda: not cell.broker.connected)
        for say in (worker.ready, lambda: worker.update(labels={"zone": "b"})):
            began = loop.time()
            with pytest.raises(LogUnavailableError):
                await say()
            assert 0.5 <= loop.time() - began < 3
        await server.start()

        async def said() -> bool:
            with suppress(LogUnavailableError):
                return set(await cell.kinds()) > {
                    "WorkerStatusChanged",
                    "WorkerUpdated",
                }
            return False

        await eventually(said, within_s=15)


async def test_a_command_in_doubt_waits_for_its_answer(nats_server, broker_factory):
    """It may be stored: a broker that is away decides nothing about that."""
    server = await nats_server()
    broker = await broker_factory(server.url, connect_timeout_s=0.2)
    async with (
        worker_cell(broker, connect_timeout_s=0.2, append_timeout_s=20) as cell,
        cell.worker(worker_id="w1") as worker,
    ):
        with frozen(server):
            wanted = asyncio.create_task(worker.ready())
            await eventually(lambda: worker._performer.in_doubt)
            os.kill(server.pid, signal.SIGKILL)  # it never reads what was sent
        await server.kill()
        await eventually(lambda: not broker.connected)
        done, _ = await asyncio.wait({wanted}, timeout=1.0)
        assert not done
        await server.start()
        async with asyncio.timeout(15):
            assert await wanted == 2


async def test_beats_come_back_with_the_broker(own):
    server, cell = own
    async with cell.worker(worker_id="w1", lease_ttl_s=5):
        await server.kill()
        beats = await cell.broker.subscribe(cell.names.all_beats)
        await server.start()
        (message,) = await receive(beats, 1, within_s=15)
        assert message.subject == cell.names.beat("prod", "w1")
        await beats.close()


@pytest.mark.parametrize("thaw_after_s", [0.3, 6.0])
async def test_a_registration_whose_answer_is_late_is_one_registration(
    nats_server, broker_factory, thaw_after_s
):
    server = await nats_server()
    async with worker_cell(await broker_factory(server.url)) as cell:
        first = await cell.worker(worker_id="w0").start()
        async with cell.worker(worker_id="w1") as worker:
            with frozen(server):
                wanted = asyncio.create_task(worker.ready())
                await asyncio.wait({wanted}, timeout=thaw_after_s)
            async with asyncio.timeout(20):
                await wanted
            assert (await cell.kinds()).count("WorkerStatusChanged") == 1
            assert worker.incarnation == (await cell.last(worker)).event.incarnation
        await first.stop()
    await server.stop()


# ---- a blocked loop, a stopped process ---------------------------------------------
WORKER = """
import asyncio, sys, time
from controlplane.broker.jetstream import JetStreamBroker
from controlplane.clock import SystemClock
from controlplane.eventlog import EventLog
from controlplane.settings import Settings
from controlplane.worker import BeatThread, WorkerHandle, WorkerSpec

url, cell, how = sys.argv[1:]
settings = Settings(beats_per_ttl=50)


async def main():
    broker = JetStreamBroker(url, name="child")
    await broker.start()
    beats = BeatThread(lambda: JetStreamBroker(url, name="child beats"), settings)
    spec = WorkerSpec(model="m", address="http://h:1", worker_id="child", lease_ttl_s=5)
    worker = WorkerHandle(
        spec, log=EventLog(broker, cell, settings), broker=broker, beats=beats,
        settings=settings, clock=SystemClock(), by="child", environ={},
    )
    await worker.start()
    end = time.monotonic() + 60
    while time.monotonic() < end:
        if how == "sleeping":
            time.sleep(1)


asyncio.run(main())
"""


async def silent(subscription, *, for_s: float) -> bool:
    """Whether nothing comes for so long: ten beats would."""
    try:
        await asyncio.wait_for(anext(aiter(subscription)), for_s)
    except TimeoutError:
        return True
    return False


@pytest.mark.parametrize("how", ["sleeping", "busy"])
async def test_a_blocked_loop_beats_on_and_a_stopped_process_falls_silent(cell, how):
    beats = await cell.broker.subscribe(cell.names.beat("default", "child"))
    child = await asyncio.to_thread(
        subprocess.Popen,
        [sys.executable, "-c", WORKER, cell.broker.url, cell.cell, how],
    )
    try:
        await receive(beats, 30, within_s=20)  # one each 0.1 s
        child.send_signal(signal.SIGSTOP)
        await eventually(lambda: silent(beats, for_s=1.0))
    finally:
        child.kill()
        child.wait()
        await beats.close()
