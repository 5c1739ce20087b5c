"""The plans made by hand that lead to sizes: a view stream that is full, many chunks.

Workers with large labels say so much that the view stream reaches its limit of bytes
every few seconds. Snapshots have a dozen chunks, because chunks are small here.
"""

from __future__ import annotations

from random import Random
from typing import Final

from .plan import (
    LABEL_BYTES,
    BlackHole,
    Crash,
    Cut,
    Enter,
    Freeze,
    LoseAnswers,
    NoResponders,
    Pace,
    Slow,
    SpoilSnapshot,
    Step,
    TrimView,
    Wait,
)
from .special_steps import CORE, fleet, talk

BIG: Final = 6
"""So many workers have large labels, in a fleet of twice as many."""
FULL: Final = Pace(view_max_bytes=1 << 20, snapshot_every=1000)
"""The smallest view stream that there can be, and snapshots when it is half full."""
CHUNKS: Final = Pace(snapshot_every=12, chunk_bytes=80)


def large_fleet() -> list[Step]:
    """A fleet whose first workers are large."""
    large = [
        Enter(
            at_s=3.0 + 0.1 * number,
            process=f"w{number:02}",
            worker_id=f"w{number:02}",
            namespace="prod",
            model="llama",
            label_bytes=LABEL_BYTES,
        )
        for number in range(1, BIG + 1)
    ]
    return [*large, *fleet(2 * BIG, at_s=4.0)[BIG:]]


def large_talk(rng: Random, begin: float, end: float, each: float) -> list[Step]:
    """As `talk`, of the large ones."""
    return talk(rng, BIG, begin, end, each)


def full_view(variant: int, rng: Random) -> list[Step]:
    """The view stream outruns routers that are slow, asleep, away, or begin anew."""
    steps: list[Step] = [
        Slow(at_s=12.0, process="r1", for_s=30.0, by_s=0.3 + 0.3 * variant),
        Freeze(at_s=14.0 + rng.random(), process="r3", for_s=20.0),
    ]
    for round_ in range(3):
        at_s = 15.0 + 11.0 * round_ + rng.random()
        router = CORE[2 + (round_ + variant) % 3]
        steps += [
            Crash(at_s=at_s, process="r2", restart_s=(0.5, 4.0, 9.0)[variant]),
            Cut(at_s=at_s + 3.0, process=router, for_s=4.0 + 2.0 * rng.random()),
            Wait(at_s=at_s + 5.0, kind="synced", router=router),
            Wait(at_s=at_s + 5.5, kind="wait"),
        ]
    return [*large_fleet(), *large_talk(rng, 10.0, 45.0, 0.3), *steps]


def full_view_leaders(variant: int, rng: Random) -> list[Step]:
    """The view stream is trimmed while leaders change, and snapshots are not written.

    Projectors are killed before half of it is full, so that whoever follows them has
    to know how much was published since the last snapshot.
    """
    steps: list[Step] = []
    for round_ in range(4):
        at_s = 14.0 + 9.0 * round_ + rng.random()
        process = ("p1", "p2")[(round_ + variant) % 2]
        steps += [
            Crash(at_s=at_s, process="p1", restart_s=1.0 + variant),
            Crash(at_s=at_s + 2.5 * (variant % 2), process="p2", restart_s=0.5),
            LoseAnswers(at_s=at_s + 4.0, process=process, count=2),
            BlackHole(at_s=at_s + 5.5, process=process, for_s=2.5),
            Crash(at_s=at_s + 5.0, process="r2", restart_s=1.0),
        ]
    return [*large_fleet(), *large_talk(rng, 10.0, 48.0, 0.3), *steps]


def many_chunks(variant: int, rng: Random) -> list[Step]:
    """Leaders die amid the chunks of a snapshot; others write theirs meanwhile."""
    steps: list[Step] = [
        Slow(at_s=10.0, process=p, for_s=52.0, by_s=0.1) for p in ("p1", "p2")
    ]
    for round_ in range(5):
        at_s = 13.0 + 9.0 * round_ + 0.4 * variant + rng.random()
        for process in ("p1", "p2"):
            crash = Crash(at_s=at_s, process=process, restart_s=0.5)
            away = BlackHole(at_s=at_s, process=process, for_s=5.0 + rng.random())
            steps.append((crash, away)[(round_ + (process == "p2")) % 2])
        router = ("r1", "r3")[round_ % 2]
        steps.append(Crash(at_s=at_s + 0.3, process=router, restart_s=0.2))
    return [*fleet(8), *talk(rng, 8, 10.0, 60.0, 0.4), *steps]


def chunks_gone(variant: int, rng: Random) -> list[Step]:
    """Chunks are lost or damaged: first, middle and last ones; readers come at once.

    In some variants the view stream has no beginning, so that nothing else will do;
    in one no projector starts, so that one that leads has to see it.
    """
    steps: list[Step] = [TrimView(at_s=13.0, keep=4)] if variant else []
    for round_ in range(4):
        at_s = 15.0 + 9.0 * round_ + rng.random()
        how = ("missing", "corrupt")[(round_ + variant) % 2]
        chunk = (0, 3, -2)[round_ % 3]
        steps += [
            SpoilSnapshot(at_s=at_s, how=how, chunk=chunk),
            Crash(at_s=at_s + 0.01, process="r1", restart_s=0.1),
            Crash(at_s=at_s + 0.01, process="r2", restart_s=0.1),
            Cut(at_s=at_s + 0.02, process="r3", for_s=3.0),
        ]
        if variant < 2:
            steps += [
                Crash(at_s=at_s + 0.02, process="p1", restart_s=0.2),
                Crash(at_s=at_s + 1.5 * variant, process="p2", restart_s=0.2),
            ]
    each_s = (0.4, 0.4, 1.1)[variant]
    return [*fleet(8), *talk(rng, 8, 10.0, 52.0, each_s), *steps]


def chunks_replaced(variant: int, rng: Random) -> list[Step]:
    """Newer snapshots take the place of one that a router is slow to read."""
    steps: list[Step] = []
    for round_ in range(2):
        at_s = 16.0 + 18.0 * round_ + rng.random()
        for process in ("r1", "r3"):
            by_s = 0.9 + 0.3 * variant + 0.2 * rng.random()
            steps += [
                Slow(at_s=at_s, process=process, for_s=13.0, by_s=by_s),
                Crash(at_s=at_s + 0.1, process=process, restart_s=0.2),
            ]
        steps.append(NoResponders(at_s=at_s + 5.5, for_s=0.4))
    if variant == 1:
        steps.append(TrimView(at_s=15.0, keep=4))
    return [*fleet(8), *talk(rng, 8, 10.0, 46.0, 0.12), *steps]


PLANS: Final = {
    "full-view": full_view,
    "full-view-leaders": full_view_leaders,
    "many-chunks": many_chunks,
    "chunks-gone": chunks_gone,
    "chunks-replaced": chunks_replaced,
}
PACES: Final = {
    "full-view": FULL,
    "full-view-leaders": FULL,
    "many-chunks": CHUNKS,
    "chunks-gone": CHUNKS,
    "chunks-replaced": CHUNKS,
}
