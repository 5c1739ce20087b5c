"""A view stream that lost its beginning, or everything, and routers that start then."""

import controlplane as cp
from controlplane.presence import routers as routers_of
from controlplane.settings import Settings
from tests.support.cells import projected_cell
from tests.support.routers import MODEL, Life, append_all, router_process, view_of
from tests.support.waiting import eventually

PATIENCE_S = 20.0
"""For what has no bound of its own, on a busy machine."""


async def test_a_stream_trimmed_below_ones_place_is_bridged_by_a_snapshot(
    broker, tmp_path
):
    path = tmp_path / "checkpoint"
    async with projected_cell(broker, snapshot_every=20) as cell, cell.service():
        lives = [Life(f"w{n}") for n in range(30)]
        await append_all(cell.log, [life.registers() for life in lives])
        async with view_of(cell, checkpoint=path) as view:
            await view.synced(PATIENCE_S)
            assert view.revision == 30
        await append_all(cell.log, [life.toggles() for life in lives])
        end = await append_all(cell.log, [lives[0].toggles()])
        stream = cell.names.view_stream

        async def snapshot_is_new():
            pointer = await cell.feed.snapshot_pointer()
            return pointer is not None and pointer.revision > 30 and pointer

        pointer = await eventually(snapshot_is_new, PATIENCE_S)
        await broker.purge_stream(stream, up_to=pointer.position.view_seq + 1)
        async with view_of(cell, checkpoint=path) as view, view_of(cell) as other:
            assert (view.source, view.revision) == ("checkpoint", 30)
            await view.synced(PATIENCE_S)
            await other.synced(PATIENCE_S)
            assert view.revision == other.revision == end
            assert view.digest == other.digest
            assert view.pick(MODEL).worker_id == "w0"
            assert view._counting._metrics.resyncs.labels("start")._value.get() == 1


async def test_a_stream_emptied_by_age_is_no_empty_fleet(broker, tmp_path):
    path = tmp_path / "checkpoint"
    async with projected_cell(broker, view_max_age_s=2.0) as cell, cell.service():
        end = await append_all(cell.log, [Life(f"w{n}").registers() for n in range(9)])
        async with view_of(cell, checkpoint=path) as view:
            await view.synced(PATIENCE_S)

        async def emptied():
            return (await cell.feed.state()).messages == 0

        await eventually(emptied, PATIENCE_S)
        async with view_of(cell, checkpoint=path) as view, view_of(cell) as other:
            for each in (view, other):
                await each.synced(PATIENCE_S)
                assert each.revision == end
                assert len(each.fleet.models[MODEL].worker_sets) == 1
                await eventually(lambda view=each: view.stale_for_s < 3, PATIENCE_S)
            last = await append_all(cell.log, [Life("new").registers()])
            await view.wait_for(last, PATIENCE_S)
            await other.wait_for(last, PATIENCE_S)
            assert view.digest == other.digest


async def test_waiting_for_routers(broker, processes):
    """A gate: live, behind, gone without a word, gone with a word, nobody at all."""
    numbers = {"presence_ttl_s": 1.0, "presence_lapse_s": 2.0}
    async with projected_cell(broker, **numbers) as cell, cell.service():
        end = await append_all(cell.log, [Life("a").registers()])
        settings = Settings(**numbers)
        async with cp.connect(broker.url, cell=cell.cell, settings=settings) as plane:
            assert await plane.wait(end, timeout_s=0.3) == result(reached=False)
            async with plane.view(name="here"):
                assert await plane.wait(end, timeout_s=5) == result()
                assert await plane.wait(end, routers=2, timeout_s=0.3) == result(
                    reached=False
                )
                beyond = await plane.wait(end + 1, timeout_s=0.3)
                assert beyond == result("here", reached=False)
                other = router_process(
                    processes, broker.url, cell.cell, "there", settings
                )
                await eventually(lambda: other.now.revision == end, PATIENCE_S)
                assert await plane.wait(end, routers=2, timeout_s=5) == result()
                other.process.kill()

                async def lapsed():
                    seen = await routers_of(broker, cell.names, settings)
                    return {r.presence.name: r.live for r in seen}.get("there") is False

                await eventually(lapsed, PATIENCE_S)
                missing = result("there", reached=False)
                assert await plane.wait(end, timeout_s=0.1) == missing
                assert (await plane.wait(end, routers=1, timeout_s=2)).reached
                assert await plane.wait(end, timeout_s=8) == result()
            assert await plane.routers() == ()


def result(*missing, reached=True):
    return cp.WaitResult(reached=reached, missing=missing)
