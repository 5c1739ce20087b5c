"""Planes, workers and views that are started and stopped, again and at once."""

import asyncio

import pytest

import controlplane as cp
from controlplane.runtime import StoppedError
from tests.support.waiting import eventually

SPEC = cp.WorkerSpec(
    model="llama",
    address="http://127.0.0.1:8000",
    namespace="prod",
    worker_id="w1",
    status="ready",
)
NOWHERE = "nats://127.0.0.1:9"


async def kinds(plane):
    return [type(record.event).__name__ async for record in plane.log.read()]


async def test_a_plane_that_was_stopped_works_when_it_is_started_again(nats_server):
    server = await nats_server()
    plane = cp.connect(server.url)
    async with plane:
        assert await plane.init()
    ready_made = plane.worker(SPEC)
    for turn in range(2):
        async with plane, plane.view() as view:
            assert not await plane.init()
            async with ready_made if turn == 0 else plane.worker(SPEC) as worker:
                assert (await plane.log.at(worker.revision)) is not None
                await eventually(lambda: plane._beats.running)
            assert view.source == "none"
    async with plane:
        assert await kinds(plane) == ["WorkerRegistered", "WorkerDeregistered"] * 2
    assert not plane.broker.connected


async def test_a_local_plane_is_started_again_on_the_same_log(tmp_path):
    plane = cp.local(tmp_path)
    for turn in range(1, 3):
        async with plane, plane.view() as view:
            async with plane.worker(SPEC):
                await view.synced(10)
                assert view.pick("llama").worker_id == "w1"
            assert (await plane.log.state()).last_revision == 2 * turn


async def test_a_local_plane_may_be_started_twice_at_once_and_stopped_meanwhile():
    plane = cp.local()
    starts = [asyncio.create_task(plane.start()) for _ in range(2)]
    await eventually(lambda: plane.server._process is not None)
    await asyncio.wait_for(plane.stop(), 10)
    for start in starts:
        with pytest.raises(StoppedError):
            await start
    assert plane.server._process is None
    await asyncio.gather(plane.start(), plane.start())
    assert (await plane.log.state()).last_revision == 0
    await asyncio.gather(plane.stop(), plane.stop())
    assert plane.server._process is None


async def test_a_worker_whose_entrance_hangs_is_stopped_at_once():
    """Not after the 4 s in which a farewell may be said: there is none to say."""
    loop = asyncio.get_running_loop()
    async with cp.connect(NOWHERE) as plane:
        worker = plane.worker(SPEC)
        start = asyncio.create_task(worker.start())
        await eventually(lambda: worker._doing is not None)
        began = loop.time()
        await worker.stop()
        assert loop.time() - began < 2
        with pytest.raises(StoppedError):
            await start


async def test_a_worker_that_is_stopped_while_it_enters_leaves_nothing(nats_server):
    server = await nats_server()
    async with cp.connect(server.url) as plane:
        await plane.init()
        for turns in range(30):
            worker = plane.worker(SPEC)
            start = asyncio.create_task(worker.start())
            for _ in range(turns):
                await asyncio.wait({start}, timeout=0 if turns < 15 else 0.0003)
            await worker.stop()
            (outcome,) = await asyncio.gather(start, return_exceptions=True)
            assert turns == 0 or outcome is worker or isinstance(outcome, StoppedError)
            await worker.stop()  # the first came before the start, if that won
        said = await kinds(plane)
        assert said.count("WorkerRegistered") == said.count("WorkerDeregistered")


async def test_a_worker_is_entered_once_however_often_it_is_started(nats_server):
    server = await nats_server()
    async with cp.connect(server.url) as plane:
        await plane.init()
        worker = plane.worker(SPEC)
        for _ in range(2):
            await asyncio.gather(*(worker.start() for _ in range(3)))
            assert worker.revision > 0
            await asyncio.gather(*(worker.stop() for _ in range(3)))
        assert await kinds(plane) == ["WorkerRegistered", "WorkerDeregistered"] * 2


async def test_a_superseded_worker_that_is_started_again_says_so(nats_server):
    server = await nats_server()
    async with cp.connect(server.url) as plane:
        await plane.init()
        first = await plane.worker(SPEC).start()
        async with plane.worker(SPEC):
            with pytest.raises(cp.IncarnationSupersededError):
                await first.drain()
            with pytest.raises(cp.IncarnationSupersededError):
                await first.start()
        await first.stop()
        async with first:
            assert first.revision == (await plane.log.state()).last_revision
