"""A cell with three replicas keeps its promises while a server is killed."""

from __future__ import annotations

import asyncio

import pytest

import controlplane as cp
from controlplane.broker.jetstream import JetStreamBroker
from tests.support.clusters import running_cluster
from tests.support.waiting import eventually

pytestmark = pytest.mark.timeout(120)
SETTINGS = cp.Settings(connect_timeout_s=15.0, append_timeout_s=30.0)


def spec(worker_id: str) -> cp.WorkerSpec:
    return cp.WorkerSpec(
        model="llama",
        address="http://127.0.0.1:8000",
        namespace="prod",
        worker_id=worker_id,
        status=cp.Status.READY,
    )


async def test_killing_the_log_s_leader_loses_nothing_and_stops_nobody(tmp_path):
    async with (
        running_cluster(tmp_path) as cluster,
        cp.connect(cluster.urls, settings=SETTINGS) as plane,
    ):
        await eventually(lambda: created(plane), within_s=30)
        assert (await plane.broker.state(plane.names.log_stream)).replicas == 3
        async with (
            cp.Projector(plane, http=False),
            plane.view(name="router-a") as one,
            plane.view(name="router-b") as two,
        ):
            before = [await plane.worker(spec(f"w{n}")).start() for n in range(5)]
            await asyncio.gather(one.synced(20), two.synced(20))
            assert one.digest == two.digest
            leader = await cluster.leader_of(plane.names.log_stream)
            await cluster.kill(leader)
            joined = plane.worker(spec("w5"))
            starting = asyncio.create_task(joined.start())
            known = {f"w{n}" for n in range(5)}
            assert {one.pick("llama").worker_id for _ in range(100)} <= known
            await asyncio.wait_for(starting, 40)
            await asyncio.gather(one.synced(30), two.synced(30))
            assert len(one.fleet.state.workers) == 6
            assert one.digest == two.digest
            await cluster.start(leader)
            replayed = await plane.log.replay()
            assert replayed.fleet.digest == one.digest
            events = [record.event async for record in plane.log.read()]
            assert not [e for e in events if isinstance(e, cp.WorkerExpired)]
            await asyncio.gather(*(worker.stop() for worker in [*before, joined]))


async def test_what_is_read_while_a_leader_is_elected_is_answered_by_the_next(tmp_path):
    """Who is asked then may never answer: the question has to be asked again."""
    async with (
        running_cluster(tmp_path) as cluster,
        cp.connect(cluster.urls, settings=SETTINGS) as plane,
    ):
        await eventually(lambda: created(plane), within_s=30)
        await plane.worker(spec("w0")).start()
        leader = await cluster.leader_of(plane.names.log_stream)
        left = [url for place, url in enumerate(cluster.urls) if place != leader]
        others = [cp.connect(left, settings=SETTINGS) for _ in range(10)]
        try:
            await asyncio.gather(*(other.start() for other in others))
            await cluster.kill(leader)
            # Each reads all the time: some of it falls into the election.
            before = [asyncio.create_task(count(other)) for other in others]
            assert await asyncio.wait_for(asyncio.gather(*before), 40) == [1] * 10
        finally:
            await asyncio.gather(*(other.stop() for other in others))


async def count(plane: cp.Plane) -> int:
    """How many records the log has, read again and again until a leader was elected."""
    found = 0
    for _ in range(20):
        found = len([one async for one in plane.log.read(until=1)])
    return found


async def created(plane: cp.Plane) -> bool:
    """Create the cell as soon as the cluster has a leader."""
    assert isinstance(plane.broker, JetStreamBroker)
    try:
        await plane.init(replicas=3)
    except (cp.LogUnavailableError, cp.SettingsError):
        return False
    return True
