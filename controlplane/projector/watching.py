"""Looking at the cell now and then: the log's end, holes in the view, the snapshot.

What a core cannot hear of, because nobody says it, is looked up here and told to it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Final

from controlplane.clock import Clock
from controlplane.eventlog import EventLog, LogState
from controlplane.viewfeed import ViewFeed
from events import ControlPlaneError

from .appearance import Appearance
from .core import Core
from .effects import Effect, Rebuild
from .finding import log_end_of

SNAPSHOT_EVERY: Final = 10
"""Looks at the log between two looks at the snapshot."""


class Watching:
    """Looks for one projector; ``do`` carries out what a core makes of it."""

    def __init__(
        self,
        *,
        log: EventLog,
        feed: ViewFeed,
        appearance: Appearance,
        clock: Clock,
        every_s: float,
        core: Callable[[], Core | None],
        do: Callable[[Core, Iterable[Effect]], None],
    ) -> None:
        """Look each ``every_s``; tell ``core()``, whichever it is then."""
        self._log, self._feed, self._appearance = log, feed, appearance
        self._clock, self._every_s = clock, every_s
        self._core, self._do = core, do

    async def run(self) -> None:
        """Look for as long as the projector runs."""
        looks = 0
        while True:
            await asyncio.sleep(self._every_s)
            looks += 1
            try:
                await self.look()
                if looks % SNAPSHOT_EVERY == 0:
                    await self._look_at_snapshot()
            except ControlPlaneError:
                continue

    async def look(self) -> None:
        """Look at the log, and a leader at the view. Raises `LogUnavailableError`."""
        before, state = self._core(), await self._log.state()
        self._appearance.log_state = state
        if before is not None and _is_of_another(before, state):
            # Its reader says so too, but not before there is something to read.
            self._do(before, [Rebuild(f"the log is {state.log_id} now")])
            return
        core = self._core()
        end = state.last_revision
        if core is not None and core.fold.revision < end:
            end = await log_end_of(self._log, state)
        self._appearance.compare(end)
        if core is not None and core.leading:
            await self._look_for_holes(core)

    async def _look_for_holes(self, core: Core) -> None:
        view = await self._feed.state()
        first, now = view.first_sequence, self._clock.monotonic()
        holes = view.last_sequence - first + 1 - view.messages
        self._do(core, core.view_misses(holes, first, now))

    async def _look_at_snapshot(self) -> None:
        """See that the latest snapshot is whole, before somebody needs it."""
        core = self._core()
        if core is not None and core.leading:
            position = await self._feed.standing_snapshot()
            self._do(core, core.snapshot_found(position, self._clock.monotonic()))


def _is_of_another(core: Core, log: LogState) -> bool:
    """Whether ``core`` is of another log than the one that answered."""
    return core.line.log_id != log.log_id
