"""Hunting mutants: which invariant notices each deliberate fault, in how many seeds.

The product's own assertions count as an invariant, ``assertion``. Any other exception
that gets out of the world is an error of the mutant (a patch that does not fit) or of
the world, and proves nothing; nor does a run that never ends, nor a seed that fails
without the mutant as well. Errors are shown, and the hunt fails by them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Final, Literal

import msgspec

from tests.simulation.crew import Crew, Lost
from tests.simulation.outcome import Outcome
from tests.simulation.running import (
    Mutant,
    World,
    asserted_by_product,
    attempt,
    collected_afterwards,
    mutant_named,
    world_named,
)


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What a seed says about a mutant."""

    caught_by: str | None = None
    """The invariant that the mutant breaks and the product does not."""
    noticed: bool = False
    """Whether the run went another way than without the mutant at all."""
    error: str = ""
    """Why this is no evidence: the mutant or the world failed, or the product did."""


class Hunt(msgspec.Struct, frozen=True, kw_only=True):
    """Run a seed with a mutant in the product."""

    mutant: str
    seed: int
    limit_s: float

    def do(self, world: World) -> Verdict:
        """Whether an invariant notices."""
        sound = _without_mutant(world.name, self.seed)
        if sound.broken is not None:
            said = f"{sound.broken.invariant}: {sound.broken.what}"
            return Verdict(error=f"seed {self.seed} fails without a mutant: {said}")
        plan = world.plan_of(self.seed)
        mutant = mutant_named(world.name, self.mutant)
        try:
            with collected_afterwards(), mutant.applied():
                outcome = world.run(plan)
        except Exception as error:  # noqa: BLE001 - it goes into the table
            if asserted_by_product(error):
                return Verdict(caught_by="assertion", noticed=True)
            said = f"{type(error).__name__}: {error}"
            return Verdict(error=f"seed {self.seed}: {said}", noticed=True)
        return Verdict(
            caught_by=None if outcome.broken is None else outcome.broken.invariant,
            noticed=outcome.trace_digest != sound.trace_digest,
        )


@lru_cache(maxsize=4096)
def _without_mutant(world_name: str, seed: int) -> Outcome:
    world = world_named(world_name)
    return attempt(world.run, world.plan_of(seed))


CAUGHT: Final = "caught"
SURVIVES: Final = "survives"
UNTRIED: Final = "untried"
ERROR: Final = "error"


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a mutant."""

    name: str
    what: str
    fate: Literal["caught", "survives", "untried", "error"]
    """Untried: the hunt was stopped before it was caught or had outlived all seeds.
    An error says nothing, however often the mutant was caught beside it."""
    caught_by: dict[str, int]
    """Each invariant that noticed, with how many seeds it did."""
    caught: int
    seeds: int
    """How many were run until enough had caught it, or all, or the hunt stopped."""
    noticed: int
    """In how many of them the run went another way: in none, and no plan gets there."""
    errors: tuple[str, ...]


class Quarry:
    """One mutant while it is hunted. What it comes to does not depend on who was
    first: the seeds count in order, up to the one that was the last needed."""

    def __init__(self, mutant: Mutant, *, seeds: Sequence[int], enough: int) -> None:
        self.mutant, self._seeds, self._enough = mutant, seeds, enough
        self._next = 0
        self._verdicts: dict[int, Verdict] = {}

    def next_seed(self) -> int | None:
        """The next seed to try; None if there were enough."""
        caught = sum(v.caught_by is not None for v in self._verdicts.values())
        if caught >= self._enough or self._next >= len(self._seeds):
            return None
        self._next += 1
        return self._seeds[self._next - 1]

    def note(self, seed: int, verdict: Verdict) -> None:
        """What a seed said."""
        self._verdicts[seed] = verdict

    def row(self) -> Row:
        """What is known by now."""
        counted: list[Verdict] = []
        caught_by: Counter[str] = Counter()
        for seed in self._seeds:
            verdict = self._verdicts.get(seed)
            if verdict is None:
                continue
            counted.append(verdict)
            if verdict.caught_by is not None:
                caught_by[verdict.caught_by] += 1
            if caught_by.total() >= self._enough:
                break
        errors = tuple(verdict.error for verdict in counted if verdict.error)
        if errors:
            fate = ERROR
        elif caught_by:
            fate = CAUGHT
        else:
            fate = SURVIVES if len(counted) == len(self._seeds) else UNTRIED
        return Row(
            name=self.mutant.name,
            what=self.mutant.what,
            fate=fate,
            caught_by=dict(sorted(caught_by.items(), key=lambda it: (-it[1], it[0]))),
            caught=caught_by.total(),
            seeds=len(counted),
            noticed=sum(verdict.noticed for verdict in counted),
            errors=errors,
        )


def hunt(
    crew: Crew,
    quarries: tuple[Quarry, ...],
    *,
    limit_s: float,
    until: Callable[[], bool],
) -> Iterator[int]:
    """Run the seeds of each, one mutant after the other; how many runs are done."""
    tasks = (
        Hunt(mutant=quarry.mutant.name, seed=seed, limit_s=limit_s)
        for quarry in quarries
        for seed in iter(quarry.next_seed, None)
    )
    by_name = {quarry.mutant.name: quarry for quarry in quarries}
    done = 0
    for answered in crew.work_off(lambda: next(tasks, None), until=until):
        if answered is not None:
            task, verdict = answered
            if isinstance(verdict, Lost):
                verdict = Verdict(error=f"seed {task.seed}: {verdict.what}")
            by_name[task.mutant].note(task.seed, verdict)
            done += 1
        yield done
