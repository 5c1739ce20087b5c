"""A reader's share of the changes: coalesced per worker, bounded by the fleet."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable

from projections import Change, Fleet, FleetChange, Touched, worker_changes


class ChangeReader:
    """What one reader has not seen yet. A slow one sees fewer, never wrong, changes."""

    def __init__(self, seen: Fleet) -> None:
        """Begin after ``seen``."""
        self._seen = self._latest = seen
        self._touched = Touched()
        self._moved = asyncio.Event()

    def moved(self, changes: Iterable[FleetChange], fleet: Fleet) -> None:
        """The fleet is ``fleet`` now; ``changes`` led there."""
        self._touched.add(changes, self._latest)
        self._latest = fleet
        self._moved.set()

    def everything(self, fleet: Fleet) -> None:
        """All of ``fleet`` is news."""
        self._touched.everything = True
        self._latest = fleet
        self._moved.set()

    async def read(self) -> AsyncIterator[Change]:
        """Yield changes as they come, for ever; of one moment, removals first."""
        while True:
            await self._moved.wait()
            self._moved.clear()
            before, after = self._seen, self._latest
            touched, self._touched = self._touched, Touched()
            self._seen = after
            for change in worker_changes(before, after, touched):
                yield change
