"""Choosing a worker for a request: a decision over the view and a random number."""

from __future__ import annotations

from bisect import bisect
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from itertools import accumulate
from typing import Protocol, TypeAlias

import msgspec

from events import ENTRY_ROLES, ModelName, Namespace, Role

from .entities import Registration, WorkerKey
from .errors import ModelNotFoundError, ModelUnavailableError
from .readiness import SetMeaning, blockers
from .view import Fleet, Worker, derive


class RandomNumbers(Protocol):
    """Where chance comes from: `random.Random` is one."""

    def random(self) -> float:
        """The next number in [0, 1)."""
        ...


class Wanted(msgspec.Struct, frozen=True, cache_hash=True):
    """Which workers will do. None: any (for the role: any entry role)."""

    model: ModelName
    role: Role | None = None
    capability: str | None = None
    adapter: ModelName | None = None
    namespace: Namespace | None = None


class Candidates(msgspec.Struct, frozen=True):
    """The workers that will do, by WorkerSet, in the view's order."""

    sets: tuple[tuple[SetMeaning, tuple[Registration, ...]], ...]
    shares: tuple[float, ...]
    """Running sums of routable workers x weight."""

    def workers(self, fleet: Fleet) -> list[Worker]:
        """All of them as the view shows them."""
        return [derive(fleet.state, m, w) for m, found in self.sets for w in found]


Policy: TypeAlias = Callable[[Sequence[Worker]], Worker]
Namespaces: TypeAlias = Callable[[Namespace], bool]


def candidates(
    fleet: Fleet,
    wanted: Wanted,
    exclude: Collection[WorkerKey] = (),
    visible: Namespaces | None = None,
) -> Candidates:
    """The workers that will do; worked out once per fleet and wish.

    ``visible`` says which namespaces may be picked from; without it, the fleet's lens.
    Raises `ModelNotFoundError` for a name that was never served and
    `ModelUnavailableError` when nobody will do, with the reasons counted.
    """
    visible = visible or fleet.visible
    memo = fleet.memo.get((wanted, visible))
    if memo is None:
        memo = _candidates(fleet, wanted, (), visible)
        if memo.sets:  # callers may ask for any name: only answers are kept
            fleet.memo[wanted, visible] = memo
    found: Candidates = memo
    if exclude and found.sets:
        found = _candidates(fleet, wanted, exclude, visible)
    if not found.sets:
        raise _nobody(fleet, wanted, exclude, visible)
    return found


def pick_weighted(fleet: Fleet, found: Candidates, rng: RandomNumbers) -> Worker:
    """A WorkerSet by routable workers x weight, then one of its workers, uniformly."""
    total = found.shares[-1]
    place = bisect(found.shares, rng.random() * total, hi=len(found.shares) - 1)
    meaning, workers = found.sets[place]
    chosen = workers[int(rng.random() * len(workers))]
    return derive(fleet.state, meaning, chosen)


def pick_in_turn(fleet: Fleet, found: Candidates, turn: int) -> Worker:
    """The ``turn``-th of the workers, all around."""
    ends = list(accumulate(len(workers) for _, workers in found.sets))
    turn %= ends[-1]
    place = bisect(ends, turn)
    meaning, workers = found.sets[place]
    before_end = turn - ends[place]
    return derive(fleet.state, meaning, workers[before_end])


def _candidates(
    fleet: Fleet,
    wanted: Wanted,
    exclude: Collection[WorkerKey],
    visible: Namespaces | None,
) -> Candidates:
    sets = []
    for meaning in _sets(fleet, wanted, visible):
        workers = meaning.routable
        if exclude or not _all_fit(meaning, wanted):
            workers = tuple(
                worker
                for worker in workers
                if _fits(worker, wanted) and worker.key not in exclude
            )
        if workers:
            sets.append((meaning, workers))
    shares = accumulate(len(workers) * m.weight for m, workers in sets)
    return Candidates(tuple(sets), tuple(shares))


def _sets(fleet: Fleet, wanted: Wanted, visible: Namespaces | None) -> list[SetMeaning]:
    """The WorkerSets with the wanted role and namespace, whatever their state."""
    roles = ENTRY_ROLES if wanted.role is None else {wanted.role}
    return [
        meaning
        for meaning in _sets_of_model(fleet, wanted, visible)
        if meaning.key.role in roles
        and wanted.namespace in (None, meaning.key.namespace)
    ]


def _sets_of_model(
    fleet: Fleet, wanted: Wanted, visible: Namespaces | None
) -> list[SetMeaning]:
    """The WorkerSets whose workers may answer to the name, as far as they are shown."""
    return [
        meaning
        for model in _models_behind(fleet, wanted.model)
        for meaning in fleet.sets(model).values()
        if visible is None or visible(meaning.key.namespace)
    ]


def _models_behind(fleet: Fleet, name: ModelName) -> list[ModelName]:
    """The models whose workers answer to ``name``: itself, and its adapter's bases."""
    having = fleet.state.adapters.get(name, ())
    return sorted({name, *(fleet.state.workers[key].model for key in having)})


def _all_fit(meaning: SetMeaning, wanted: Wanted) -> bool:
    """Whether each worker of the WorkerSet will do, without looking at any."""
    nothing_more = wanted.capability is None and wanted.adapter is None
    return nothing_more and wanted.model == meaning.key.model


def _fits(worker: Registration, wanted: Wanted) -> bool:
    if wanted.capability is not None and wanted.capability not in worker.capabilities:
        return False
    if wanted.adapter is not None and wanted.adapter not in worker.adapters:
        return False
    return wanted.model == worker.model or wanted.model in worker.adapters


def _nobody(
    fleet: Fleet,
    wanted: Wanted,
    exclude: Collection[WorkerKey],
    visible: Namespaces | None,
) -> ModelNotFoundError | ModelUnavailableError:
    if wanted.model not in fleet.state.known:
        return ModelNotFoundError(model=wanted.model)
    reasons: Counter[str] = Counter()
    right = {meaning.key for meaning in _sets(fleet, wanted, visible)}
    for meaning in _sets_of_model(fleet, wanted, visible):
        for worker in meaning.members.workers.values():
            why: list[str] = []
            if meaning.key in right:
                why += blockers(fleet.state, meaning, worker)
            if worker.key in exclude:
                why.append("excluded")
            reasons.update(why or ("no_match",))
    return ModelUnavailableError(
        model=wanted.model, reasons=dict(sorted(reasons.items()))
    )
