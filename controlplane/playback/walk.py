"""Walking through a history, record by record, forwards and back.

States are kept at the ends of chunks of revisions; they share what did not change, so a
step back folds one chunk at most, wherever one comes from.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Awaitable, Callable
from typing import Final

import msgspec

from events import Record, Revision
from projections import Anomaly, FleetChange, FoldState, step

from .history import History
from .player import Progress, whole_ends

CHUNK: Final = 256
CHUNKS_KEPT: Final = 8


class Stop(msgspec.Struct, frozen=True, kw_only=True):
    """A record, and the state before and after it."""

    record: Record
    before: FoldState
    after: FoldState
    changes: tuple[FleetChange, ...]

    @property
    def anomaly(self) -> Anomaly | None:
        """Why the record changed nothing, if the fold has a reason."""
        if self.after.anomalies is self.before.anomalies:
            return None
        return self.after.anomalies.latest[-1]


class Walk:
    """Where one stands in a history. Every step raises what reading it raises."""

    def __init__(self, history: History, progress: Progress | None = None) -> None:
        """Stand nowhere; see `begin`."""
        self._history, self._progress = history, progress
        self.first: Revision = 1
        self.last: Revision = 0
        self.stop: Stop | None = None
        """None: the history has no record."""
        self._states: list[FoldState] = [FoldState()]
        """At the beginning of each chunk so far."""
        self._chunks: dict[int, list[Stop]] = {}

    async def begin(self, at: Revision | None = None) -> None:
        """Stand at the first record, or at the last one up to ``at``.

        Raises `HistoryTruncatedError` when the beginning is gone.
        """
        ends = await whole_ends(self._history)
        self.first, self.last = ends.first, ends.last
        if at is None:
            await self.home()
        else:
            await self.to(at)

    async def to(self, revision: Revision) -> None:
        """Stand at the last record up to ``revision``, else at the first."""
        self.stop = await self._at_or_before(min(revision, self.last))
        if self.stop is None:
            self.stop = await self._at_or_after(1)

    async def home(self) -> None:
        """Stand at the first record."""
        self.stop = await self._at_or_after(1)

    async def end(self) -> None:
        """Stand at the last record."""
        await self.to(self.last)

    async def forward(self, count: int = 1) -> bool:
        """Go so many records on; False: there are not so many."""
        return await self._go(
            count, lambda at: self._at_or_after(at.record.revision + 1)
        )

    async def back(self, count: int = 1) -> bool:
        """Go so many records back; False: there are not so many."""
        return await self._go(
            count, lambda at: self._at_or_before(at.record.revision - 1)
        )

    async def _go(
        self, count: int, beyond: Callable[[Stop], Awaitable[Stop | None]]
    ) -> bool:
        for _ in range(count):
            following = None if self.stop is None else await beyond(self.stop)
            if following is None:
                return False
            self.stop = following
        return True

    async def find(self, wanted: Callable[[Stop], bool], *, back: bool = False) -> bool:
        """Go to the next record that is ``wanted``; False: there is none; stay."""
        here = self.stop
        while await (self.back() if back else self.forward()):
            if self.stop is not None and wanted(self.stop):
                return True
        self.stop = here
        return False

    # ---- chunks ----------------------------------------------------------------
    async def _at_or_before(self, revision: Revision) -> Stop | None:
        number = (revision - 1) // CHUNK
        while number >= 0:
            stops = await self._chunk(number)
            place = bisect_right(stops, revision, key=_revision)
            if place:
                return stops[place - 1]
            number -= 1
        return None

    async def _at_or_after(self, revision: Revision) -> Stop | None:
        for number in range((revision - 1) // CHUNK, (self.last - 1) // CHUNK + 1):
            stops = await self._chunk(number)
            place = bisect_right(stops, revision - 1, key=_revision)
            if place < len(stops):
                return stops[place]
        return None

    async def _chunk(self, number: int) -> list[Stop]:
        """The stops of revisions (number * CHUNK, (number + 1) * CHUNK]."""
        kept = self._chunks.pop(number, None)
        if kept is None:
            await self._reach(number)
            kept = await self._read(number)
        self._chunks[number] = kept  # the last used is the last to go
        while len(self._chunks) > CHUNKS_KEPT:
            del self._chunks[next(iter(self._chunks))]
        return kept

    async def _reach(self, number: int) -> None:
        """Know the state at the beginning of the chunk."""
        begin = len(self._states) - 1
        if begin >= number:
            return
        state, end = self._states[-1], number * CHUNK
        async for records in self._history.batches(begin * CHUNK, end):
            for record in records:
                self._note_up_to((record.revision - 1) // CHUNK, state)
                state = step(state, record).state
            if self._progress is not None:
                self._progress(state.revision, end)
        self._note_up_to(number, state)

    def _note_up_to(self, number: int, state: FoldState) -> None:
        while len(self._states) <= number:
            self._states.append(state)

    async def _read(self, number: int) -> list[Stop]:
        state, begin = self._states[number], number * CHUNK
        stops: list[Stop] = []
        async for records in self._history.batches(begin, begin + CHUNK):
            for record in records:
                folded = step(state, record)
                stops.append(
                    Stop(
                        record=record,
                        before=state,
                        after=folded.state,
                        changes=folded.changes,
                    )
                )
                state = folded.state
        if number + 1 == len(self._states):
            self._states.append(state)
        return stops


def _revision(stop: Stop) -> Revision:
    return stop.record.revision
