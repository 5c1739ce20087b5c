"""Where in a log an expression becomes true: in one pass, or narrowed down.

It becomes true with a record if it holds after it and did not before. If it holds from
the beginning on and never becomes true later, the first record is the answer. Most
questions hold of an empty fleet ("fewer than three are routable"); who asks them wants
to know when it came to that.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from events import Record, Revision

from .expression import Expression
from .fold import FoldState, step
from .folding import fold_all
from .replaying import PlaneState

WAYPOINTS: Final = 16
"""States that are kept of a stretch. Each may be as large as a fleet."""


class Found(msgspec.Struct, frozen=True, gc=False):
    """The record with which an expression became true, and the state after it."""

    record: Record
    state: FoldState


def find_first(
    records: Iterable[Record], expression: Expression, start: FoldState | None = None
) -> Found | None:
    """Where ``expression`` becomes true after ``start`` (else the beginning).

    ``records`` are those after ``start``, in order. None: it never holds.
    """
    search = OnePass(expression, start)
    return search.feed(records) or search.at_first


class OnePass:
    """Asks after every record that may change the answer, until it becomes true."""

    def __init__(self, expression: Expression, start: FoldState | None = None) -> None:
        """Search after ``start``, else from the beginning."""
        self._expression, self.state = expression, start or FoldState()
        """Where the search stands."""
        self.evaluations = 0
        """How often the expression was asked."""
        self._holds = self._ask()
        self._began = False
        self.at_first: Found | None = None
        """The first record, if it holds there and did before."""

    def feed(self, records: Iterable[Record]) -> Found | None:
        """Go on over ``records``; None: it did not become true there."""
        for record in records:
            before = self.state.fleet_state
            self.state = step(self.state, record).state
            held = self._holds
            if self._expression.may_differ(before, self.state.fleet_state):
                self._holds = self._ask()
            if self._holds and not held:
                return Found(record, self.state)
            if not self._began:
                self._began = True
                self.at_first = Found(record, self.state) if self._holds else None
        return None

    def _ask(self) -> bool:
        self.evaluations += 1
        return self._expression.holds(PlaneState(self.state).fleet)


class _Waypoint(msgspec.Struct, frozen=True, gc=False):
    state: FoldState
    record: Record | None
    """None: of the start of a stretch."""
    count: int
    """How many records of the stretch led here."""


class Narrowing:
    """Finds where an expression becomes true that stays true, by few questions.

    ``stretch`` says which records to `feed` next, (after, until]; then `close` narrows
    it down to a sixteenth, again and again, until ``stretch`` is None: ``found`` is the
    answer then. The states of some waypoints are kept meanwhile: a sixteenth is folded
    from where it begins, not from the beginning of the log.

    An expression that holds at the start, too, keeps its promise only from some time
    on. Then it is searched for after the last waypoint at which it does not hold.
    """

    def __init__(
        self, expression: Expression, start: FoldState, last: Revision
    ) -> None:
        """Search in the records after ``start`` up to ``last``."""
        self._expression = expression
        self.evaluations = 0
        """How often the expression was asked."""
        self.found: Found | None = None
        self.state = start
        """At the end of the search's records, once the first stretch is closed."""
        self.stretch: tuple[Revision, Revision] | None = None
        self._first = True
        self._begin(start, last)

    def feed(self, records: Iterable[Record]) -> None:
        """Take the next records of the stretch, in order."""
        chunk: list[Record] = []
        for record in records:
            chunk.append(record)
            if record.revision >= self._mark:
                self._fold(chunk)
                self._keep(record)
                chunk = []
        self._fold(chunk)

    def close(self) -> None:
        """The stretch was fed to its end: take the part in which it becomes true."""
        if self._last is not None and self._last is not self._kept[-1].record:
            self._keep(self._last)
        kept, high = self._kept, len(self._kept) - 1
        if self._first:
            self.state = kept[high].state
        self.stretch = None
        if high == 0 or (self._first and not self._holds(kept[high])):
            return
        low = self._lowest() if self._first else 0
        self._first = False
        while high - low > 1:
            middle = (low + high) // 2
            if self._holds(kept[middle]):
                high = middle
            else:
                low = middle
        before, at = kept[low], kept[high]
        assert at.record is not None  # noqa: S101 - it is above the start
        if at.count - before.count > 1:
            self._begin(before.state, at.state.revision)
        else:
            self.found = Found(at.record, at.state)

    def _lowest(self) -> int:
        """The place to search after: the start, unless it holds there already."""
        kept = self._kept
        if not self._holds(kept[0]):
            return 0
        inner = range(len(kept) - 2, 0, -1)
        return next((place for place in inner if not self._holds(kept[place])), 0)

    def _begin(self, start: FoldState, until: Revision) -> None:
        if until <= start.revision:
            return
        self.stretch = (start.revision, until)
        self._state, self._count = start, 0
        self._last: Record | None = None
        self._kept = [_Waypoint(start, None, 0)]
        self._stride = max(1, (until - start.revision) // WAYPOINTS)
        self._mark = start.revision + self._stride

    def _fold(self, chunk: list[Record]) -> None:
        if chunk:
            self._state = fold_all(self._state, chunk)
            self._count += len(chunk)
            self._last = chunk[-1]

    def _keep(self, record: Record) -> None:
        self._kept.append(_Waypoint(self._state, record, self._count))
        self._mark = record.revision + self._stride

    def _holds(self, waypoint: _Waypoint) -> bool:
        self.evaluations += 1
        return self._expression.holds(PlaneState(waypoint.state).fleet)
