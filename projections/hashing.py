"""The same worker for the same key, whoever asks, while workers come and go.

Each worker has `POINTS` places on a ring, by its name alone. A key looks at `PROBES`
places and belongs to the point that follows one of them most closely (multi-probe
consistent hashing). So when a worker goes only its own keys move, when one comes it
takes only what it then owns, and neither is much more than an even share.

A worker of less weight is there for a part of the keys only, decided by key and worker:
to the others it is as if it had no points, so they stay where they are.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterator
from hashlib import blake2b
from itertools import chain
from math import frexp, ldexp, log
from struct import Struct
from typing import Final

from .entities import Registration, WorkerKey
from .picking import Candidates, Standing, moves
from .readiness import SetMeaning

POINTS: Final = 16
"""Points a worker: the more, the more even the shares, and the larger the ring."""
PROBES: Final = 4
"""Places that a key looks at: the more, the more even the shares."""
BITS: Final = 32
MASK: Final = (1 << BITS) - 1
ALL: Final = 1 << 32
"""The part of a worker that is there for every key."""
ARC_OWNERS: Final = 2
"""Workers to an arc of the ring, about: among few points one is found soon."""
MIX: Final = 0x9E3779B97F4A7C15
"""2^64 over the golden ratio: multiplying by it scatters what is alike."""
MIXED: Final = (1 << 64) - 1

_probes_of = Struct(f"<{PROBES}I").unpack
_points_of = Struct(f"<{POINTS}I").unpack


class Ring:
    """The candidates of one wish on a ring; follows them as they change."""

    def __init__(self) -> None:
        """Begin empty."""
        self._found: Candidates | None = None
        self._owners: dict[WorkerKey, _Owner] = {}
        self._partial: set[WorkerKey] = set()
        self._exponent = 0
        self._laid: list[_Owner] = []
        """Owners by their numbers; one that left may leave a gap, taken again soon."""
        self._free: list[int] = []
        self._lay()

    def match(self, found: Candidates) -> None:
        """Have exactly the workers of ``found``. Costs as much as they differ."""
        if found is self._found:
            return
        moved = moves(self._found, found)
        self._found = found
        anew = len(moved.gone) + len(moved.put) > len(self._owners) / 2
        for key in moved.gone:
            owner = self._owners.pop(key)
            self._partial.discard(key)
            if not anew:
                self._take_off(owner)
        for key, standing in moved.put.items():
            known = self._owners.get(key)
            owner = known or self._owners.setdefault(key, _Owner(key))
            owner.standing = standing
            if known is None and not anew:
                self._put_on(owner)
        self._weigh(found, moved.put)
        if anew:
            self._lay()
        else:
            self._cut()

    def owner(self, key: str, attempt: int = 0) -> Registration:
        """The worker of ``key``; with another ``attempt``, mostly another one.

        There must be candidates.
        """
        try:
            text = key.encode()
        except UnicodeEncodeError:
            text = key.encode(errors="surrogatepass")
        if attempt:
            text += b"\0%d" % attempt
        probes = _probes_of(blake2b(text, digest_size=4 * PROBES).digest())
        if not self._partial:
            return self._nearest(probes).standing.worker
        mark: int = probes[0] << BITS | probes[1]
        while True:  # half the keys at least see the heaviest: it takes few rounds
            owner = self._nearest_there(probes, mark)
            if owner is not None:
                return owner.standing.worker
            mark = (mark * MIX + 1) & MIXED

    # ---- looking ---------------------------------------------------------------
    def _nearest(self, probes: tuple[int, ...]) -> _Owner:
        """Whose point follows a probe most closely."""
        points, starts, shift = self._points, self._starts, self._shift
        end, nearest, found = len(points), MASK + 1, 0
        for probe in probes:
            arc = probe >> shift
            place = bisect_left(points, probe, starts[arc], starts[arc + 1])
            if place == end:
                place = 0
            distance = (points[place] - probe) & MASK
            if distance < nearest:
                nearest, found = distance, place
        return self._laid[self._numbers[found]]

    def _nearest_there(self, probes: tuple[int, ...], mark: int) -> _Owner | None:
        """The same of those that are there for the key of this ``mark``, if any is."""
        nearest, found = MASK + 1, None
        for probe in probes:
            for point, owner in self._from(probe):
                if owner.is_there_for(mark):
                    distance = (point - probe) & MASK
                    if distance < nearest:
                        nearest, found = distance, owner
                    break
            else:
                return None
        return found

    def _from(self, probe: int) -> Iterator[tuple[int, _Owner]]:
        """All points once around, beginning at ``probe``."""
        place, end = bisect_left(self._points, probe), len(self._points)
        for at in chain(range(place, end), range(place)):
            yield self._points[at], self._laid[self._numbers[at]]

    # ---- laying ----------------------------------------------------------------
    def _lay(self) -> None:
        """Lay all points anew."""
        # Numbered by their names, so that of equal points the names decide.
        ordered = sorted(self._owners.items(), key=_name)
        self._laid, self._free = [owner for _, owner in ordered], []
        laid = [
            point << BITS | number
            for number, owner in enumerate(self._laid)
            for point in owner.points
        ]
        laid.sort()
        self._points = array("I", [both >> BITS for both in laid])
        self._numbers = array("I", [both & MASK for both in laid])
        self._cut()

    def _cut(self) -> None:
        """Cut the ring into arcs, so that a place is looked for among few points."""
        bits = int(len(self._owners) / ARC_OWNERS).bit_length()
        self._shift = BITS - bits
        firsts = (arc << self._shift for arc in range(1 << bits))
        self._starts = array("I", (bisect_left(self._points, f) for f in firsts))
        self._starts.append(len(self._points))

    def _put_on(self, owner: _Owner) -> None:
        number = self._free.pop() if self._free else len(self._laid)
        self._laid[number : number + 1] = [owner]
        for point in owner.points:
            place = self._place(point, owner.key)
            self._points.insert(place, point)
            self._numbers.insert(place, number)

    def _take_off(self, owner: _Owner) -> None:
        for point in owner.points:
            place = self._place(point, owner.key)
            number = self._numbers.pop(place)
            del self._points[place]
        self._free.append(number)

    def _place(self, point: int, key: WorkerKey) -> int:
        """Where a point is, or would be: of equal ones the owners' names decide."""
        place = bisect_left(self._points, point)
        while (
            place < len(self._points)
            and self._points[place] == point
            and self._laid[self._numbers[place]].key < key
        ):
            place += 1
        return place

    def _weigh(self, found: Candidates, put: dict[WorkerKey, Standing]) -> None:
        """Say for which part of the keys each is there.

        The scale is a power of two, so that it stays the same when one goes.
        """
        heaviest, exponent = frexp(max(m.weight for m, _ in found.sets))
        exponent -= heaviest == 0.5  # noqa: PLR2004 - an even power of two is its own
        keys = put if exponent == self._exponent else self._owners
        self._exponent = exponent
        for key in keys:
            owner = self._owners[key]
            owner.part = int(ldexp(owner.standing.weight, -exponent) * ALL)
            if owner.part < ALL:
                self._partial.add(key)
            else:
                self._partial.discard(key)


