"""The commands of ``python -m tests.simulation``; see there for exit codes."""

from __future__ import annotations

import os
import secrets
import sys
from collections import Counter
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final, Literal

from cyclopts import App, CycloptsError, Parameter

from tests.simulation.columns import fitted, readable
from tests.simulation.crew import Crew
from tests.simulation.failures import Failure
from tests.simulation.hunting import CAUGHT, UNTRIED, Quarry, hunt
from tests.simulation.plan import Plan
from tests.simulation.progress import Progress
from tests.simulation.reporting import replay_command, said, steps_of, told
from tests.simulation.running import (
    PRODUCT,
    BadInputError,
    attempt,
    mutant_named,
    mutants_of,
    plan_of,
    seeds_for,
    world_named,
)
from tests.simulation.seeds import indexes, plan_chosen, plan_in
from tests.simulation.stopping import STOP
from tests.simulation.sweeping import Limits, Sweep
from tests.simulation.table import show_json, show_table

OK: Final = 0
BROKEN: Final = 1
USAGE: Final = 64
INTERRUPTED: Final = 130
_CHOSEN_BELOW: Final = 2**31
_TOO_MUCH: Final = 2**53

app: Final = App(
    name="python -m tests.simulation",
    help="Run the product in simulated worlds full of faults.",
    default_parameter=Parameter(negative=""),
    version_flags=[],
)


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Common:
    """What every command takes."""

    world: str = PRODUCT
    """Another module with run, plan_of and MUTANTS, to try the runner with."""


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Sweeping(Common):
    """What commands that run many seeds take."""

    jobs: int | None = None
    """Processes; else as many as there are cores to use."""
    stuck_s: float = 120.0
    """A run that takes longer (in real time) is given up, and is a failure."""
    quiet: Annotated[bool, Parameter(name=("--quiet", "-q"))] = False
    """Print the result only."""

    def crew(self) -> Crew:
        """The processes."""
        _at_least(1, jobs=self.jobs, stuck_s=self.stuck_s)
        world_named(self.world)
        return Crew(self.world, self.jobs or _cores())


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Searching(Sweeping):
    """What commands that look for failing seeds take."""

    first: Annotated[int | None, Parameter(name="--from")] = None
    """The first seed; else some number, which is printed."""
    shrink_s: float = 60.0
    """How long to shrink a failing plan at most."""

    def limits(self, seconds: float) -> Limits:
        """How long things may take, with so long for beginning seeds."""
        _at_least(0, shrink_s=self.shrink_s)
        return Limits(seconds=seconds, shrink_s=self.shrink_s, stuck_s=self.stuck_s)

    def seeds(self) -> range:
        """The seeds to try: the first, and all that there are after it."""
        world = world_named(self.world)
        first = self.first
        if first is None:
            first = secrets.randbelow(_CHOSEN_BELOW)
        plan_of(world, first)
        return range(first, world.seeds_end)


@app.command
def sim(*, seconds: float = 60.0, options: Searching = Searching()) -> int:
    """Run new seeds for a while; stop at the first that fails, and shrink it."""
    _at_least(0, seconds=seconds)
    limits, seeds = options.limits(seconds), options.seeds()
    progress = Progress(quiet=options.quiet, every_s=10.0)
    with options.crew() as crew:
        sweep = Sweep(crew, seeds, limits)
        progress.say(f"sim: seeds from {seeds.start}")
        for _ in sweep.until_one_fails(until=lambda: STOP.asked):
            progress.tick(sweep.tally)
        progress.clear()
        if not sweep.failed:
            verdict = "stopped; all held" if STOP.asked else "all hold"
            _print((f"sim: {sweep.tally}", f"from seed {seeds.start}: {verdict}"))
            return STOP.exit_code
        progress.say(f"sim: {sweep.tally}")
        _shrink_and_tell(sweep, sweep.failed[0], progress, options.world)
    return BROKEN


