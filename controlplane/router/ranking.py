"""The candidates of one wish by how busy they said they are, always in order."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Collection, Mapping
from typing import Final, TypeAlias

from events import Incarnation
from projections import (
    Candidates,
    Load,
    RandomNumbers,
    Registration,
    Standing,
    WorkerKey,
    is_busy,
    moves,
    pressure,
    slots_of,
)

ANEW: Final = 8
"""When more than one in so many moved, sorting anew costs less than moving each."""
WEIGHT_MIN: Final = 1e-200
"""An old log may hold less. Divided by that, pressures would be infinite: no order."""
NEAR: Final = 64
"""So near the first a place is looked for first."""

_Entry: TypeAlias = tuple[bool, float, WorkerKey]
"""Whether it is free, its pressure over its weight, negated, and who it is."""


class Seen:
    """The last report of a worker, and what this router sent it since."""

    __slots__ = ("at", "incarnation", "kept", "load", "sent", "watchers")

    def __init__(self) -> None:
        """Of nobody yet; `Loads` fills it in."""
        self.incarnation: Incarnation = ""
        self.load = Load()
        self.at = 0.0
        self.sent = 0
        self.kept = 1.0
        """How much of what is sent is still there at the next report."""
        self.watchers: dict[Ranking, None] = {}
        """Who is to look at it when it changes."""


class Ranking:
    """Follows the candidates and their reports; what has none is not in it.

    The least pressed comes first, busy ones after all others. A worker's pressure
    counts by its weight: at a tenth of the weight it is as full with a tenth.
    """

    def __init__(self, seen: Mapping[WorkerKey, Seen]) -> None:
        """Rank by what is ``seen``."""
        self._seen = seen
        self.dropped = False
        """Whether it is told of reports no more."""
        self._found: Candidates | None = None
        self._standing: dict[WorkerKey, Standing] = {}
        self._entries: dict[WorkerKey, _Entry] = {}
        self._order: list[_Entry] = []
        """The first of the ranking is the last of the list: there it moves cheaply."""
        self._terms: dict[WorkerKey, tuple[float, float]] = {}
        """Pressure with one more request, and what each adds, over the weight."""
        self.pending: dict[WorkerKey, None] = {}
        """Who is to be looked at again."""
        self.moved: dict[WorkerKey, None] = {}
        """To whom requests were sent since."""

    def match(self, found: Candidates) -> None:
        """Rank exactly the workers of ``found``, as they are seen now."""
        if found is not self._found:
            moved = moves(self._found, found)
            self._found = found
            for key in moved.gone:
                del self._standing[key]
                self._terms.pop(key, None)
            self._standing.update(moved.put)
            self.pending.update(dict.fromkeys(moved.gone))
            self.pending.update(dict.fromkeys(moved.put))
        if self.pending:
            self._settle()

    def __contains__(self, key: WorkerKey) -> bool:
        """Whether it is a candidate."""
        return key in self._standing

    @property
    def silent(self) -> int:
        """How many candidates have no report."""
        return len(self._standing) - len(self._order)

    @property
    def any_free(self) -> bool:
        """Whether any candidate is not busy, as far as is known."""
        return self.silent > 0 or self._order[-1][0]

    @property
    def any_busy(self) -> bool:
        """Whether any candidate is known to be busy."""
        return bool(self._order) and not self._order[0][0]

    def is_busy(self, key: WorkerKey) -> bool:
        """Whether its last report says that it is."""
        entry = self._entries.get(key)
        return entry is not None and not entry[0]

    def is_known(self, key: WorkerKey, since: float) -> bool:
        """Whether it has a report that is not older than ``since``."""
        return key in self._entries and self._seen[key].at >= since

    def least(
        self, rng: RandomNumbers, since: float, kept_out: Collection[WorkerKey]
    ) -> Registration | None:
        """The least pressed whose report is not older than ``since``; ties by chance.

        None: there is none, or all are kept out.
        """
        if self.moved:
            self._move()
        order, end = self._order, len(self._order)
        while end:
            begin = end - 1
            free, score, key = order[begin]
            if begin and order[begin - 1][1] == score:
                begin = bisect_left(order, (free, score), 0, end)
            elif self._seen[key].at >= since and key not in kept_out:
                return self._standing[key].worker
            first = int(rng.random() * (end - begin)) if end - begin > 1 else 0
            for step in range(end - begin):
                key = order[begin + (first + step) % (end - begin)][2]
                if self._seen[key].at >= since and key not in kept_out:
                    return self._standing[key].worker
            end = begin
        return None

    # ---- keeping order ---------------------------------------------------------
    def _settle(self) -> None:
        """Find the places of the pending anew."""
        pending, self.pending = self.pending, {}
        anew = len(pending) > len(self._order) // ANEW
        for key in pending:
            self.moved.pop(key, None)
            old = self._entries.pop(key, None)
            if old is not None and not anew:
                del self._order[bisect_left(self._order, old)]
            entry = self._entry(key)
            if entry is not None:
                self._entries[key] = entry
                if not anew:
                    insort(self._order, entry)
        if anew:
            self._order = sorted(self._entries.values())

    def _move(self) -> None:
        """Put those back to whom requests were sent: mostly the first, and not far."""
        moved, order, entries = self.moved, self._order, self._entries
        while moved:
            key, _ = moved.popitem()
            old = entries.get(key)
            if old is None:
                continue
            if order[-1] is old:
                order.pop()
            else:
                del order[bisect_left(order, old)]
            base, each = self._terms[key]
            seen = self._seen[key]
            entry = entries[key] = (old[0], -base - seen.sent * seen.kept * each, key)
            near = max(0, len(order) - NEAR)
            insort(order, entry, near if near and order[near] < entry else 0)

    def _entry(self, key: WorkerKey) -> _Entry | None:
        standing, seen = self._standing.get(key), self._seen.get(key)
        if standing is None or seen is None:
            return None
        seen.watchers[self] = None
        worker, weight, limits = standing
        weight = max(weight, WEIGHT_MIN)
        if worker.incarnation != seen.incarnation:
            return None
        full, each = pressure(seen.load, slots_of(worker.capacity))
        base, each = self._terms[key] = (full + each) / weight, each / weight
        busy = limits is not None and is_busy(seen.load, limits)
        return (not busy, -base - seen.sent * seen.kept * each, key)
