"""Workers that are killed, stopped or blocked, seen by routers from outside."""

from __future__ import annotations

import asyncio
import signal
import time
from contextlib import AsyncExitStack

import pytest

import controlplane as cp
from tests.support.waiting import eventually
from tests.support.worker_processes import TTL_S, worker_process

SLACK_S = 2.0
BLOCKED_S = 3 * TTL_S
pytestmark = pytest.mark.timeout(90)


class Watch:
    """When each worker was seen to come and go by one router."""

    def __init__(self, view: cp.RouterView) -> None:
        self.view = view
        self.gone: dict[str, float] = {}
        self.back: dict[str, float] = {}

    async def run(self) -> None:
        async for change in self.view.changes(initial=False):
            worker = change.worker or change.before
            if change.kind == "removed":
                self.gone[worker.worker_id] = time.monotonic()
            elif worker.worker_id in self.gone:
                self.back[worker.worker_id] = time.monotonic()


async def test_the_killed_leave_the_stopped_return_and_the_blocked_stay():
    """S16, S16b: silence is judged by beats, and beats need no event loop."""
    async with AsyncExitStack() as stack:
        plane = await stack.enter_async_context(cp.local())
        views = [await stack.enter_async_context(plane.view()) for _ in range(2)]
        processes, lives = {}, {}
        for name in ("killed", "stopped", "blocked", "steady"):
            context = worker_process(plane.server.url, name)
            processes[name], lives[name] = await stack.enter_async_context(context)
        for view in views:
            await view.synced(10)
            assert len(view.fleet.models["llama"].worker_sets) == 1
        watches = [Watch(view) for view in views]
        watching = [asyncio.create_task(watch.run()) for watch in watches]
        processes["blocked"].stdin.write(f"block {BLOCKED_S}\n".encode())
        await processes["blocked"].stdin.drain()
        blocked_at = time.monotonic()
        killed_at = time.monotonic()
        processes["killed"].kill()
        processes["stopped"].send_signal(signal.SIGSTOP)
        for watch in watches:
            for name in ("killed", "stopped"):
                await eventually(lambda w=watch, n=name: n in w.gone, TTL_S + 10)
                assert watch.gone[name] - killed_at <= TTL_S + SLACK_S
                assert watch.gone[name] - killed_at >= TTL_S * 0.6
        processes["stopped"].send_signal(signal.SIGCONT)
        for watch in watches:
            await eventually(lambda w=watch: "stopped" in w.back, TTL_S + 5)
        for view in views:
            returned = view.fleet.worker("prod", "stopped")
            assert returned.routable
            assert returned.incarnation != lives["stopped"]
        deadline = blocked_at + BLOCKED_S + 1.0
        await eventually(lambda: time.monotonic() > deadline, BLOCKED_S + 5)
        for view, watch in zip(views, watches, strict=True):
            assert set(watch.gone) == {"killed", "stopped"}
            blocked = view.fleet.worker("prod", "blocked")
            assert blocked.incarnation == lives["blocked"]
        events = [record.event async for record in plane.log.read()]
        expired = [e for e in events if isinstance(e, cp.WorkerExpired)]
        assert {event.worker_id for event in expired} == {"killed", "stopped"}
        assert all(event.silent_for_s > TTL_S for event in expired)
        for task in watching:
            task.cancel()
        await asyncio.wait(watching)
