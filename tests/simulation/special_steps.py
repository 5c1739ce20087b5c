"""What plans made by hand have in common: a fleet, and words."""

from __future__ import annotations

from random import Random
from typing import Final

from .plan import (
    Enter,
    Say,
    Step,
)

CORE: Final = ("p1", "p2", "r1", "r2", "r3")


def fleet(count: int, *, at_s: float = 3.0, ttl_s: float = 10.0) -> list[Step]:
    return [
        Enter(
            at_s=at_s + 0.1 * number,
            process=f"w{number:02}",
            worker_id=f"w{number:02}",
            namespace="prod",
            model="llama",
            lease_ttl_s=ttl_s,
        )
        for number in range(1, count + 1)
    ]


def talk(rng: Random, count: int, begin: float, end: float, each: float) -> list[Step]:
    """Workers say something new, one after the other."""
    steps: list[Step] = []
    at_s = begin
    while at_s < end:
        process = f"w{1 + len(steps) % count:02}"
        port = str(9000 + len(steps) % 7)
        steps.append(Say(at_s=at_s, process=process, verb="update", value=port))
        at_s += each * rng.uniform(0.8, 1.2)
    return steps
