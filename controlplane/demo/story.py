"""The demo, as it is told: what happens, in which order."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from controlplane.plane import LocalPlane, local
from controlplane.worker import WorkerSpec

from .outcome import REPLAY, DemoEvent, DemoResult, Standing, Traffic, judge

MODEL = "meta-llama/Llama-3.1-8B-Instruct"


async def run_demo(
    *, store_dir: Path | None, on_event: Callable[[DemoEvent], None]
) -> DemoResult:
    """Run the demo; call ``on_event`` with each thing that happens.

    ``store_dir`` keeps the log, to be replayed. Raises `SettingsError` when it cannot
    start.
    """
    clock = asyncio.get_running_loop().time
    began = clock()

    def say(kind: str, text: str) -> None:
        on_event(DemoEvent(clock() - began, kind, text))

    say("start", "an embedded nats-server with a log of its own")
    async with local(store_dir) as plane:
        standings, picks = await _serve(plane, say)
    traffic = Traffic(picks=picks)
    result = judge(standings=standings, traffic=traffic, seconds=clock() - began)
    say("end", "everyone agrees" if result.ok else "; ".join(result.problems))
    return result


async def _serve(
    plane: LocalPlane, say: Callable[[str, str], None]
) -> tuple[list[Standing], int]:
    spec = WorkerSpec(model=MODEL, address="http://127.0.0.1:9", namespace="prod-v1")
    async with (
        plane.view(name="router-a") as first,
        plane.view(name="router-b") as second,
        plane.worker(spec) as worker,
    ):
        say("phase", "a worker registers, two routers see it")
        await worker.ready()
        picks = 0
        for view in (first, second):
            await view.synced(5.0)
            view.pick(MODEL)
            picks += 1
        state = await plane.log.replay()
        standings = [Standing(v.name, v.revision, v.digest) for v in (first, second)]
        if plane.projector is not None:
            fleet = plane.projector.service.fleet
            standings.insert(0, Standing("projector-a", fleet.revision, fleet.digest))
        standings.append(Standing(REPLAY, state.revision, state.fleet.digest))
        return standings, picks
