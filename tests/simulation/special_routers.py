"""The plans made by hand that lead to steps back: of routers, snapshots, leads."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Final

from .plan import (
    BrokerRestart,
    Freeze,
    Pace,
    Plant,
    Step,
)
from .special_steps import fleet, talk


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
            Plant(at_s=at_s + 4.5, where="false_head"),
        ]
    return [*fleet(8), *steps]


PLANS: Final[dict[str, Callable[[int, Random], list[Step]]]] = {
    "false-heads": _false_heads,
}
PACES: Final = {
    "false-heads": Pace(snapshot_every=1000),
}