def rendezvous(found: Candidates, key: str) -> Registration:
    """The worker of ``key`` by looking at each: dear, but it needs no ring."""
    text = key.encode(errors="surrogatepass")

    def rank(meaning: SetMeaning, worker: Registration) -> float:
        name = "/".join(worker.key).encode()
        whole = blake2b(b"%d\0%b%b" % (len(text), text, name), digest_size=8).digest()
        number = int.from_bytes(whole, "big")
        return -log((number + 1) / (2.0**64 + 1)) / meaning.weight

    ranks = ((rank(m, w), w.key, w) for m, workers in found.sets for w in workers)
    return min(ranks, key=_rank)[2]


class _Owner:
    """A worker on the ring."""

    __slots__ = ("key", "part", "points", "salt", "standing")

    def __init__(self, key: WorkerKey) -> None:
        self.key = key
        digest = blake2b("/".join(key).encode(), digest_size=4 * POINTS).digest()
        self.points: tuple[int, ...] = _points_of(digest)
        self.salt = self.points[0] << BITS | self.points[1]
        self.part = ALL
        self.standing: Standing

    def is_there_for(self, mark: int) -> bool:
        """Whether it is there for the key of this ``mark``."""
        return ((mark ^ self.salt) * MIX & MIXED) >> 32 < self.part


def _name(named: tuple[WorkerKey, _Owner]) -> WorkerKey:
    return named[0]


def _rank(ranked: tuple[float, WorkerKey, Registration]) -> tuple[float, WorkerKey]:
    return ranked[:2]
