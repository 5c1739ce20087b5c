"""Making a failing plan small: fewer steps first, then simpler ones.

A plan counts as failing the same way if the same invariant is broken. Nothing here
depends on chance: the same plan, world and enough time give the same small plan.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Final

import msgspec

from tests.simulation.outcome import Broken
from tests.simulation.plan import Pace, Plan, Step
from tests.simulation.running import Run, attempt, subset

_LATER_S: Final = 30.0
"""So much later may a smaller plan break than the first, unless it does at the end."""


class Shrunk(msgspec.Struct, frozen=True, kw_only=True):
    """The smallest plan found that still fails."""

    plan: Plan
    broken: Broken
    """How it fails: the invariant is the one asked for."""
    keep: tuple[int, ...]
    """Which steps of the original are left; these, unchanged, fail as well."""
    simplified: bool
    """Whether the steps left, or the pace, differ from the original's."""
    runs: int
    finished: bool
    """No single step can be left out. False if the time was up before."""


def shrink(
    plan: Plan,
    broken: Broken,
    run: Run,
    *,
    limit_s: float,
    now: Callable[[], float] = time.monotonic,
) -> Shrunk:
    """Look for the smallest part of ``plan`` that breaks the same invariant.

    ``plan`` is known to fail with ``broken``. The time is looked at between runs:
    what was found until then is the answer.
    """
    search = _Search(plan, broken, run, until=now() + limit_s, now=now)
    finished = True
    try:
        _drop_steps(search)
        while _simplify(search) and _drop_steps(search):
            pass
    except _TimeIsUpError:
        finished = search.minimal
    return Shrunk(
        plan=search.plan,
        broken=search.broken,
        keep=search.keep,
        simplified=search.plan != subset(plan, search.keep),
        runs=search.runs,
        finished=finished,
    )


class _TimeIsUpError(Exception):
    pass


class _Search:
    """The best plan so far, and what was tried."""

    def __init__(
        self,
        plan: Plan,
        broken: Broken,
        run: Run,
        *,
        until: float,
        now: Callable[[], float],
    ) -> None:
        self.plan, self.broken = plan, broken
        self.keep = tuple(range(len(plan.steps)))
        self.runs = 0
        self.minimal = False
        self._run, self._until, self._now = run, until, now
        self._cut_s = min(plan.end_s, broken.at_s + _LATER_S)
        """Runs go no further: what breaks on the way has broken by then."""
        self._failed_to_fail: dict[bytes, None] = {}

    def accepts(self, plan: Plan, keep: tuple[int, ...]) -> bool:
        """Whether ``plan`` fails the same way; if so it is the best so far."""
        key = msgspec.msgpack.encode(plan)
        if key in self._failed_to_fail:
            return False
        if self._now() >= self._until:
            raise _TimeIsUpError
        self.runs += 1
        cut = msgspec.structs.replace(plan, end_s=self._cut_s)
        found = attempt(self._run, cut).broken
        if found is None or not self._is_alike(found):
            self._failed_to_fail[key] = None
            return False
        self.plan, self.broken, self.keep = plan, found, keep
        return True

    def _is_alike(self, found: Broken) -> bool:
        """Whether it breaks the same, and not only because a run was cut short.

        At the end of a run more is asked than on the way.
        """
        on_the_way = found.at_s < self._cut_s or self._cut_s == self.plan.end_s
        return on_the_way and found.invariant == self.broken.invariant

    def accepts_without(self, start: int, end: int) -> bool:
        """Whether it fails without the steps from ``start`` up to ``end``."""
        steps = self.plan.steps[:start] + self.plan.steps[end:]
        keep = self.keep[:start] + self.keep[end:]
        return self.accepts(msgspec.structs.replace(self.plan, steps=steps), keep)


def _drop_steps(search: _Search) -> bool:
    """Leave out chunks, ever smaller, until no single step can go; whether any did.

    From the end, since what follows the violation has no part in it.
    """
    before = len(search.plan.steps)
    search.minimal = False
    size = before
    while search.plan.steps:
        dropped = False
        end = len(search.plan.steps)
        while end > 0:
            start = max(0, end - size)
            dropped = search.accepts_without(start, end) or dropped
            end = start
        if size == 1 and not dropped:
            break
        size = max(1, size // 2)
    search.minimal = True
    return len(search.plan.steps) < before


def _simplify(search: _Search) -> bool:
    """Put simpler values in place while it keeps failing; whether any held."""
    changed = _plain_pace(search)
    for at in range(len(search.plan.steps)):
        while any(
            search.accepts(_with_step(search.plan, at, step), search.keep)
            for step in _simpler(search.plan.steps, at)
        ):
            changed = True
    return changed


def _plain_pace(search: _Search) -> bool:
    if search.plan.pace == Pace():
        return False
    plain = msgspec.structs.replace(search.plan, pace=Pace())
    return search.accepts(plain, search.keep)


def _with_step(plan: Plan, at: int, step: Step) -> Plan:
    steps = (*plan.steps[:at], step, *plan.steps[at + 1 :])
    return msgspec.structs.replace(plan, steps=steps)


def _simpler(steps: tuple[Step, ...], at: int) -> Iterator[Step]:
    """The step with one field nearer to its plainest value: never further away."""
    step = steps[at]
    for field in msgspec.structs.fields(step):
        value = getattr(step, field.name)
        if field.name == "at_s":
            values = _rounder_times(steps, at)
        elif field.default is not msgspec.NODEFAULT:
            values = _nearer(value, field.default)
        elif field.name.endswith("_s"):
            values = _shorter(value)
        else:
            continue
        for simpler in values:
            if simpler != value:
                yield msgspec.structs.replace(step, **{field.name: simpler})


def _rounder_times(steps: tuple[Step, ...], at: int) -> Iterator[float]:
    """Rounder times that leave the order of the steps as it is."""
    time_s = steps[at].at_s
    earliest = steps[at - 1].at_s if at else 0.0
    latest = steps[at + 1].at_s if at + 1 < len(steps) else float("inf")
    for digits in (0, 1):
        rounded = round(time_s, digits)
        if rounded == time_s:
            return
        if earliest <= rounded <= latest:
            yield rounded


def _nearer(value: object, plain: object) -> Iterator[object]:
    yield plain
    if type(value) is type(plain) is int:
        yield plain + (value - plain) // 2


def _shorter(seconds: float) -> Iterator[float]:
    """Half the time in whole seconds, or at least a rounder one."""
    half = float(round(seconds / 2))
    if 0 < abs(half) < abs(seconds):
        yield half
    whole = float(int(seconds))
    yield whole or round(seconds, 1) or seconds
