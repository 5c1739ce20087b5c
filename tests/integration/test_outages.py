"""The broker goes away under a whole fleet: nobody dies of it, everybody recovers."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import pytest

import controlplane as cp
from controlplane.server import EmbeddedServer
from tests.support.servers import frozen
from tests.support.waiting import eventually
from tests.support.worker_processes import TTL_S, worker_process

BACK_S = 5.0
FRESH_S = 1.5
NAMES = {"w1", "w2", "w3"}
pytestmark = pytest.mark.timeout(120)


async def sit_out(view: cp.RouterView, seconds: float) -> None:
    """Let an outage last, seen by a router that goes on serving."""
    seen = view.stale_for_s
    await eventually(lambda: view.stale_for_s > seen + seconds / 2, seconds)
    assert {view.pick("llama").worker_id for _ in range(100)} == NAMES
    await eventually(lambda: view.stale_for_s > seconds, seconds)
    assert {view.pick("llama").worker_id for _ in range(100)} == NAMES


async def recovered(views: list[cp.RouterView], plane: cp.Plane) -> None:
    """All is level again, in time, and nobody was expired or is missing."""
    async with asyncio.timeout(BACK_S):
        for view in views:
            await eventually(lambda v=view: v.stale_for_s < FRESH_S, BACK_S)
            await view.synced(BACK_S)
    assert len({view.digest for view in views}) == 1
    for view in views:
        assert {view.pick("llama").worker_id for _ in range(100)} == NAMES
    events = [record.event async for record in plane.log.read()]
    assert not [event for event in events if isinstance(event, cp.WorkerExpired)]


async def test_an_outage_of_the_broker_ends_nobody_and_is_over_soon(tmp_path):
    """S17: SIGKILL for three leases, then SIGSTOP for two, under real workers."""
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(EmbeddedServer(tmp_path))
        plane = await stack.enter_async_context(cp.connect(server.url))
        await plane.init()
        await stack.enter_async_context(cp.Projector(plane, http=False))
        routing = await stack.enter_async_context(cp.connect(server.url))
        views = [await stack.enter_async_context(routing.view()) for _ in range(2)]
        workers = []
        for name in sorted(NAMES):
            context = worker_process(server.url, name)
            workers.append((await stack.enter_async_context(context))[0])
        for view in views:
            await view.synced(10)
        await server.kill()
        await sit_out(views[0], 3 * TTL_S)
        await server.start()
        await recovered(views, plane)
        with frozen(server):
            await sit_out(views[0], 2 * TTL_S)
        await recovered(views, plane)
        # A lease that ran out unseen would be found out by now.
        beats = asyncio.get_running_loop().time() + TTL_S + 1.0
        await eventually(lambda: asyncio.get_running_loop().time() > beats, TTL_S + 5.0)
        await recovered(views, plane)
        assert all(worker.returncode is None for worker in workers)
