"""The plans made by hand that lead to judges: deaf ones, slow ones, ones overtaken."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Final

from .plan import BlackHole, Claim, Crash, Freeze, Noise, Operate, Pace, Say, Slow, Step
from .special_steps import CORE, fleet


def _deaf_ears(variant: int, rng: Random) -> list[Step]:
    """Judges hear nothing for longer than some leases, and can append all the while."""
    steps: list[Step] = [
        Noise(
            at_s=30.0 + 25.0 * round_ + rng.random(),
            process=process,
            for_s=8.5 + 0.5 * variant,
            lose=1.0,
        )
        for round_ in range(4)
        for process in ("p1", "p2")
    ]
    few = fleet(4, ttl_s=5.0)  # too few for a guard to hold them
    return [*few, *fleet(10, ttl_s=30.0)[4:], *steps]


def _held_ones_leave(variant: int, rng: Random) -> list[Step]:
    """Those who are held say goodbye, or die, and come back."""
    steps: list[Step] = []
    for number in range(1, 5):
        name, at_s = f"w{number:02}", 15.0 + 3.0 * number + rng.random()
        hold = Operate(at_s=at_s, verb="hold", namespace="prod", worker_id=name)
        leaves_s = at_s + 4.0 + variant
        steps.append(hold)
        if number % 2:
            steps.append(Say(at_s=leaves_s, process=name, verb="leave"))
        else:
            steps.append(Crash(at_s=leaves_s, process=name, restart_s=15.0))
    return [*fleet(6, ttl_s=5.0), *steps]


def _overtaken(variant: int, rng: Random) -> list[Step]:
    """Registrations are held up, and arrive while their lives are being expired."""
    steps: list[Step] = [Slow(at_s=4.0, process=p, for_s=95.0, by_s=0.5) for p in CORE]
    for number in range(1, 21):
        process, at_s = f"c{number}", 10.0 + 2.9 * number
        for_s = 14.0 + 0.2 * number + 0.07 * variant + 0.05 * rng.random()
        steps += [
            Claim(
                at_s=at_s,
                process=process,
                host="10.0.0.1",
                port=20000 + 2 * number,
                size=1,
                hold_s=10.0,
            ),
            Slow(at_s=at_s - 0.05, process=process, for_s=40.0, by_s=0.4),
            BlackHole(at_s=at_s + 8.55, process=process, for_s=for_s),
        ]
    return [*fleet(8, ttl_s=30.0), *steps]


def _too_many_at_once(variant: int, rng: Random) -> list[Step]:
    """More expire than can at once; their judge stops while some wait for their turn.

    When it goes on, all of them have long been back.
    """
    steps: list[Step] = [Slow(at_s=20.0, process="p1", for_s=190.0, by_s=1.0)]
    for round_ in range(5):
        at_s = 40.0 + 35.0 * round_ + rng.random()
        frozen_at_s = at_s + 8.0 + 0.5 * round_ + 0.25 * variant
        steps += [
            *(
                BlackHole(
                    at_s=at_s, process=f"w{number:02}", for_s=frozen_at_s - at_s + 0.1
                )
                for number in range(1, 20)
            ),
            Freeze(at_s=frozen_at_s, process="p1", for_s=8.3),
        ]
    alone = Crash(at_s=15.0, process="p2", restart_s=200.0)
    return [*fleet(19, ttl_s=5.0), *fleet(40, ttl_s=60.0)[19:], alone, *steps]


PLANS: Final[dict[str, Callable[[int, Random], list[Step]]]] = {
    "deaf-ears": _deaf_ears,
    "held-ones-leave": _held_ones_leave,
    "overtaken": _overtaken,
    "too-many-at-once": _too_many_at_once,
}
PACES: Final = {
    "deaf-ears": Pace(factor=6.0),
    "overtaken": Pace(factor=3.0),
    "too-many-at-once": Pace(factor=6.0),
}
