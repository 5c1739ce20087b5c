"""Entering, speaking and leaving, against a real nats-server."""

import asyncio
import contextlib

import pytest

from controlplane.beats import decode_beat
from controlplane.errors import (
    LeaseLostError,
    LogFullError,
    LogUnavailableError,
    SettingsError,
)
from controlplane.worker import BeatThread, WorkerHandle
from controlplane.worker.client import LEAVE_S
from events import (
    AdapterLoaded,
    AdapterUnloaded,
    Capacity,
    InvalidIdentityError,
    Status,
    WorkerDeregistered,
    WorkerRegistered,
    WorkerStatusChanged,
    WorkerUpdated,
)
from tests.support.reading import receive
from tests.support.servers import frozen
from tests.support.waiting import eventually
from tests.support.workers import MODEL, worker_cell


@pytest.fixture
async def cell(broker_factory):
    async with worker_cell(await broker_factory()) as made:
        yield made


async def test_entering_registers_and_leaving_deregisters(cell):
    async with cell.worker(worker_id="w 1", labels={"zone": "a"}) as worker:
        record = await cell.last(worker)
        assert isinstance(record.event, WorkerRegistered)
        assert record.subject == "log.worker.prod.w%201"
        assert record.revision == worker.revision
        assert record.event.incarnation == worker.incarnation
        assert record.event.labels == {"zone": "a"}
        assert record.event.by == "test"
    record = await cell.last(worker)
    assert isinstance(record.event, WorkerDeregistered)
    assert record.event.incarnation == worker.incarnation
    assert await cell.kinds() == ["WorkerRegistered", "WorkerDeregistered"]


async def test_start_and_stop_do_the_same_and_may_be_repeated(cell):
    worker = cell.worker()
    assert await worker.start() is worker
    first = worker.incarnation
    await worker.stop()
    await worker.stop()
    await worker.start()
    assert worker.incarnation > first
    await worker.stop()
    assert await cell.kinds() == ["WorkerRegistered", "WorkerDeregistered"] * 2


async def test_what_it_says_is_in_the_log_in_its_order(cell):
    async with cell.worker(adapters=["base-lora"]) as worker:
        revisions = [
            await worker.ready(),
            await worker.update(
                capacity=Capacity(max_num_seqs=8),
                labels={"a": "b"},
                address="http://10.0.0.8:1",
            ),
            await worker.load_adapter("sql-lora"),
            await worker.unload_adapter("base-lora"),
            await worker.drain("rollout"),
            await worker.drained(),
        ]
        assert revisions == [2, 3, 4, 5, 6, 7]
        assert worker.revision == 1
        assert worker.status is Status.DRAINED
    said = await cell.events()
    assert [type(event) for event in said] == [
        WorkerRegistered,
        WorkerStatusChanged,
        WorkerUpdated,
        AdapterLoaded,
        AdapterUnloaded,
        WorkerStatusChanged,
        WorkerStatusChanged,
        WorkerDeregistered,
    ]
    assert said[5].reason == "rollout"
    assert said[2].capacity == Capacity(max_num_seqs=8)
    assert {event.incarnation for event in said} == {worker.incarnation}


async def test_commands_at_once_are_all_said(cell):
    async with cell.worker() as worker:
        names = [f"lora-{number}" for number in range(5)]
        async with asyncio.TaskGroup() as tasks:
            for name in names:
                tasks.create_task(worker.load_adapter(name))
            tasks.create_task(worker.ready())
        said = await cell.events()
    assert sorted(e.adapter for e in said if isinstance(e, AdapterLoaded)) == names
    assert isinstance(said[-1], WorkerStatusChanged)


async def test_what_is_so_already_is_not_said_again(cell):
    async with cell.worker(status="ready") as worker:
        assert await worker.ready() == worker.revision
    assert await cell.kinds() == ["WorkerRegistered", "WorkerDeregistered"]


@pytest.mark.parametrize(
    "wrong",
    [
        lambda w: w.set_status("happy"),
        lambda w: w.set_status("ready", reason=7),
        lambda w: w.update(labels={"a": 1}),
        lambda w: w.update(address="nowhere"),
        lambda w: w.update(capacity=Capacity(max_num_seqs="8")),
        lambda w: w.update(capacity=Capacity(max_num_seqs=-8)),
        lambda w: w.load_adapter("*"),
        lambda w: w.load_adapter(MODEL),
        lambda w: w.unload_adapter(""),
    ],
)
async def test_a_command_that_breaks_a_rule_sends_nothing(cell, wrong):
    async with cell.worker() as worker:
        with pytest.raises(InvalidIdentityError):
            await wrong(worker)
        assert await cell.kinds() == ["WorkerRegistered"]


