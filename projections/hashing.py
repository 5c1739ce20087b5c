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
from itertools import islice
from math import frexp, ldexp, log
from struct import Struct
from typing import Final

from .entities import Registration, WorkerKey
from .picking import Candidates, Standing, moves
from .readiness import SetMeaning

POINTS: Final = 16
"""Points a worker: the more, the more even the shares."""
PROBES: Final = 4
"""Places that a key looks at: the more, the more even the shares."""
BITS: Final = 64
MASK: Final = (1 << BITS) - 1
ALL: Final = 1 << 32
"""The part of a worker that is there for every key."""
ROUNDS: Final = 64
"""So often a key for which nobody is there looks again."""
ARC_OWNERS: Final = 4
"""Workers to an arc of the ring, about: few points are cheap to search and alter."""
MIX: Final = 0x9E3779B97F4A7C15
"""2^64 over the golden ratio: multiplying by it scatters what is alike."""

_probes_of = Struct(f"<{PROBES}Q").unpack
_half_of_points = Struct(f"<{POINTS // 2}Q").unpack


class Ring:
    """The candidates of one wish on a ring; follows them as they change."""

    def __init__(self) -> None:
        """Begin empty."""
        self._found: Candidates | None = None
        self._owners: dict[WorkerKey, _Owner] = {}
        self._partial: set[WorkerKey] = set()
        self._exponent = 0
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
        if anew or self._arc_bits != _arc_bits(len(self._owners)):
            self._lay()

    def owner(self, key: str, attempt: int = 0) -> Registration:
        """The worker of ``key``; with another ``attempt``, mostly another one.

        There must be candidates.
        """
        text = key.encode(errors="surrogatepass")
        if attempt:
            text += b"\0%d" % attempt
        probes = _probes_of(blake2b(text, digest_size=8 * PROBES).digest())
        mark: int = probes[0]
        for _ in range(ROUNDS if self._partial else 0):
            owner = self._nearest_there(probes, mark)
            if owner is not None:
                return owner.standing.worker
            mark = (mark * MIX + 1) & MASK
        return self._nearest(probes).standing.worker

    # ---- looking ---------------------------------------------------------------
    def _nearest(self, probes: tuple[int, ...]) -> _Owner:
        """Whose point follows a probe most closely."""
        shift, arcs = BITS - self._arc_bits, self._arcs
        nearest, at_arc, at_place = MASK + 1, 0, 0
        for probe in probes:
            arc = probe >> shift
            points = arcs[arc]
            place = bisect_left(points, probe)
            if place == len(points):
                arc, place = self._next_point(arc), 0
                points = arcs[arc]
            distance = (points[place] - probe) & MASK
            if distance < nearest:
                nearest, at_arc, at_place = distance, arc, place
        return self._arc_owners[at_arc][at_place]

    def _next_point(self, arc: int) -> int:
        """The arc that has the first point after this ``arc``."""
        while True:
            arc = (arc + 1) % len(self._arcs)
            if self._arcs[arc]:
                return arc

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
        arc = probe >> BITS - self._arc_bits
        place = bisect_left(self._arcs[arc], probe)
        yield from islice(
            zip(self._arcs[arc], self._arc_owners[arc], strict=True), place, None
        )
        for step in range(1, len(self._arcs)):
            here = (arc + step) % len(self._arcs)
            yield from zip(self._arcs[here], self._arc_owners[here], strict=True)
        yield from islice(
            zip(self._arcs[arc], self._arc_owners[arc], strict=True), place
        )

    # ---- laying ----------------------------------------------------------------
    def _lay(self) -> None:
        """Lay all points anew, in as many arcs as suit their number."""
        self._arc_bits = _arc_bits(len(self._owners))
        self._arcs = [array("Q") for _ in range(1 << self._arc_bits)]
        self._arc_owners: list[list[_Owner]] = [[] for _ in self._arcs]
        shift = BITS - self._arc_bits
        laid = [(p, owner) for owner in self._owners.values() for p in owner.points]
        laid.sort(key=_point)
        for point, owner in laid:
            self._arcs[point >> shift].append(point)
            self._arc_owners[point >> shift].append(owner)

    def _put_on(self, owner: _Owner) -> None:
        for point in owner.points:
            arc = point >> (BITS - self._arc_bits)
            place = bisect_left(self._arcs[arc], point)
            self._arcs[arc].insert(place, point)
            self._arc_owners[arc].insert(place, owner)

    def _take_off(self, owner: _Owner) -> None:
        for point in owner.points:
            arc = point >> (BITS - self._arc_bits)
            place = bisect_left(self._arcs[arc], point)
            del self._arcs[arc][place]
            del self._arc_owners[arc][place]

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
        return -log((number + 1) / (MASK + 2)) / meaning.weight

    ranks = ((rank(m, w), w.key, w) for m, workers in found.sets for w in workers)
    return min(ranks, key=_rank)[2]


class _Owner:
    """A worker on the ring."""

    __slots__ = ("part", "points", "standing")

    def __init__(self, key: WorkerKey) -> None:
        name = f"{key[0]}/{key[1]}".encode()
        halves = (blake2b(name, person=half).digest() for half in (b"first", b"second"))
        self.points: tuple[int, ...] = sum(map(_half_of_points, halves), ())
        self.part = ALL
        self.standing: Standing

    def is_there_for(self, mark: int) -> bool:
        """Whether it is there for the key of this ``mark``."""
        return ((mark ^ self.points[0]) * MIX & MASK) >> 32 < self.part


def _arc_bits(owners: int) -> int:
    """The ring is cut into two to the power of this."""
    return (owners // ARC_OWNERS).bit_length()


def _point(laid: tuple[int, _Owner]) -> int:
    return laid[0]


def _rank(ranked: tuple[float, WorkerKey, Registration]) -> tuple[float, WorkerKey]:
    return ranked[:2]
