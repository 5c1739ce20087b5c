"""Logs and view streams that are lost or made anew under live routers."""

import asyncio

import msgspec
import pytest

from controlplane.plane import connect
from controlplane.presence import WaitResult, say_presence
from controlplane.server import EmbeddedServer
from controlplane.topology import init
from tests.support.cells import projected_cell
from tests.support.routers import Life, append_all, digests_of, view_of
from tests.support.servers import StoreMark
from tests.support.waiting import eventually

PATIENCE_S = 20.0
"""For what has no bound of its own, on a busy machine."""


async def test_a_view_stream_that_is_lost_is_begun_anew(cell, broker):
    async with cell.service(), view_of(cell) as view:
        lives = [Life(f"w{n}") for n in range(20)]
        await append_all(cell.log, [life.registers() for life in lives])
        await view.synced(PATIENCE_S)
        told = asyncio.ensure_future(anext(view.changes(initial=False)))
        await broker.delete_stream(cell.names.view_stream)
        await init(broker, cell.cell, cell.settings)
        await asyncio.sleep(0)
        assert len(view.fleet.state.workers) == 20
        end = await append_all(cell.log, [lives[0].leaves()])
        await view.wait_for(end, PATIENCE_S)
        assert view.digest == (await digests_of(cell.log))[end]
        assert (await told).kind == "removed"
        async with view_of(cell) as late:
            await late.synced(PATIENCE_S)
            assert late.digest == view.digest
            assert late.epoch == view.epoch


async def test_foreign_messages_in_the_view_stream_are_survived(cell, broker):
    async with cell.service(), view_of(cell) as view:
        end = await append_all(cell.log, [Life("a").registers()])
        await view.synced(PATIENCE_S)
        await broker.publish(cell.names.view, b"not a delta")
        end = await append_all(cell.log, [Life("b").registers()])
        await view.wait_for(end, PATIENCE_S)
        async with view_of(cell) as late:
            await late.synced(PATIENCE_S)
            await eventually(lambda: late.epoch == view.epoch, PATIENCE_S)
            assert late.digest == view.digest == (await digests_of(cell.log))[end]


async def test_a_head_says_which_record_the_view_ends_with(cell):
    """Also when that changed nothing: a revision alone would not tell histories."""
    async with cell.service(), view_of(cell) as view:
        await append_all(cell.log, [Life("a").registers()])
        await view.synced(PATIENCE_S)
        end = await append_all(cell.log, [Life("nobody").leaves()])
        await view.synced(PATIENCE_S)
        replica = view._core.replica
        assert replica.position.delta_revision < end
        assert replica.fingerprint_at == end
        assert replica.fingerprint == (await cell.log.at(end)).fingerprint


async def test_nobody_has_reached_a_revision_that_the_log_does_not_have(cell, broker):
    """A router of lost history says so, in an epoch that nobody ended yet."""
    async with (
        cell.service(),
        view_of(cell, announce=False) as view,
        connect(broker.url, cell=cell.cell) as plane,
    ):
        end = await append_all(cell.log, [Life("a").registers()])
        await view.synced(PATIENCE_S)
        await plane.connected()
        lost = msgspec.structs.replace(view.presence, revision=end + 5)
        await say_presence(broker, cell.names, lost)
        for revision in (end, end + 1, end + 5):
            result = await plane.wait(revision, timeout_s=0.1)
            assert result == WaitResult(reached=False, missing=(view.name,))
        await say_presence(broker, cell.names, view.presence)
        assert (await plane.wait(end, timeout_s=PATIENCE_S)).reached


# ---- an older copy of the store ----------------------------------------------------
async def shows_all(cell, view):
    await view.synced(PATIENCE_S)
    end = (await cell.log.state()).last_revision
    assert view.revision == end
    assert view.digest == (await digests_of(cell.log))[end]


async def test_synced_is_level_with_a_log_that_was_restored(broker_factory):
    """First the whole store with its leader alive; then the log alone, without one.

    Each time the log is shorter than what the view shows, and an update follows.
    """
    lives = [Life(f"w{n}") for n in range(5)]
    async with EmbeddedServer() as server:
        broker = await broker_factory(server.url)
        async with projected_cell(broker) as cell, view_of(cell) as view:
            async with cell.service():
                await append_all(cell.log, [life.registers() for life in lives])
                await shows_all(cell, view)
                mark = await StoreMark(server).take()
                await append_all(cell.log, [life.toggles() for life in lives])
                await shows_all(cell, view)
                await mark.roll_back()
                await broker.wait_connected(PATIENCE_S)
                await append_all(cell.log, [lives[0].leaves()])
                await shows_all(cell, view)
                assert view.fleet.worker("prod", "w0") is None
                await append_all(cell.log, [life.toggles() for life in lives[1:]])
                await shows_all(cell, view)
            await mark.roll_back(cell.names.log_stream)
            await broker.wait_connected(PATIENCE_S)
            await append_all(cell.log, [lives[1].leaves()])
            with pytest.raises(TimeoutError):
                await view.synced(1)
            async with cell.service():
                await shows_all(cell, view)
                assert view.fleet.worker("prod", "w1") is None
