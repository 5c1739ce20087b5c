"""Processes that `bench_router` measures: a cold start, a follower, a bare listener.

The system's monotonic clock is the same in every process, so moments compare.
"""

from __future__ import annotations

import json
import sys
import time
from itertools import pairwise

import uvloop

import controlplane as cp
from controlplane.router.replica import from_snapshot
from controlplane.viewfeed import ViewFeed


async def cold() -> None:
    """Connect, start a view, wait until it is synced; then time the steps apart."""
    async with cp.connect() as plane:
        await plane.connected()
        started = time.perf_counter()
        async with plane.view(announce=False) as view:
            await view.synced(30)
            total_s = time.perf_counter() - started
            workers = len(view.fleet.state.workers)
        said = {"total": total_s, "workers": workers, **await steps(plane.feed)}
        print(json.dumps(said))  # noqa: T201


async def steps(feed: ViewFeed) -> dict[str, float]:
    """What the parts of a cold start take one after the other, now that all is warm."""
    moments = [time.perf_counter()]

    def note() -> None:
        moments.append(time.perf_counter())

    await feed.state()
    note()
    pointer = await feed.snapshot_pointer()
    note()
    await feed.last_head()
    note()
    assert pointer is not None
    snapshot = await feed.read_snapshot(pointer)
    note()
    from_snapshot(snapshot)
    note()
    names = ("state", "pointer", "head", "chunks and decoding", "building and digest")
    spans = pairwise(moments)
    return dict(zip(names, (b - a for a, b in spans), strict=True))


async def follow() -> None:
    """Print each revision with the moment at which the view includes it."""
    async with cp.connect() as plane, plane.view(name="follower") as view:
        await view.synced(30)
        print("ready", flush=True)  # noqa: T201
        at = view.revision
        while True:
            await view.wait_for(at + 1, None)
            now, at = time.monotonic_ns(), view.revision
            print(at, now, flush=True)  # noqa: T201


async def hear() -> None:
    """Print the number of each message on ``hop`` with the moment of its arrival."""
    async with cp.connect() as plane:
        await plane.connected()
        messages = await plane.broker.subscribe("hop")
        print("ready", flush=True)  # noqa: T201
        async for message in messages:
            print(message.payload.decode(), time.monotonic_ns(), flush=True)  # noqa: T201


if __name__ == "__main__":
    uvloop.run({"cold": cold, "follow": follow, "hear": hear}[sys.argv[1]]())
