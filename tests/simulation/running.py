"""Running plans: the world they run in, and one attempt at one plan."""

from __future__ import annotations

import gc
import importlib
import inspect
import sys
import traceback
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Final, Protocol

import msgspec

from tests.simulation.outcome import Broken, Outcome
from tests.simulation.plan import Plan

ROOT: Final = Path(__file__).parents[2]
PRODUCT_ROOMS: Final = ("controlplane", "projections", "events")
PRODUCT: Final = "tests.simulation"
"""The world that has the product in it; others are modules for tests of the runner."""
SEEDS_END: Final = 2**53
"""No seed of any world is so large."""


class BadInputError(ValueError):
    """What was asked for cannot be done. The message says what is wrong with it."""


class Run(Protocol):
    """Runs a plan to its end or to its first violation."""

    def __call__(self, plan: Plan, *, trace: bool = False) -> Outcome: ...


class PlanOf(Protocol):
    """The plan that a seed stands for."""

    def __call__(self, seed: int) -> Plan: ...


class Mutant(Protocol):
    """A deliberate fault of the product, to see whether an invariant notices."""

    name: str
    what: str

    def applied(self) -> AbstractContextManager[object]:
        """The fault is in the product while this is entered."""


class World(msgspec.Struct, frozen=True, kw_only=True):
    """What plans are made for and run in."""

    name: str
    run: Run
    plan_of: PlanOf
    seeds_end: int
    """No seed is so large."""


def world_named(name: str) -> World:
    """The product's world, or the one that a module defines as a whole."""
    running, planning = _part(name, "world", "run"), _part(name, "special", "plan_of")
    seeds_end = getattr(planning, "SEEDS_END", SEEDS_END)
    return World(
        name=name, run=running.run, plan_of=planning.plan_of, seeds_end=seeds_end
    )


def plan_of(world: World, seed: int) -> Plan:
    """The plan of a seed that somebody names."""
    if not 0 <= seed < SEEDS_END:
        message = f"there is no seed {seed}: seeds are numbers from 0 on, below 2^53"
        raise BadInputError(message)
    return world.plan_of(seed)


def mutants_of(world_name: str) -> tuple[Mutant, ...]:
    """The deliberate faults known for a world."""
    return _part(world_name, "mutants", "MUTANTS").MUTANTS


def mutant_named(world_name: str, name: str) -> Mutant:
    """That mutant; the error of any other name tells which there are."""
    mutants = mutants_of(world_name)
    for mutant in mutants:
        if mutant.name == name:
            return mutant
    known = ", ".join(mutant.name for mutant in mutants)
    message = f"there is no mutant {name!r}; there are: {known}"
    raise BadInputError(message)


def seeds_for(world_name: str, mutant: Mutant, seeds: int) -> tuple[int, ...]:
    """What a mutant is hunted with: the plans made for it, seeds, the other plans."""
    usual = tuple(range(1, seeds + 1))
    numbers_of = getattr(_part(world_name, "special"), "numbers_of", None)
    if numbers_of is None:
        return usual
    own = numbers_of(*mutant.plans) if mutant.plans else ()
    return (*own, *usual, *(n for n in numbers_of() if n not in own))


def _part(world_name: str, part: str, *named: str) -> Any:
    """The module that has a part of a world, with what is named in it."""
    name = f"{world_name}.{part}" if world_name == PRODUCT else world_name
    if not all(word.isidentifier() for word in name.split(".")):
        message = f"there is no world {world_name!r}: a module is named as a.b.c"
        raise BadInputError(message)
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise
        message = f"there is no world {world_name!r}: no module {error.name}"
        raise BadInputError(message) from error
    for each in named:
        if not hasattr(module, each):
            message = f"{world_name!r} is no world: it has no {each}"
            raise BadInputError(message)
    return module


@contextmanager
def collected_afterwards() -> Iterator[None]:
    """Garbage is collected between runs and not in them.

    A run makes cycles by the thousand and lives for less than a second; what is
    collected by chance in the middle would also run finalizers at chance moments.
    Coroutines of processes that were killed are closed only then; that they object
    is of no interest, since nobody is there any more.
    """
    was_enabled, hook = gc.isenabled(), sys.unraisablehook

    def unless_closing(unraisable: Any) -> None:
        if not inspect.iscoroutine(unraisable.object):
            hook(unraisable)

    gc.disable()
    try:
        yield
    finally:
        sys.unraisablehook = unless_closing
        with warnings.catch_warnings():
            # Coroutines that a process made and did not come to start.
            warnings.simplefilter("ignore", RuntimeWarning)
            # All that the run made is young: nothing was collected meanwhile.
            gc.collect(0)
        sys.unraisablehook = hook
        if was_enabled:
            gc.enable()


def attempt(run: Run, plan: Plan, *, trace: bool = False) -> Outcome:
    """Run a plan. An exception that gets out of the world is a finding as well."""
    with collected_afterwards():
        try:
            return run(plan, trace=trace)
        except Exception as error:  # noqa: BLE001 - whatever it is, it has a seed
            return _crashed(plan, error)


def _crashed(plan: Plan, error: Exception) -> Outcome:
    frames = traceback.extract_tb(error.__traceback__)
    where = f"{frames[-1].filename}:{frames[-1].lineno}" if frames else "nowhere"
    kind = type(error).__name__
    return Outcome(
        seed=plan.seed,
        broken=Broken(
            invariant=f"crash:{kind}",
            what=f"{kind} at {where.removeprefix(f'{ROOT}/')}: {error}",
            at_s=plan.end_s,
        ),
        trace_digest="",
        trace=tuple("".join(traceback.format_exception(error)).splitlines()),
        callbacks=0,
        records=0,
        virtual_s=plan.end_s,
    )


def asserted_by_product(error: BaseException) -> bool:
    """Whether an assertion of the product's own code failed, and none of ours."""
    if not isinstance(error, AssertionError):
        return False
    frames = traceback.extract_tb(error.__traceback__)
    rooms = tuple(f"{ROOT / room}/" for room in PRODUCT_ROOMS)
    return bool(frames) and frames[-1].filename.startswith(rooms)


def subset(plan: Plan, keep: tuple[int, ...]) -> Plan:
    """The plan with only those steps, by their index."""
    return msgspec.structs.replace(plan, steps=tuple(plan.steps[i] for i in keep))
