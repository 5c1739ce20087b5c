"""S52. The view is rebuilt from nothing while the fleet moves and routers serve on."""

import asyncio
from contextlib import asynccontextmanager

import controlplane as cp
from events import WorkerExpired
from tests.support.servers import unique
from tests.support.waiting import eventually


class Watched:
    """Where a router stood at each change, and whether it showed the steady worker."""

    def __init__(self, view):
        self._view = view
        self.stands = []

    async def run(self):
        async for _ in self._view.changes():
            steady = self._view.pick("steady").worker_id
            self.stands.append((self._view.epoch, self._view.revision, steady))

    @property
    def epochs(self):
        return list(dict.fromkeys(epoch for epoch, _, _ in self.stands))


@asynccontextmanager
async def coming_and_going(plane, acknowledged):
    """Meanwhile workers of another model register and leave, one after another."""

    async def go_on():
        number = 0
        while True:
            number += 1
            spec = cp.WorkerSpec(
                model="moving",
                address="http://10.0.0.9:8000",
                worker_id=f"m{number}",
            )
            async with plane.worker(spec) as worker:
                acknowledged.append(worker.revision)

    writer = asyncio.create_task(go_on())
    try:
        yield
    finally:
        writer.cancel()
        await asyncio.wait({writer})


async def test_a_rebuild_under_load_is_one_switch_forward(shared_nats_server):
    """The old view serves until then, and nobody is expired by what is read again."""
    options = {"cell": unique("rebuild").lower()}
    url, acknowledged = shared_nats_server.url, []
    spec = cp.WorkerSpec(model="steady", address="http://10.0.0.1:8000", worker_id="s")
    async with cp.connect(url, **options) as plane:
        await plane.init()
        names = plane.names
        async with plane.worker(spec) as steady, plane.view() as view:
            await steady.ready()
            watched = Watched(view)
            async with coming_and_going(plane, acknowledged):
                async with cp.Projector(plane, http=False):
                    await view.synced(20)
                    watching = asyncio.create_task(watched.run())
                    await eventually(lambda: len(watched.stands) > 10)
                old = view.epoch
                await plane.broker.purge_stream(names.snapshot_stream)
                await plane.broker.purge_stream(names.view_stream)
                count = len(acknowledged)
                await eventually(lambda: len(acknowledged) > count + 10)
                assert view.epoch == old
                assert view.pick("steady").worker_id == "s"
                then = (await plane.log.replay(view.revision)).fleet
                now = (await plane.log.replay(acknowledged[-1])).fleet
                assert cp.diff(then, now).added
                async with cp.Projector(plane, http=False):
                    await eventually(lambda: view.epoch != old, within_s=20)
                    count = len(watched.stands)
                    await eventually(lambda: len(watched.stands) > count + 10)
                    watching.cancel()
                    await asyncio.wait({watching})
        records = [record async for record in plane.log.read()]
    assert watched.epochs == [old, watched.stands[-1][0]]
    revisions = [revision for _, revision, _ in watched.stands]
    assert revisions == sorted(revisions)
    assert {steady for _, _, steady in watched.stands} == {"s"}
    assert not [r for r in records if isinstance(r.event, WorkerExpired)]
    by = {r.revision: r.event for r in records}
    assert {type(by[revision]).__name__ for revision in acknowledged} == {
        "WorkerRegistered"
    }
