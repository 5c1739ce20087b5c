"""The toy world with a mutant that makes every run endless, and with some around it."""

from __future__ import annotations

import sys

from tests.simulation import toy_world
from tests.simulation.outcome import Outcome
from tests.simulation.plan import Plan
from tests.simulation.toy_world import FAULTS, ToyMutant, plan_of

__all__ = ["MUTANTS", "plan_of", "run"]

SPINNING = "it spins"


def run(plan: Plan, *, trace: bool = False) -> Outcome:
    """As in the toy world, but for that mutant, of which it says that it is in."""
    if "endless" in FAULTS:
        sys.stderr.write(f"{SPINNING}\n")
        sys.stderr.flush()
        while True:
            pass
    return toy_world.run(plan, trace=trace)


MUTANTS = (
    ToyMutant("deaf", "a word from w03 is not heard"),
    ToyMutant("harmless", "nothing comes of it"),
    ToyMutant("endless", "nothing ever comes of it"),
    ToyMutant("late", "its turn never comes"),
)
