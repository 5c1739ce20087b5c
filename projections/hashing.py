"""The same worker for the same key, whoever asks, while workers come and go.

Each worker has points on a ring, `POINTS` at weight 1, by its name and its own weight
alone. A key looks at `PROBES` places and belongs to the point that follows one of them
most closely (multi-probe consistent hashing). So when a worker goes only its own keys
move, when one comes it takes only what it then owns, and what it has is its share of
all the points, give or take.

What its weight is above a whole number adds another `POINTS`, of which as many as it
makes are there for a key: which, is decided by key and worker, so that it is not the
luck of a few points what a light worker gets. (Of what makes less than one point there
is one only, for a part of the keys: else most points of the ring might be there for
nobody.) The others are to this key as if they were not, and so are all points of a
worker that is left out: its keys go where they would if it went.

Only if the heaviest is above `HEAVIEST` or below `LIGHTEST` are all weights scaled, by
a power of two, so that points stay few and there are some. When such a scale changes,
because the heaviest came or went, keys of the others move too.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Callable
from hashlib import blake2b
from itertools import chain
from math import frexp, ldexp, log
from struct import Struct
from typing import Final, TypeAlias

from .entities import Registration, WorkerKey
from .picking import Candidates, Standing, moves
from .readiness import SetMeaning

POINTS: Final = 16
"""Points at weight 1: the more, the more even the shares, and the larger the ring."""
PROBES: Final = 4
"""Places that a key looks at: the more, the more even the shares."""
HEAVIEST: Final = 4.0
LIGHTEST: Final = 2.0**-10
BITS: Final = 32
MASK: Final = (1 << BITS) - 1
ALL: Final = 1 << 32
"""The part of some points that is all of them."""
ARC_OWNERS: Final = 2
"""Workers to an arc of the ring, about: among few points one is found soon."""
NTH_BITS: Final = 5
"""Beside an owner's number: 0, or which point it is of those that are there in part."""
NTH: Final = (1 << NTH_BITS) - 1
TURN: Final = ALL // POINTS
ANEW: Final = 16
"""When more than one in so many moved, laying all costs less than moving each."""
MIX: Final = 0x9E3779B97F4A7C15
"""2^64 over the golden ratio: multiplying by it scatters what is alike."""
MIXED: Final = (1 << 64) - 1

LeftOut: TypeAlias = Callable[[WorkerKey], bool]
_probes_of = Struct(f"<{PROBES}I").unpack
_points_of = Struct(f"<{POINTS}I").unpack


