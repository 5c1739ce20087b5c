"""A world of a few lines, to try the runner with: what breaks it is known.

It breaks ``prefix`` if projector p1 crashes before router r1 is frozen for two
seconds or more, and ``liveness`` if the view is trimmed to less than three messages.
Seeds that end in 77 never end, and those in 88 crash; from `HARMLESS` on all hold;
what `MOODY` comes to depends on the process that runs it. A mutant is a word in
`FAULTS`.
"""

from __future__ import annotations

import hashlib
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from tests.simulation.outcome import Broken, Outcome
from tests.simulation.plan import Crash, Freeze, Plan, Say, Step, TrimView

FAULTS: list[str] = []
HARMLESS = 1_000_000
MOODY = 999
_STEPS = 30


def plan_of(seed: int) -> Plan:
    """Harmless but for every seventh seed, and every eleventh."""
    bad = seed < HARMLESS
    chance = random.Random(seed)
    steps: list[Step] = [
        Say(at_s=chance.uniform(0, 100), process=f"w{i:02}", verb="ready")
        for i in range(_STEPS)
    ]
    if bad and seed % 7 == 0:
        steps += [
            Crash(at_s=40.123, process="p1", callbacks=chance.randrange(9)),
            Freeze(at_s=60.456, process="r1", for_s=20.2),
        ]
    if bad and seed % 11 == 0:
        steps.append(TrimView(at_s=50.0, keep=2))
    steps.sort(key=lambda step: step.at_s)
    return Plan(seed=seed, steps=tuple(steps), faults_end_s=100.0, end_s=200.0)


def run(plan: Plan, *, trace: bool = False) -> Outcome:
    """Look at the steps, in order."""
    if plan.seed < HARMLESS and plan.seed % 100 == 77:
        while True:
            pass
    if plan.seed < HARMLESS and plan.seed % 100 == 88:
        message = "a toy broke"
        raise RuntimeError(message)
    lines = []
    broken, crashed = None, False
    for step in plan.steps:
        lines.append(msgspec.json.encode(step).decode())
        crashed = crashed or (isinstance(step, Crash) and step.process == "p1")
        broken = _broken_by(step, crashed=crashed)
        if broken is not None:
            lines.append(f"broken: {broken.invariant}")
            break
    lines += FAULTS
    if plan.seed == MOODY:
        lines.append(f"{time.monotonic_ns()}")
        broken = Broken(invariant="prefix", what="who knows", at_s=1.0)
    return Outcome(
        seed=plan.seed,
        broken=broken,
        trace_digest=hashlib.sha256("\n".join(lines).encode()).hexdigest(),
        trace=tuple(lines) if trace else (),
        callbacks=len(lines),
        records=10,
        virtual_s=600.0,
    )


def _broken_by(step: Step, *, crashed: bool) -> Broken | None:
    match step:
        case Freeze(process="r1", for_s=for_s) if crashed and for_s >= 2:
            return Broken(invariant="prefix", what="r1 lags", at_s=step.at_s)
        case TrimView(keep=keep) if keep < 3:
            return Broken(invariant="liveness", what="nothing left", at_s=step.at_s)
        case Say(process="w03") if "deaf" in FAULTS:
            return Broken(invariant="routable", what="w03", at_s=step.at_s)
        case Say(process="w04") if "ill-fitting" in FAULTS:
            message = "run() takes no such argument"
            raise TypeError(message)
    return None


class ToyMutant:
    """A word while it is applied."""

    def __init__(self, name: str, what: str) -> None:
        self.name, self.what = name, what

    @contextmanager
    def applied(self) -> Iterator[None]:
        FAULTS.append(self.name)
        try:
            yield
        finally:
            FAULTS.remove(self.name)


MUTANTS = (
    ToyMutant("deaf", "a word from w03 is not heard"),
    ToyMutant("harmless", "nothing comes of it"),
    ToyMutant("ill-fitting", "the patch does not fit"),
)