@app.command
def soak(*, hours: float = 8.0, options: Searching = Searching()) -> int:
    """Run new seeds for hours, shrink what fails, and gather it: one of a kind.

    Stops at the end, or by Ctrl-C or SIGTERM, and says what it found.
    """
    _at_least(0, hours=hours)
    limits, seeds = options.limits(hours * 3600), options.seeds()
    progress = Progress(quiet=options.quiet, every_s=300.0)
    shapes: dict[tuple[str, ...], Failure] = {}
    with options.crew() as crew:
        sweep = Sweep(crew, seeds, limits)
        progress.say(f"soak: seeds from {seeds.start}")
        for failure in sweep.gather(until=lambda: STOP.asked):
            if failure is not None and failure.shape not in shapes:
                shapes[failure.shape] = failure
                progress.clear()
                _print(told(failure, world=options.world))
            progress.tick(f"{sweep.tally}, {len(sweep.failed)} failed")
    progress.clear()
    _print(_found(sweep, shapes, options.world))
    return BROKEN if sweep.failed else OK


@app.command
def shrink(*, seed: int, options: Searching = Searching()) -> int:
    """Run one seed, and shrink it if it fails."""
    limits = options.limits(0)
    plan_of(world_named(options.world), seed)
    progress = Progress(quiet=options.quiet, every_s=10.0)
    one = Sweeping(world=options.world, jobs=1, stuck_s=options.stuck_s)
    with one.crew() as crew:
        sweep = Sweep(crew, range(seed, seed + 1), limits)
        for _ in sweep.until_one_fails(until=lambda: STOP.asked):
            pass
        if not sweep.failed:
            held = "is not through: stopped" if STOP.asked else "holds"
            _print((f"shrink: seed {seed} {held}",))
            return STOP.exit_code
        _shrink_and_tell(sweep, sweep.failed[0], progress, options.world)
    return BROKEN


@app.command
def replay(
    *,
    seed: int | None = None,
    keep: str | None = None,
    plan: Path | None = None,
    mutant: str | None = None,
    wide: bool = False,
    options: Common = Common(),
) -> int:
    """Run one plan and print who did what when, and how it ended.

    Parameters
    ----------
    seed
        The seed of the plan.
    keep
        Only these of its steps, as 0,4,9; "none" for none.
    plan
        A file with a plan, in place of the one of the seed.
    mutant
        A deliberate fault to put into the product.
    wide
        Each line whole, however long, to search and compare; else lines are broken
        at 80 columns and long identifiers cut.
    """
    world = world_named(options.world)
    chosen = _chosen(seed, keep, plan, options.world)
    with ExitStack() as stack:
        stack.enter_context(STOP.at_once())
        if mutant is not None:
            stack.enter_context(mutant_named(options.world, mutant).applied())
        outcome = attempt(world.run, chosen, trace=True)
    kept = indexes(keep) if keep is not None and plan is None else None
    lines = (*steps_of(chosen, kept), *outcome.trace)
    _print(lines if wide else readable(lines))
    if outcome.broken is None:
        _print((f"seed {chosen.seed} holds; trace {outcome.trace_digest}",))
        return OK
    verdict = f"seed {chosen.seed} breaks {said(outcome.broken)}"
    _print((verdict,) if wide else fitted(verdict))
    return BROKEN


@app.command
def digests(*seeds: int, options: Common = Common()) -> int:
    """Run seeds and print what their traces come to: equal everywhere and always."""
    world = world_named(options.world)
    if not seeds:
        message = "say which seeds: digests 1 2 3"
        raise BadInputError(message)
    for plan in [plan_of(world, seed) for seed in seeds]:
        with STOP.at_once():
            outcome = attempt(world.run, plan)
        broken = "" if outcome.broken is None else f" {said(outcome.broken)}"
        _print((f"{plan.seed} {outcome.trace_digest}{broken}",))
    return OK


