"""A reader's share of the changes: coalesced per worker, bounded by the fleet."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Final

from projections import Change, Fleet, FleetChange, Touched, worker_changes

TOUCHED_MIN: Final = 1024


class ChangeReader:
    """What one reader has not seen yet. A slow one sees fewer, never wrong, changes.

    It iterates once. It remembers no more keys than there are workers: beyond that it
    looks at all of them.
    """

    def __init__(
        self, seen: Fleet, latest: Fleet, ended: Callable[[], bool] = lambda: False
    ) -> None:
        """Begin after ``seen``, with all that ``latest`` has beyond it."""
        self._seen, self._latest = seen, latest
        self._ended = ended
        self._touched = Touched()
        self._moved = asyncio.Event()
        if latest is not seen:
            self._touched.everything = True
            self._moved.set()

    def moved(self, changes: Iterable[FleetChange] | None, fleet: Fleet) -> None:
        """The fleet is ``fleet`` now; ``changes`` led there, None: any may have."""
        touched = self._touched
        if changes is None:
            touched.everything = True
        elif not touched.everything:
            touched.add(changes, self._latest)
        if touched.everything or len(touched.workers) > self._enough(fleet):
            touched.everything = True
            touched.workers.clear()
            touched.models.clear()
        self._latest = fleet
        self._moved.set()

    def _enough(self, fleet: Fleet) -> int:
        return max(
            TOUCHED_MIN, len(fleet.state.workers) + len(self._seen.state.workers)
        )

    def wake(self) -> None:
        """Look whether it has ended."""
        self._moved.set()

    async def read(self) -> AsyncIterator[Change]:
        """Yield changes as they come; of one moment, removals first.

        It ends when the view has ended, at once if it does not run.
        """
        while not self._ended():
            await self._moved.wait()
            if self._ended():
                return
            self._moved.clear()
            before, after = self._seen, self._latest
            touched, self._touched = self._touched, Touched()
            self._seen = after
            for change in worker_changes(before, after, touched):
                yield change