async def test_ports_are_refused_as_long_as_nobody_claims_them(cell):
    with pytest.raises(SettingsError, match="nobody to claim"):
        WorkerHandle(
            cell.worker()._spec,
            log=cell.log,
            broker=cell.broker,
            beats=cell.beats,
            settings=cell.settings,
            clock=None,
            by="test",
            environ={},
            ports={"nixl": 8},
        )


async def test_a_cancelled_body_still_deregisters(cell):
    inside = asyncio.Event()

    async def body():
        async with cell.worker(worker_id="w1"):
            inside.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(body())
    await inside.wait()
    task.cancel()
    await asyncio.wait({task})
    assert task.cancelled()
    assert await cell.kinds() == ["WorkerRegistered", "WorkerDeregistered"]


async def test_a_farewell_is_finished_however_often_it_is_cancelled(cell):
    worker = await cell.worker().start()
    task = asyncio.create_task(worker.stop())
    done = set()
    while not done:
        done, _ = await asyncio.wait({task}, timeout=0.0002)
        task.cancel()
    assert task.cancelled()
    assert (await cell.kinds())[-1] == "WorkerDeregistered"


async def test_an_entrance_that_is_cancelled_leaves_nothing_registered(cell):
    for turns in range(40):
        worker = cell.worker(worker_id=f"w{turns}")
        task = asyncio.create_task(worker.start())
        for _ in range(turns):
            await asyncio.wait({task}, timeout=0 if turns < 20 else 0.0002)
        task.cancel()
        await asyncio.wait({task})
        await worker.stop()
    kinds = await cell.kinds()
    assert kinds.count("WorkerRegistered") == kinds.count("WorkerDeregistered")


async def test_an_error_in_the_body_deregisters_and_goes_on_up(cell):
    with pytest.raises(ZeroDivisionError):
        async with cell.worker():
            raise ZeroDivisionError
    assert (await cell.kinds())[-1] == "WorkerDeregistered"


async def test_commands_outside_say_that_it_is_outside(cell):
    worker = cell.worker()
    with pytest.raises(LeaseLostError, match="not in the fleet"):
        await worker.ready()
    async with worker:
        pass
    with pytest.raises(LeaseLostError, match="not in the fleet"):
        await worker.ready()


async def test_it_beats_at_once_with_its_latest_revision(cell):
    beats = await cell.broker.subscribe(cell.names.all_beats)
    async with cell.worker(worker_id="w1") as worker:
        (message,) = await receive(beats, 1)
        beat = decode_beat(message.payload)
        assert message.subject == cell.names.beat("prod", "w1")
        assert beat.incarnation == worker.incarnation
        assert beat.revision == worker.revision
        assert beat.log_id == (await cell.log.state()).log_id
        assert beat.server_id == cell.broker.server_id
        revision = await worker.ready()
        messages = aiter(beats)
        while beat.revision != revision:
            beat = decode_beat((await anext(messages)).payload)
    await beats.close()


async def test_without_a_broker_entering_says_so(broker_factory):
    broker = await broker_factory(
        "nats://127.0.0.1:9", connect_timeout_s=0.2, wait=False
    )
    async with worker_cell(broker, create=False) as cell:
        with pytest.raises(LogUnavailableError):
            await cell.worker().start()
        assert not cell.beats.running


async def test_without_a_cell_entering_says_so(broker_factory):
    async with worker_cell(await broker_factory(), create=False) as cell:
        with pytest.raises(LogUnavailableError):
            async with cell.worker():
                raise AssertionError


async def test_a_full_log_takes_nobody_in(broker_factory):
    broker = await broker_factory()
    limits = {"log_max_bytes": 64 * 1024, "log_reserve": 0.3}
    labels = {str(number): "x" * 200 for number in range(10)}
    async with worker_cell(broker, **limits) as cell:
        workers = [cell.worker(labels=labels) for _ in range(40)]
        refused = 0
        for worker in workers:
            try:
                await worker.start()
            except LogFullError:
                refused += 1
        assert 0 < refused < len(workers)
        for worker in workers:
            await worker.stop()
        kinds = await cell.kinds()
        assert kinds.count("WorkerRegistered") == kinds.count("WorkerDeregistered")


async def test_leaving_a_frozen_broker_takes_at_most_five_seconds(
    nats_server, broker_factory
):
    server = await nats_server()
    loop = asyncio.get_running_loop()
    async with worker_cell(await broker_factory(server.url)) as cell:
        worker = await cell.worker(worker_id="w1").start()
        with frozen(server):
            began = loop.time()
            await worker.stop()
            assert loop.time() - began < LEAVE_S + 1
        with contextlib.suppress(LogUnavailableError):
            await eventually(cell.kinds)


async def test_beats_of_a_plane_share_one_thread(cell):
    async with cell.worker(), cell.worker():
        thread = cell.beats._thread
        assert thread.is_alive()
        assert thread.daemon
    await cell.beats.stop()
    assert not thread.is_alive()
    assert isinstance(cell.beats, BeatThread)
