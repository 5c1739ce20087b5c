"""Places for blocks of ports: what is left of a range while blocks are put on it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from datetime import datetime
from typing import Final

from .block import Lacking, PortRange, Room, Want
from .host_ports import HostPorts
from .picking import RandomNumbers
from .port import Resting, Unreadable

PACKED_MAX: Final = 16
TRIES_MAX: Final = 1000
"""So many blocks are tried together, so often, before they are said not to fit."""
_SOLID: Final = bytes([0]) + bytes([1]) * 255
_RESTING: Final = 1
_TAKEN: Final = 2
_BUSY: Final = 3
_UNREADABLE: Final = 4


def survey(
    known: HostPorts,
    wants: Sequence[Want],
    rested: datetime,
    shunned: Collection[int],
    busy: Collection[int] = (),
) -> Ground:
    """Every port that any of ``wants`` may have; ``rested``: released until then.

    ``busy`` are those of ``shunned`` that are in use outside the log.
    """
    first = min(want.within.first for want in wants)
    last = max(want.within.last for want in wants)
    marks = bytearray(last - first + 1)
    for port, state in known.ports.items():
        if first <= port <= last:
            if isinstance(state, Unreadable):
                marks[port - first] = _UNREADABLE
            elif not isinstance(state, Resting):
                marks[port - first] = _TAKEN
            elif state.since > rested:
                unusable = state.cause == "unusable"
                marks[port - first] = _BUSY if unusable else _RESTING
    for port in shunned:
        if first <= port <= last:
            if port not in busy:
                marks[port - first] = _TAKEN
            elif marks[port - first] < _TAKEN:
                marks[port - first] = _BUSY
    return Ground(first, marks)


class Ground:
    """A stretch of ports while blocks are being placed on it."""

    def __init__(self, first: int, marks: bytearray) -> None:
        """Begin with ``marks``, one a port from ``first`` on; 0 is free."""
        self._first = first
        self._marks = marks
        self._solid = marks.translate(_SOLID)

    def _take(self, start: int, size: int) -> None:
        """Put a block there."""
        place = start - self._first
        self._marks[place : place + size] = bytes([_TAKEN]) * size
        self._solid[place : place + size] = bytes([1]) * size

    def place(
        self, wants: Sequence[Want], chance: RandomNumbers
    ) -> list[int] | Lacking:
        """A place for each of ``wants``, one after another, wherever chance says."""
        starts: list[int] = []
        for want in wants:
            start = self._find(want, chance)
            if start is None:
                return self._lacking(want)
            self._take(start, want.size)
            starts.append(start)
        return starts

    def _find(self, want: Want, chance: RandomNumbers) -> int | None:
        """A place on the grid, else in any hole."""
        size, low = want.size, want.within.first - self._first
        end = low + len(want.within)
        cells = [
            start
            for start in range(low, end - size + 1, size)
            if self._solid.find(1, start, start + size) < 0
        ]
        if cells:
            return self._first + cells[int(chance.random() * len(cells))]
        fitting = [hole for hole in self._holes(want.within) if len(hole) >= size]
        if not fitting:
            return None
        # Two would not fit in any of them, or a cell of the grid were free.
        return fitting[int(chance.random() * len(fitting))][0]

    def pack(self, wants: Sequence[Want]) -> list[int] | None:
        """Places for all of ``wants`` at once, found by trying; None: found none.

        Takes the left end of a hole each time: if all have one range, and the tries
        suffice, nothing that fits is missed.
        """
        if not 1 < len(wants) <= PACKED_MAX:
            return None
        return self._pack(wants, iter(range(TRIES_MAX)))

    def _pack(self, wants: Sequence[Want], tries: Iterator[int]) -> list[int] | None:
        if not wants:
            return []
        size = wants[0].size
        for hole in self._holes(wants[0].within):
            if len(hole) < size:
                continue
            if next(tries, None) is None:
                return None
            place = hole[0] - self._first
            self._solid[place : place + size] = bytes([1]) * size
            others = self._pack(wants[1:], tries)
            if others is not None:
                return [hole[0], *others]
            self._solid[place : place + size] = bytes(size)
        return None

    def room(self, within: PortRange) -> Room:
        """How much there is in ``within``."""
        low = within.first - self._first
        end = low + len(within)
        return Room(
            free=self._marks.count(0, low, end),
            largest_hole=max(map(len, self._holes(within)), default=0),
            resting=self._marks.count(_RESTING, low, end)
            + self._marks.count(_BUSY, low, end),
        )

    def _lacking(self, want: Want) -> Lacking:
        """Why there is no place for ``want``."""
        there = self.room(want.within)
        low = want.within.first - self._first
        end = low + len(want.within)
        busy = self._marks.count(_BUSY, low, end)
        return Lacking(
            name=want.name,
            within=want.within,
            wanted=want.size,
            free=there.free,
            largest_hole=there.largest_hole,
            resting=there.resting - busy,
            busy=busy,
            unreadable=self._marks.count(_UNREADABLE, low, end),
        )

    def _holes(self, within: PortRange) -> Iterator[range]:
        """The stretches of free ports, from the lowest on."""
        low = within.first - self._first
        end = low + len(within)
        start = self._solid.find(0, low, end)
        while start >= 0:
            stop = self._solid.find(1, start, end)
            stop = end if stop < 0 else stop
            yield range(self._first + start, self._first + stop)
            start = self._solid.find(0, stop, end)
