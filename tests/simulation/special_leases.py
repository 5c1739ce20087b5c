"""The plans made by hand that lead to leases, expiries and claims."""

from __future__ import annotations

from random import Random

from .plan import (
    BlackHole,
    BrokerRestart,
    Claim,
    Crash,
    Cut,
    Enter,
    Freeze,
    LoseAnswers,
    NodeStall,
    Slow,
    Step,
)
from .special_steps import CORE, fleet


def stopped_server(variant: int, rng: Random) -> list[Step]:
    """One server of two stops for as long as a short lease, again and again."""
    steps: list[Step] = []
    for round_ in range(6):
        at_s = 70.0 + 45.0 * round_ + variant + rng.random()
        steps += [
            BrokerRestart(at_s=at_s - 20.0, down_s=0.1),
            NodeStall(at_s=at_s, node=("n1", "n2")[round_ % 2], for_s=15.0),
        ]
    return [*fleet(12, ttl_s=5.0), *steps]


def mass_death(variant: int, rng: Random) -> list[Step]:
    """Most die for good, at once."""
    return [
        *fleet(12, ttl_s=5.0),
        *(
            Crash(at_s=40.0 + rng.random(), process=f"w{number:02}", restart_s=None)
            for number in range(1, 9 + variant)
        ),
    ]


def two_of_one_name(variant: int, rng: Random) -> list[Step]:
    """A second process has the name of the first, and then dies for good."""
    second = Enter(
        at_s=20.0 + variant,
        process="w02",
        worker_id="w01",
        namespace="prod",
        model="llama",
        lease_ttl_s=5.0,
    )
    died_at_s = 20.6 + variant + rng.random()
    return [
        *fleet(1, ttl_s=5.0),
        second,
        Crash(at_s=died_at_s, process="w02", restart_s=None),
    ]


def claim_expire_register(variant: int, rng: Random) -> list[Step]:
    """Registrations are held up for about as long as their claims have a lease."""
    steps: list[Step] = [Slow(at_s=4.0, process=p, for_s=70.0, by_s=0.5) for p in CORE]
    for number, held_s in enumerate((19.0, 15.2, 16.0, 16.8), 1):
        process, at_s = f"c{number}", 10.0 + 0.1 * number
        for_s = held_s + 0.3 * variant + 0.1 * rng.random()
        steps += [
            Claim(
                at_s=at_s,
                process=process,
                host="10.0.0.1",
                port=20000 + 2 * number,
                size=1,
                hold_s=10.0,
            ),
            Slow(at_s=at_s - 0.05, process=process, for_s=60.0, by_s=0.4),
            BlackHole(at_s=at_s + 7.65, process=process, for_s=for_s),
        ]
    return steps


def claim_expire_repeat(variant: int, rng: Random) -> list[Step]:
    """The answer to a claim is lost; it is expired before it is asked for again."""
    return [
        Claim(
            at_s=10.0,
            process="c1",
            host="10.0.0.1",
            port=20001,
            size=1 + variant,
            hold_s=10.0,
            register=False,
        ),
        Slow(at_s=9.95, process="c1", for_s=40.0, by_s=0.3),
        LoseAnswers(at_s=10.5, process="c1"),
        Freeze(at_s=14.5 + 0.6 * variant, process="c1", for_s=12.0 + rng.random()),
    ]


def robbed(variant: int, rng: Random) -> list[Step]:
    """Who has ports stops for long; others want them meanwhile, and when it is back.

    By then another holds them, or has just let them go, or nobody came.
    """
    again_s = (20.0, 12.0 + rng.random(), 0.0)[variant]
    wanting = [
        Claim(
            at_s=19.0 + 0.5 * number,
            process=f"c{2 + number % 3}",
            host="10.0.0.1",
            port=20000 + number % 2,
            size=4,
            hold_s=again_s,
            register=number % 3 > 0,
        )
        for number in range(30 if again_s else 0)
    ]
    first = Claim(
        at_s=10.0, process="c1", host="10.0.0.1", port=20000, size=4, hold_s=60.0
    )
    return [*fleet(4), first, *wanting, Freeze(at_s=14.0, process="c1", for_s=26.5)]


def slow_judge(variant: int, rng: Random) -> list[Step]:
    """A slow leader decides on many, stops, and goes on when they are back."""
    at_s = 71.0 + 0.5 * variant
    names = [f"w{number:02}" for number in range(1, 25)]
    return [
        *fleet(24, ttl_s=5.0),
        Crash(at_s=20.0, process="p2", restart_s=100.0),
        Slow(at_s=62.0, process="p1", for_s=30.0, by_s=1.0),
        *(BlackHole(at_s=30.0, process=name, for_s=at_s - 29.9) for name in names),
        Freeze(at_s=at_s, process="p1", for_s=7.8 + 0.1 * rng.random()),
    ]


def deaf_judge(variant: int, rng: Random) -> list[Step]:
    """A leader hears nothing for longer than others' leases, shorter than its own."""
    steps: list[Step] = [
        Cut(
            at_s=30.0 + 20.0 * round_ + rng.random(),
            process=("p1", "p2")[round_ % 2],
            for_s=9.5 - 0.5 * variant,
        )
        for round_ in range(4)
    ]
    few = fleet(4, ttl_s=5.0)  # too few for a guard to hold them
    return [*few, *fleet(10, ttl_s=30.0)[4:], *steps]
