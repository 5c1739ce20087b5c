"""Plans made by hand: the moments that chance seldom brings about.

Each leads to one seam, and holds as the product is; `mutants` runs them beside the
seeds. They come in variants, which differ in times and delays. A special plan has a
number as a seed has, from `SPECIAL_FROM` on, so that all commands take it.
"""

from __future__ import annotations

from random import Random
from typing import Final

from .plan import Pace, Plan
from .planning import plan_of as plan_of_seed
from .running import BadInputError
from .special_plans import PACES, PLANS

SPECIAL_FROM: Final = 10**12
VARIANTS: Final = 3
SEEDS_END: Final = SPECIAL_FROM + VARIANTS * len(PLANS)
"""No plan has this number, nor any from here on."""
AFTER_S: Final = 110.0
"""So long after the last fault all must be well: holds and leases, and some more."""


def plan_of(seed: int) -> Plan:
    """The plan of a seed, or the special one of that number."""
    if seed < SPECIAL_FROM:
        return plan_of_seed(seed)
    if seed >= SEEDS_END:
        message = (
            f"there is no seed {seed}: the special plans are {SPECIAL_FROM} "
            f"to {SEEDS_END - 1}"
        )
        raise BadInputError(message)
    kind, variant = divmod(seed - SPECIAL_FROM, VARIANTS)
    name, steps_of = list(PLANS.items())[kind]
    pace = PACES.get(name, Pace())
    steps = steps_of(variant, Random(f"{name}/{variant}"))
    faults_end_s = max(step.at_s + getattr(step, "for_s", 0.0) for step in steps) + 1.0
    return Plan(
        seed=seed,
        steps=tuple(sorted(steps, key=lambda step: step.at_s)),
        faults_end_s=faults_end_s,
        end_s=faults_end_s + AFTER_S,
        pace=pace,
    )


def numbers_of(*names: str) -> tuple[int, ...]:
    """The numbers of all variants of these plans; of none named: of all."""
    chosen = names or tuple(PLANS)
    return tuple(
        SPECIAL_FROM + VARIANTS * list(PLANS).index(name) + variant
        for name in chosen
        for variant in range(VARIANTS)
    )


def name_of(seed: int) -> str:
    """What the special plan of this number is called."""
    kind, variant = divmod(seed - SPECIAL_FROM, VARIANTS)
    return f"{list(PLANS)[kind]}/{variant}"
