"""The seeds that once failed: ``seeds.txt``, one a line, with what each found.

A line is ``SEED  # what it found``, or ``SEED keep=0,4,9  # what`` for the steps
that were enough. What a seed means changes with the planner; a plan that must stay
as it was is written out instead: ``plan=NAME.json  # what``, a file in ``plans/``.
"""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path
from typing import Final

import msgspec

from events import InvalidIdentityError
from tests.simulation.plan import (
    PLAN_DECODER,
    Claim,
    ClockJump,
    Enter,
    Plan,
    Say,
    Step,
    Wait,
)
from tests.simulation.running import BadInputError, PlanOf, subset
from tests.simulation.workers import spec_of

ROOM: Final = Path(__file__).parent
SEEDS_FILE: Final = ROOM / "seeds.txt"
PLANS: Final = ROOM / "plans"
_LINE: Final = re.compile(
    r"(?:(?P<seed>\d+)(?:\s+keep=(?P<keep>\S*))?|plan=(?P<plan>[\w.-]+\.json))"
    r"\s+#\s*(?P<what>\S.*)"
)

_WORKER: Final = re.compile(r"w\d+")
_CLAIMANT: Final = re.compile(r"c\d+")
_ROUTER: Final = re.compile(r"r[123]|")
_PROCESS: Final = re.compile(r"w\d+|c\d+|p[12]|r[123]|op")
_MACHINE: Final = re.compile(rf"{_PROCESS.pattern}|broker")


class KeptSeed(msgspec.Struct, frozen=True, kw_only=True):
    """A seed, or the plan in a file, that once failed."""

    seed: int = 0
    keep: tuple[int, ...] | None = None
    plan: str = ""
    what: str = ""


def kept_seeds(text: str) -> tuple[KeptSeed, ...]:
    """What the lines say. A line that says nothing sensible is a `BadInputError`."""
    kept = []
    for number, raw in enumerate(text.splitlines(), start=1):
        line = raw.strip()
        if not line or line.startswith("#"):
            continue
        match = _LINE.fullmatch(line)
        if match is None:
            message = f"seeds.txt, line {number}: not 'SEED [keep=…]  # what': {line}"
            raise BadInputError(message)
        keep = match["keep"]
        kept.append(
            KeptSeed(
                seed=int(match["seed"] or 0),
                keep=None if keep is None else indexes(keep),
                plan=match["plan"] or "",
                what=match["what"],
            )
        )
    return tuple(kept)


def plan_kept(kept: KeptSeed, plan_of: PlanOf) -> Plan:
    """The plan to run for a line."""
    if kept.plan:
        return plan_in(PLANS / kept.plan)
    return plan_chosen(plan_of(kept.seed), kept.keep)


def plan_in(path: Path) -> Plan:
    """The plan that a file holds."""
    try:
        plan = PLAN_DECODER.decode(path.read_bytes())
    except (OSError, ValueError) as error:
        message = f"no plan in {path}: {error}"
        raise BadInputError(message) from error
    for index, step in enumerate(plan.steps):
        name = step.router if isinstance(step, Wait) else getattr(step, "process", None)
        if name is not None and not _names_of(step).fullmatch(name):
            message = f"no plan in {path}: step {index} cannot be of process {name!r}"
            raise BadInputError(message)
        if isinstance(step, Enter):
            try:
                spec_of(step)
            except InvalidIdentityError as error:
                message = f"no plan in {path}: step {index} is of no worker: {error}"
                raise BadInputError(message) from error
    return plan


def _names_of(step: Step) -> re.Pattern[str]:
    """What processes are called that can do a step, or that it can be done to."""
    match step:
        case Enter() | Say():
            return _WORKER
        case Claim():
            return _CLAIMANT
        case Wait():
            return _ROUTER
        case ClockJump():
            return _MACHINE
    return _PROCESS


def plan_chosen(plan: Plan, keep: tuple[int, ...] | None) -> Plan:
    """The plan, or only the steps of it that are named."""
    if keep is None:
        return plan
    beyond = [index for index in keep if index >= len(plan.steps)]
    if beyond:
        message = (
            f"step {beyond[0]} is not there: seed {plan.seed} has the steps "
            f"0 to {len(plan.steps) - 1}"
        )
        raise BadInputError(message)
    return subset(plan, keep)


def indexes(text: str) -> tuple[int, ...]:
    """``0,4,9`` as numbers in order; ``none`` is none of them."""
    if text == "none":
        return ()
    words = text.split(",")
    if not all(word.isascii() and word.isdigit() for word in words):
        message = f"steps are named as 0,4,9 (or none), not {text!r}"
        raise BadInputError(message)
    numbers = sorted(map(int, words))
    twice = [one for one, other in pairwise(numbers) if one == other]
    if twice:
        message = f"step {twice[0]} is named twice in {text!r}"
        raise BadInputError(message)
    return tuple(numbers)


def as_words(keep: tuple[int, ...]) -> str:
    """What `indexes` reads."""
    return ",".join(map(str, keep)) or "none"
