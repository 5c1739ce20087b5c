"""Choosing a worker for a request: a decision over the view and a random number."""

from __future__ import annotations

from bisect import bisect
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import accumulate
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

import msgspec

from events import ENTRY_ROLES, ModelName, Namespace, Role

from .entities import Registration, Thresholds, WorkerKey, WorkerSetKey
from .errors import ModelNotFoundError, ModelUnavailableError
from .readiness import SetMeaning, blockers, limits_of
from .view import Fleet, Worker, derive, derive_routable

SHARES_MIN: Final = 1e-200
SHARES_MAX: Final = 1e200
"""Beyond, shares are by the heaviest weight: an old log may hold any, and an infinite
sum, or one of the least numbers, cannot be drawn from."""


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


class Candidates(msgspec.Struct, frozen=True, eq=False):
    """The workers that will do, all routable, by WorkerSet, in the view's order."""

    sets: tuple[tuple[SetMeaning, tuple[Registration, ...]], ...]
    shares: tuple[float, ...]
    """Running sums of routable workers x weight."""
    ends: tuple[int, ...]
    """Running sums of routable workers."""
    limits: tuple[Thresholds | None, ...]
    """From where on a worker of each WorkerSet is busy; None: it never is."""
    limited: bool
    """Whether any of them could be busy."""
    tools: dict[object, Any] = msgspec.field(default_factory=dict)
    """What those who pick keep with them, by who keeps it."""

    def __len__(self) -> int:
        """How many there are."""
        return self.ends[-1] if self.ends else 0

    def workers(self, fleet: Fleet) -> list[Worker]:
        """All of them as the view shows them."""
        return [derive(fleet.state, m, w) for m, found in self.sets for w in found]


class Standing(NamedTuple):
    """A candidate and what its WorkerSet makes of it."""

    worker: Registration
    weight: float
    limits: Thresholds | None


class Moves(NamedTuple):
    """How candidates differ from those before."""

    gone: set[WorkerKey]
    put: dict[WorkerKey, Standing]
    """Those that are new, or not as they were."""


Policy: TypeAlias = Callable[[Sequence[Worker]], Worker]
_Place: TypeAlias = tuple[Namespace, ModelName, Role]
Namespaces: TypeAlias = Callable[[Namespace], bool]


def candidates(
    fleet: Fleet,
    wanted: Wanted,
    exclude: Collection[WorkerKey] = (),
    visible: Namespaces | None = None,
) -> Candidates:
    """The workers that will do; worked out once per fleet and wish.

    ``exclude`` are left out; as a mapping, to the reason that is counted for them.
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
    """As `draw_weighted`, as the view shows it."""
    del fleet
    return derive_routable(draw_weighted(found, rng))


def pick_in_turn(fleet: Fleet, found: Candidates, turn: int) -> Worker:
    """As `draw_in_turn`, as the view shows it."""
    del fleet
    return derive_routable(draw_in_turn(found, turn))


def draw_weighted(found: Candidates, rng: RandomNumbers) -> Registration:
    """A WorkerSet by routable workers x weight, then one of its workers, uniformly."""
    total = found.shares[-1]
    place = bisect(found.shares, rng.random() * total, hi=len(found.shares) - 1)
    workers = found.sets[place][1]
    return workers[int(rng.random() * len(workers))]


def draw_in_turn(found: Candidates, turn: int) -> Registration:
    """The ``turn``-th of the workers, all around."""
    turn %= found.ends[-1]
    place = bisect(found.ends, turn)
    return found.sets[place][1][turn - found.ends[place]]


def only(
    found: Candidates, fits: Callable[[SetMeaning, Registration], bool]
) -> Candidates:
    """Those of ``found`` that fit; maybe none."""
    sets, limits = [], []
    for (meaning, workers), limit in zip(found.sets, found.limits, strict=True):
        some = tuple(worker for worker in workers if fits(meaning, worker))
        if some:
            sets.append((meaning, some))
            limits.append(limit)
    return _gathered(tuple(sets), tuple(limits))


def moves(before: Candidates | None, after: Candidates) -> Moves:
    """What has to be done to ``before`` to get ``after``."""
    old = {} if before is None else _by_set(before)
    gone: set[WorkerKey] = set()
    put: dict[WorkerKey, Standing] = {}
    for key, (weight, limits, workers) in _by_set(after).items():
        was = old.pop(key, None)
        if was == (weight, limits, workers):
            continue
        known = {} if was is None else {worker.key: worker for worker in was[2]}
        same = was is not None and was[:2] == (weight, limits)
        for worker in workers:
            if known.pop(worker.key, None) != worker or not same:
                put[worker.key] = Standing(worker, weight, limits)
        gone.update(known)
    gone.update(worker.key for _, _, workers in old.values() for worker in workers)
    return Moves(gone.difference(put), put)


def _by_set(
    found: Candidates,
) -> dict[WorkerSetKey, tuple[float, Thresholds | None, tuple[Registration, ...]]]:
    standing = zip(found.sets, found.limits, strict=True)
    return {m.key: (m.weight, limits, workers) for (m, workers), limits in standing}


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
    return _gathered(
        tuple(sets), tuple(limits_of(fleet.state, m.key.model) for m, _ in sets)
    )


def _gathered(
    sets: tuple[tuple[SetMeaning, tuple[Registration, ...]], ...],
    limits: tuple[Thresholds | None, ...],
) -> Candidates:
    shares = tuple(accumulate(len(workers) * m.weight for m, workers in sets))
    if shares and not SHARES_MIN <= shares[-1] <= SHARES_MAX:
        heaviest = max(m.weight for m, _ in sets)
        parts = (len(workers) * (m.weight / heaviest) for m, workers in sets)
        shares = tuple(accumulate(parts))
    return Candidates(
        sets=sets,
        shares=shares,
        ends=tuple(accumulate(len(workers) for _, workers in sets)),
        limits=limits,
        limited=any(limits),
    )


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
    right = {m.key: m for m in _sets(fleet, wanted, visible)}
    partners = _partners(wanted, right.values())
    for meaning in _sets_of_model(fleet, wanted, visible):
        is_right, place = meaning.key in right, _place(meaning.key, meaning.key.role)
        for worker in meaning.members.workers.values():
            why: list[str] = []
            fits = is_right and _fits(worker, wanted)
            if fits or place in partners:
                why += blockers(fleet.state, meaning, worker)
            if fits and worker.key in exclude:
                why.append(_reason(exclude, worker.key))
            reasons.update(why or ("no_match",))
    return ModelUnavailableError(
        model=wanted.model, reasons=dict(sorted(reasons.items()))
    )


def _partners(wanted: Wanted, sets: Iterable[SetMeaning]) -> set[_Place]:
    """Where the entry workers' needs are looked for: what is wrong there is why not."""
    if wanted.role is not None:
        return set()
    return {
        _place(meaning.key, role)
        for meaning in sets
        for roles in meaning.members.needs
        for role in roles
        if any(_fits(worker, wanted) for worker in meaning.members.workers.values())
    }


def _place(key: WorkerSetKey, role: Role) -> _Place:
    return key.namespace, key.model, role


def _reason(exclude: Collection[WorkerKey], key: WorkerKey) -> str:
    return exclude[key] if isinstance(exclude, Mapping) else "excluded"
