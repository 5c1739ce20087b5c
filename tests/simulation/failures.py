"""Seeds that fail: trying a seed, and shrinking what failed, in another process."""

from __future__ import annotations

import time

import msgspec

from tests.simulation.outcome import Broken, Outcome
from tests.simulation.plan import Plan
from tests.simulation.running import World, attempt
from tests.simulation.shrink import shrink


class Try(msgspec.Struct, frozen=True, kw_only=True):
    """Run a seed."""

    seed: int
    limit_s: float

    def do(self, world: World) -> Outcome:
        """What became of it."""
        return attempt(world.run, world.plan_of(self.seed))


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """A seed that breaks an invariant, shrunk if that could be done."""

    seed: int
    broken: Broken
    steps: int = 0
    """How many steps the seed's plan has."""
    plan: Plan | None = None
    """The shrunk one; None: nothing but the seed is known."""
    keep: tuple[int, ...] | None = None
    simplified: bool = False
    runs: int = 0
    seconds: float = 0.0
    finished: bool = False
    trace: tuple[str, ...] = ()
    """Of the shrunk plan."""

    @property
    def shape(self) -> tuple[str, ...]:
        """The invariant and the kinds of steps left: what makes failures alike."""
        steps = () if self.plan is None else self.plan.steps
        kinds = (type(step).__struct_config__.tag for step in steps)
        return (self.broken.invariant, *map(str, kinds))


class Shrink(msgspec.Struct, frozen=True, kw_only=True):
    """Shrink the plan of a seed, which was seen to fail in some process or other."""

    seen: Outcome
    for_s: float
    """How long to look for something smaller."""
    limit_s: float

    def do(self, world: World) -> Failure:
        """The failure, with a trace. If it fails differently here, that is told."""
        began = time.monotonic()
        seed = self.seen.seed
        plan = world.plan_of(seed)
        again = attempt(world.run, plan)
        if _came_to(again) != _came_to(self.seen):
            return _differing(self.seen, again)
        shrunk = shrink(plan, again.broken, world.run, limit_s=self.for_s)
        outcome = attempt(world.run, shrunk.plan, trace=True)
        return Failure(
            seed=seed,
            broken=outcome.broken or shrunk.broken,
            steps=len(plan.steps),
            plan=shrunk.plan,
            keep=shrunk.keep,
            simplified=shrunk.simplified,
            runs=shrunk.runs,
            seconds=time.monotonic() - began,
            finished=shrunk.finished,
            trace=outcome.trace,
        )


def _came_to(outcome: Outcome) -> tuple[object, ...]:
    """What must be the same in every process."""
    broken = outcome.broken
    if broken is None or not outcome.trace_digest:
        # A crash may name an object by its address: only its kind is to be the same.
        return (broken and broken.invariant,)
    return (broken, outcome.trace_digest)


def _differing(seen: Outcome, again: Outcome) -> Failure:
    what = f"first {_short(seen)}, then {_short(again)}"
    at_s = seen.broken.at_s if seen.broken else 0.0
    broken = Broken(invariant="determinism", what=what, at_s=at_s)
    return Failure(seed=seen.seed, broken=broken)


def _short(outcome: Outcome) -> str:
    found = outcome.broken
    said = "nothing broken" if found is None else f"{found.invariant}: {found.what}"
    return f"{outcome.trace_digest[:12]} ({said})"