class Ring:
    """The candidates of one wish on a ring; follows them as they change."""

    def __init__(self) -> None:
        """Begin empty."""
        self._found: Candidates | None = None
        self._owners: dict[WorkerKey, _Owner] = {}
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
        exponent = _exponent(max(meaning.weight for meaning, _ in found.sets))
        anew = len(moved.gone) + len(moved.put) > len(self._owners) / ANEW
        anew = anew or exponent != self._exponent
        for key in moved.gone:
            owner = self._owners.pop(key)
            if not anew:
                self._take_off(owner)
        for key, standing in moved.put.items():
            known = self._owners.get(key)
            owner = known or self._owners.setdefault(key, _Owner(key))
            owner.standing = standing
            if not anew:
                self._weigh(owner, is_on=known is not None)
        self._exponent = exponent
        if anew:
            self._lay()
        else:
            self._cut()

    def owner(self, key: str, left_out: LeftOut | None = None) -> Registration | None:
        """The worker of ``key``, as if those ``left_out`` were gone; None: all are.

        There must be candidates.
        """
        try:
            text = key.encode()
        except UnicodeEncodeError:
            text = key.encode(errors="surrogatepass")
        probes = _probes_of(blake2b(text, digest_size=4 * PROBES).digest())
        number = self._nearest(probes)
        nth, nearest = number & NTH, self._laid[number >> NTH_BITS]
        is_there = not nth or nearest.has(nth, _mark(probes))
        if is_there and (left_out is None or not left_out(nearest.key)):
            return nearest.standing.worker
        owner = self._nearest_there(probes, left_out)
        if owner is not None:
            return owner.standing.worker
        # All who are there are left out, or all are so light that none is there.
        return None if self._found is None else rendezvous(self._found, key, left_out)

    # ---- looking ---------------------------------------------------------------
    def _nearest(self, probes: tuple[int, ...]) -> int:
        """Whose point follows a probe most closely, there or not: its number."""
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
        return self._numbers[found]

    def _nearest_there(
        self, probes: tuple[int, ...], left_out: LeftOut | None
    ) -> _Owner | None:
        """Whose does among the points that are there, if any is."""
        points, numbers, laid = self._points, self._numbers, self._laid
        starts, shift, end = self._starts, self._shift, len(points)
        mark = _mark(probes)
        nearest, found = MASK + 1, None
        for probe in probes:
            arc = probe >> shift
            place = bisect_left(points, probe, starts[arc], starts[arc + 1])
            for at in chain(range(place, end), range(place)):
                distance = (points[at] - probe) & MASK
                if distance >= nearest:
                    break
                number = numbers[at]
                owner = laid[number >> NTH_BITS]
                nth = number & NTH
                if nth and not owner.has(nth, mark):
                    continue
                if left_out is None or not left_out(owner.key):
                    nearest, found = distance, owner
                    break
        return found

    # ---- laying ----------------------------------------------------------------
    def _lay(self) -> None:
        """Lay all points anew."""
        # Numbered by their names, so that of equal points the names decide.
        ordered = sorted(self._owners.items(), key=_name)
        self._laid, self._free = [owner for _, owner in ordered], []
        for number, owner in enumerate(self._laid):
            owner.number = number
            self._shape(owner)
        laid = [
            point << BITS | number << NTH_BITS | max(0, nth - owner.whole)
            for number, owner in enumerate(self._laid)
            for nth, point in enumerate(owner.points, 1)
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

    def _weigh(self, owner: _Owner, *, is_on: bool) -> None:
        """Have the points of one that is new, or may have another weight."""
        if is_on and owner.weight == ldexp(owner.standing.weight, -self._exponent):
            return
        if is_on:
            self._take_off(owner)
        self._shape(owner)
        self._put_on(owner)

    def _shape(self, owner: _Owner) -> None:
        owner.weigh(ldexp(owner.standing.weight, -self._exponent))

    def _put_on(self, owner: _Owner) -> None:
        number = self._free.pop() if self._free else len(self._laid)
        self._laid[number : number + 1] = [owner]
        owner.number = number
        for nth, point in enumerate(owner.points, 1):
            place = self._place(point, owner.key)
            self._points.insert(place, point)
            self._numbers.insert(place, number << NTH_BITS | max(0, nth - owner.whole))

    def _take_off(self, owner: _Owner) -> None:
        for point in owner.points:
            place = self._place(point, owner.key)
            del self._numbers[place]
            del self._points[place]
        self._free.append(owner.number)

    def _place(self, point: int, key: WorkerKey) -> int:
        """Where a point is, or would be: of equal ones the owners' names decide."""
        place = bisect_left(self._points, point)
        while (
            place < len(self._points)
            and self._points[place] == point
            and self._laid[self._numbers[place] >> NTH_BITS].key < key
        ):
            place += 1
        return place


def rendezvous(
    found: Candidates, key: str, left_out: LeftOut | None = None
) -> Registration | None:
    """The worker of ``key`` by looking at each: dear, but any weight gets its share."""
    text = key.encode(errors="surrogatepass")

    def rank(meaning: SetMeaning, worker: Registration) -> float:
        name = "/".join(worker.key).encode()
        whole = blake2b(b"%d\0%b%b" % (len(text), text, name), digest_size=8).digest()
        number = int.from_bytes(whole, "big")
        return -log((number + 1) / (2.0**64 + 1)) / meaning.weight

    ranks = (
        (rank(m, w), w.key, w)
        for m, workers in found.sets
        for w in workers
        if left_out is None or not left_out(w.key)
    )
    first = min(ranks, key=_rank, default=None)
    return None if first is None else first[2]


class _Owner:
    """A worker on the ring."""

    __slots__ = (
        "key",
        "number",
        "part",
        "points",
        "salt",
        "standing",
        "weight",
        "whole",
    )

    def __init__(self, key: WorkerKey) -> None:
        self.key = key
        first = _some_points(key, 0)
        self.salt = _mark(first)
        self.standing: Standing
        self.number = 0
        self.weight = 0.0
        self.points: tuple[int, ...] = first
        self.whole = POINTS
        """How many of the points are there for every key."""
        self.part = 0
        """Which part of the others is there for a key."""

    def weigh(self, weight: float) -> None:
        """Have the points of this weight; a lighter one has the first of them."""
        if weight == self.weight:
            return
        self.weight = weight
        times = int(weight)
        self.whole, self.part = times * POINTS, int((weight - times) * ALL)
        more = POINTS if self.part else 0
        if self.part * POINTS < ALL:
            self.part *= POINTS
            more = min(more, 1)
        count = self.whole + more
        points = self.points
        while len(points) < count:
            points += _some_points(self.key, len(points) // POINTS)
        self.points = points[:count]

    def has(self, nth: int, mark: int) -> bool:
        """Whether this point of the last ones is there for the key of this ``mark``.

        A key begins somewhere among them and has as many as the part makes, all around.
        """
        begin = ((mark ^ self.salt) * MIX & MIXED) >> 32
        return (begin + nth * TURN) % ALL < self.part


def _exponent(heaviest: float) -> int:
    """By which power of two all weights are divided; the least change that helps."""
    if LIGHTEST <= heaviest <= HEAVIEST:
        return 0
    mantissa, exponent = frexp(heaviest)
    exponent -= mantissa == 0.5  # noqa: PLR2004 - an even power of two is its own
    return exponent - 2 if heaviest > HEAVIEST else exponent


def _mark(numbers: tuple[int, ...]) -> int:
    """A key by its probes, or a worker by its points, as one number of 64 bits."""
    return numbers[0] << BITS | numbers[1]


def _some_points(key: WorkerKey, nth: int) -> tuple[int, ...]:
    """The worker's ``nth`` `POINTS` points."""
    name = "/".join(key).encode()
    digest = blake2b(name, digest_size=4 * POINTS, salt=nth.to_bytes(2, "little"))
    return _points_of(digest.digest())


def _name(named: tuple[WorkerKey, _Owner]) -> WorkerKey:
    return named[0]


def _rank(ranked: tuple[float, WorkerKey, Registration]) -> tuple[float, WorkerKey]:
    return ranked[:2]
