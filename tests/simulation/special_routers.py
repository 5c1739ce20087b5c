"""The plans made by hand that lead to steps back: of routers, snapshots, leads."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Final

from .plan import (
    BlackHole,
    BrokerRestart,
    Crash,
    Cut,
    Freeze,
    Noise,
    Pace,
    Plant,
    Slow,
    Step,
)
from .special_steps import CORE, fleet, talk


def _false_heads(variant: int, rng: Random) -> list[Step]:
    """A stranger's head makes routers look anew while the view stream has no tail.

    Its leaders are stopped: they refill it afterwards, with the same deltas.
    """
    steps: list[Step] = []
    for round_ in range(3):
        at_s = 20.0 + 20.0 * round_ + rng.random()
        steps += [
            *talk(rng, 8, at_s - 8.0, at_s - 2.0, 0.4),
            *(Freeze(at_s=at_s, process=p, for_s=5.0) for p in ("p1", "p2")),
            BrokerRestart(at_s=at_s + 0.1, down_s=0.2, lose_view=3 + 2 * variant),
            Plant(at_s=at_s + 1.5, where="false_head"),
        ]
    return [*fleet(8), *steps]


def _over_foreign(variant: int, rng: Random) -> list[Step]:
    """A router reads foreign messages while heads tell of later revisions.

    The leader is slow: it has not begun a new epoch yet.
    """
    steps: list[Step] = [
        Slow(at_s=8.0, process=p, for_s=90.0, by_s=0.6) for p in ("p1", "p2")
    ]
    for round_ in range(4):
        at_s = 20.0 + 20.0 * round_ + rng.random()
        steps += talk(rng, 4, at_s - 9.0, at_s - 5.0, 0.5)
        steps.append(Plant(at_s=at_s, where="view"))
        steps += [
            Plant(at_s=at_s - 2.0 + 0.1 * number, where="stale") for number in range(30)
        ]
        for router in ("r2", "r3"):
            cut_s = at_s - 0.4 + 0.1 * round_ + 0.03 * variant
            steps += [
                Slow(at_s=at_s - 1.0, process=router, for_s=5.0, by_s=0.15),
                Cut(at_s=cut_s, process=router, for_s=0.1),
            ]
    return [*fleet(4), *steps]


def _late_epochs(variant: int, rng: Random) -> list[Step]:
    """Epochs begin one after the other over one fleet, and are heard of in disorder."""
    steps: list[Step] = [
        Noise(at_s=10.0, process=router, for_s=60.0, double=0.5, late_s=1.0 + variant)
        for router in CORE[2:]
    ]
    steps += [
        Plant(at_s=12.0 + 0.4 * number + 0.1 * rng.random(), where="view")
        for number in range(60)
    ]
    return [*fleet(4), *talk(rng, 4, 20.0, 50.0, 7.0), *steps]


def _never_level(variant: int, rng: Random) -> list[Step]:
    """A router that catches up all the time saves its file, and is killed."""
    steps: list[Step] = [
        Noise(at_s=15.0, process="r2", for_s=90.0, lose=0.5),
        Slow(at_s=15.0, process="r2", for_s=90.0, by_s=0.5 + 0.2 * variant),
        *(
            Crash(at_s=27.0 + 12.3 * n + rng.random(), process="r2", restart_s=0.5)
            for n in range(6)
        ),
    ]
    return [*fleet(8), *talk(rng, 8, 10.0, 105.0, 0.3), *steps]


# ---- projectors ----------------------------------------------------------------
def _late_pointers(variant: int, rng: Random) -> list[Step]:
    """A leader is away while it writes a snapshot; the next one writes a newer one."""
    steps: list[Step] = []
    for round_ in range(6):
        at_s = 15.0 + 15.0 * round_ + rng.random()
        process = ("p1", "p2")[round_ % 2]
        steps += [
            Slow(at_s=at_s - 7.0, process=process, for_s=7.0, by_s=0.4),
            BlackHole(at_s=at_s, process=process, for_s=3.3 + 0.2 * variant),
        ]
    return [*fleet(8), *talk(rng, 8, 10.0, 105.0, 0.1), *steps]


def _foreign_amid(variant: int, rng: Random) -> list[Step]:
    """Foreign messages get in between the deltas that a slow leader publishes."""
    steps: list[Step] = [
        Slow(at_s=8.0, process=p, for_s=50.0, by_s=0.2 + 0.1 * variant)
        for p in ("p1", "p2")
    ]
    steps += [
        Plant(at_s=10.0 + 3.0 * n + rng.random(), where="view") for n in range(15)
    ]
    return [*fleet(8), *talk(rng, 8, 9.0, 56.0, 0.1), *steps]


def _began_and_gone(variant: int, rng: Random) -> list[Step]:
    """Leaders begin epochs below what others have folded, and are killed."""
    steps: list[Step] = [
        Slow(at_s=8.0, process=p, for_s=90.0, by_s=0.3) for p in ("p1", "p2")
    ]
    for round_ in range(6):
        at_s = 15.0 + 13.0 * round_ + rng.random()
        process = ("p1", "p2")[round_ % 2]
        killed_at_s = at_s + 2.1 + 0.07 * round_ + 0.03 * variant
        steps += [
            Plant(at_s=at_s, where="view"),
            Crash(at_s=killed_at_s, process=process, restart_s=3.0),
        ]
    return [*fleet(8), *talk(rng, 8, 10.0, 95.0, 0.2), *steps]


PLANS: Final[dict[str, Callable[[int, Random], list[Step]]]] = {
    "false-heads": _false_heads,
    "over-foreign": _over_foreign,
    "late-epochs": _late_epochs,
    "never-level": _never_level,
    "late-pointers": _late_pointers,
    "foreign-amid": _foreign_amid,
    "began-and-gone": _began_and_gone,
}
PACES: Final = {
    "false-heads": Pace(snapshot_every=1000),
    "never-level": Pace(factor=3.0),
    "late-pointers": Pace(snapshot_every=5, factor=0.5),
    "foreign-amid": Pace(publish_batch_max=1),
    "began-and-gone": Pace(publish_batch_max=1),
}
