"""What scenarios have in common: load, and holding routers to the log."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from itertools import pairwise

from controlplane.errors import LogUnavailableError
from controlplane.eventlog import Pending
from events import AnyEvent, Revision
from projections import FoldState, step
from tests.support.deriving import check_view
from tests.support.routers import Life
from tests.support.stage import PATIENCE_S, Heard, Place, Stage, StagedRouter

LOAD_EVERY_S = 0.02
ROUNDS_BETWEEN_GHOSTS = 5


def life(stage: Stage, worker_id: str) -> Life:
    """A worker without a process: it says what the scenario has it say."""
    return Life(worker_id, clock=stage.clock)


async def append(stage: Stage, events: Sequence[AnyEvent]) -> Revision:
    """Append all, up to 500 at once, all or none; the last revision."""
    revision = 0
    for start in range(0, len(events), 500):
        pending = [Pending(event) for event in events[start : start + 500]]
        revision = (await stage.log.append_all(pending)).revision
    return revision


# ---- load --------------------------------------------------------------------------
class Load:
    """Workers without processes that change their status, on and on.

    A ghost, which never registered, says something now and then: that counts as an
    anomaly, so that a record folded twice shows in the counts.
    """

    def __init__(self, stage: Stage, per_s: float, workers: int) -> None:
        self._stage, self._at_once = stage, max(1, round(per_s * LOAD_EVERY_S))
        self._pause_s = self._at_once / per_s
        self.lives = [life(stage, f"x{n}") for n in range(workers)]
        self._ghost = life(stage, "ghost")
        self.acknowledged: Revision = 0
        """The last revision that was."""

    async def begin(self) -> None:
        """Register all."""
        events = [one.registers() for one in self.lives]
        self.acknowledged = await append(self._stage, events)

    async def go_on(self) -> None:
        """Change statuses, for ever."""
        turn = 0
        while True:
            turn += 1
            events: list[AnyEvent] = [
                self.lives[(turn * self._at_once + n) % len(self.lives)].toggles()
                for n in range(self._at_once)
            ]
            if turn % ROUNDS_BETWEEN_GHOSTS == 0:
                events[-1] = self._ghost.toggles()
            await self._insist(events)
            await self._stage.lapse(self._pause_s)

    async def _insist(self, events: list[AnyEvent]) -> None:
        """Append until it is in the log: a broker that is away comes back."""
        while True:
            try:
                self.acknowledged = await append_each(self._stage, events)
            except LogUnavailableError:
                await self._stage.lapse(self._pause_s)
            else:
                return


async def append_each(stage: Stage, events: Sequence[AnyEvent]) -> Revision:
    """Append all at once, each for itself; the last revision."""
    found = await asyncio.gather(*[stage.log.append(event) for event in events])
    return max(appended.revision for appended in found)


@asynccontextmanager
async def loaded(stage: Stage, per_s: float, workers: int = 5) -> AsyncIterator[Load]:
    """Have so many statuses a second change while inside."""
    load = Load(stage, per_s, workers)
    await load.begin()
    running = asyncio.ensure_future(load.go_on())
    try:
        yield load
    finally:
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running


# ---- holding routers to the log ----------------------------------------------------
async def log_end(stage: Stage) -> Revision:
    return (await stage.log.state()).last_revision


async def level(
    stage: Stage, *routers: StagedRouter, within_s: float = PATIENCE_S
) -> Revision:
    """Wait until all show the log's end; they show the same, and what a replay says.

    To be asked when nobody appends any more.
    """

    async def there() -> Revision:
        end = await log_end(stage)
        nows = [router.now for router in routers]
        is_level = all(n.source == "live" and n.revision == end for n in nows)
        return end if is_level else 0

    end = await stage.until(there, within_s)
    replayed = await stage.replay()
    assert replayed.revision == end
    assert {router.now.digest for router in routers} == {replayed.fleet.digest}
    assert len({router.now.epoch for router in routers}) == 1
    fleets = [await router.fleet() for router in routers]
    for fleet in fleets:
        assert fleet.anomalies == replayed.anomalies.counts
    if len(fleets) > 1:
        assert len({fleet.to_json() for fleet in fleets}) == 1
    return end


async def reached(
    stage: Stage,
    revision: Revision,
    *routers: StagedRouter,
    within_s: float = PATIENCE_S,
) -> None:
    """Wait until all show ``revision``."""
    await stage.until(
        lambda: all(r.now.revision >= revision for r in routers), within_s
    )


async def check_places(stage: Stage, *routers: StagedRouter) -> None:
    """Wherever a router stood in the present history, it had the fold up to there.

    Same place, same digest, whoever stood there.
    """
    digests = await digests_of(stage)
    for router in routers:
        assert router.places, router.name
        for place in router.places:
            assert place.digest == digests[place.revision], (router.name, place)


def check_no_step_back(places: Sequence[Place]) -> None:
    """Within an epoch the revisions of one life never fell."""
    for before, after in pairwise(places):
        if before.epoch == after.epoch:
            assert before.revision <= after.revision, (before, after)


async def digests_of(stage: Stage) -> dict[Revision, str]:
    """The fleet's digest at each revision, by a replay of the whole log."""
    state, digests = FoldState(), {0: FoldState().fleet_state.digest}
    for record in await stage.records():
        state = step(state, record).state
        digests[record.revision] = state.fleet_state.digest
    return digests


async def check_view_stream(stage: Stage, epochs: int = 1) -> None:
    """Every ordinal stands once in the view stream, with the bytes of a replay."""

    async def complete() -> bool:
        entries = [entry async for batch in stage.feed.read(0) for entry in batch]
        return len(check_view(await stage.records(), entries)) == epochs

    assert await complete()


def knowledge(heard: Sequence[Heard]) -> dict[str, str]:
    """What a reader of changes knows in the end: each worker's status."""
    known: dict[str, str] = {}
    for change in heard:
        match change.kind:
            case "added":
                assert change.worker not in known, change
                known[change.worker] = change.status
            case "changed":
                assert change.worker in known, change
                known[change.worker] = change.status
            case "removed":
                del known[change.worker]
    return known