@app.command
def mutants(
    *,
    seeds: int = 100,
    enough: int = 3,
    only: str | None = None,
    output: Annotated[Literal["table", "json"], Parameter(name=("--output", "-o"))] = (
        "table"
    ),
    options: Sweeping = Sweeping(),
) -> int:
    """Put deliberate faults into the product and see which invariant notices each.

    Parameters
    ----------
    seeds
        Run the special plans that are for it, seeds 1 to this, the other plans.
    enough
        Go on to the next mutant when so many seeds have caught it.
    only
        This mutant alone.
    output
        A table or one JSON document.
    """
    _at_least(1, seeds=seeds, enough=enough)
    chosen = (
        mutants_of(options.world)
        if only is None
        else (mutant_named(options.world, only),)
    )
    quarries = tuple(
        Quarry(each, seeds=seeds_for(options.world, each, seeds), enough=enough)
        for each in chosen
    )
    progress = Progress(quiet=options.quiet, every_s=30.0)
    with options.crew() as crew:
        for done in hunt(
            crew,
            quarries,
            limit_s=options.stuck_s,
            until=lambda: STOP.asked,
        ):
            caught = sum(quarry.row().caught > 0 for quarry in quarries)
            progress.tick(f"{done} runs, {caught} of {len(quarries)} caught")
    progress.clear()
    rows = [quarry.row() for quarry in quarries]
    show_json(rows) if output == "json" else show_table(rows)
    fates = {row.fate for row in rows}
    if not fates <= {CAUGHT, UNTRIED}:
        return BROKEN
    return STOP.exit_code if UNTRIED in fates else OK


def _shrink_and_tell(
    sweep: Sweep, failure: Failure, progress: Progress, world: str
) -> None:
    progress.say(f"shrinking seed {failure.seed} ({failure.broken.invariant})…")
    shrunk = failure
    for answer in sweep.shrunk(failure, until=lambda: STOP.asked):
        shrunk = answer or shrunk
    progress.clear()
    _print(told(shrunk, world=world))


def _found(
    sweep: Sweep, shapes: dict[tuple[str, ...], Failure], world: str
) -> Iterable[str]:
    """The last lines of a soak: every kind of failure, each with its command."""
    yield f"soak: {sweep.tally}; {len(sweep.failed)} failed"
    counted = Counter(failure.broken.invariant for failure in sweep.failed)
    for invariant, seeds in sorted(counted.items()):
        yield f"{invariant}: {seeds} seeds"
        told_of = [f for s, f in shapes.items() if s[0] == invariant]
        raw = [f for f in sweep.failed if f.broken.invariant == invariant]
        for failure in told_of or raw[:1]:
            # Steps that were made simpler cannot be said by their numbers.
            keep = None if failure.simplified else failure.keep
            yield f"  {replay_command(failure.seed, keep=keep, world=world)}"


def _chosen(seed: int | None, keep: str | None, plan: Path | None, world: str) -> Plan:
    if plan is None and seed is None:
        message = "say which run: --seed N, or --plan FILE"
        raise BadInputError(message)
    if plan is None:
        kept = None if keep is None else indexes(keep)
        return plan_chosen(plan_of(world_named(world), seed), kept)
    chosen = plan_in(plan)
    if seed not in (None, chosen.seed):
        message = f"the plan in {plan} is of seed {chosen.seed}, not {seed}"
        raise BadInputError(message)
    return plan_chosen(chosen, None if keep is None else indexes(keep))


def _at_least(least: int, **numbers: float | None) -> None:
    """Refuse what is less, or no number at all."""
    for name, number in numbers.items():
        if number is not None and not least <= number < _TOO_MUCH:
            option = f"--{name.replace('_', '-')}"
            message = f"{option} must be {least} or more, not {number:g}"
            raise BadInputError(message)


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _print(lines: Iterable[str]) -> None:
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    sys.stdout.flush()


def main(words: list[str]) -> int:
    """Do what the words say; bad words are one line on stderr."""
    try:
        command, bound, _ = app.parse_args(
            words, exit_on_error=False, print_error=False
        )
        return command(*bound.args, **bound.kwargs) or OK
    except BrokenPipeError:
        # Whoever read has seen enough; nothing more is to be flushed there.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return OK
    except KeyboardInterrupt:
        return STOP.exit_code or INTERRUPTED
    except (CycloptsError, BadInputError) as error:
        line = " ".join(str(error).split())
        sys.stderr.write(f"simulation: {line}\n")
        return USAGE
