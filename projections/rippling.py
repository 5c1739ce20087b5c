"""Which models mean something else after a record: to workers it does not name.

What a worker may get depends on others: on the checksum in force, on live workers of
the roles it needs, on settings. To look at everybody after every record costs too much
for a long log. Most records change only the worker that they are about; this tells
them from the rest, and never errs on the quick side.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple, assert_never

from events import ModelName, Role, Status

from .entities import (
    FleetChange,
    KnownGone,
    KnownPut,
    Registration,
    SetGone,
    SetPut,
    SettingGone,
    SettingKey,
    SettingPut,
    WorkerGone,
    WorkerKey,
    WorkerPut,
    WorkerSetKey,
)
from .fleet import FleetState, Members
from .readiness import (
    Blocker,
    SetMeaning,
    blockers,
    is_held,
    missing_roles,
    weight_of,
)


def is_live(state: FleetState, worker: Registration) -> bool:
    """Whether ``worker``, as ``state`` has it, is ready, admitted and not held."""
    if worker.status is not Status.READY:
        return False
    members = state.members(worker.set_key)
    if members is None or members.checksum != worker.checksum:
        return False
    return not is_held(state, worker)


class Ground(NamedTuple):
    """What a WorkerSet's workers have in common that keeps them from being picked."""

    members: Members
    missing_roles: tuple[Role, ...]
    weight: float

    def means(self, other: Ground | None) -> bool:
        """Whether ``other`` keeps the same workers away."""
        return other is not None and (
            self.members.checksum,
            self.missing_roles,
            self.weight,
        ) == (other.members.checksum, other.missing_roles, other.weight)


def ground_of(state: FleetState, key: WorkerSetKey) -> Ground | None:
    """As `meanings` would say it of this WorkerSet; None: it is not there.

    Of all its workers and neighbours only as many are looked at as must be.
    """
    members = state.members(key)
    if members is None:
        return None
    needs = members.needs
    live = set(_live_roles(state, key)) if needs else set()
    return Ground(
        members,
        missing_roles(needs, live),
        weight_of(state, key.namespace, key.model),
    )


def blockers_on(
    state: FleetState, ground: Ground, worker: Registration
) -> tuple[Blocker, ...]:
    """As `blockers`, of a worker of the WorkerSet that stands on ``ground``."""
    nobody = ()  # who is live besides decides nothing that is not in the ground
    meaning = SetMeaning(
        worker.set_key, ground.members, nobody, ground.missing_roles, ground.weight
    )
    return tuple(blockers(state, meaning, worker))


def _live_roles(state: FleetState, key: WorkerSetKey) -> Iterator[Role]:
    for other, members in state.models[key.model].items():
        if other.namespace == key.namespace and any(
            is_live(state, worker) for worker in members.workers.values()
        ):
            yield other.role


def ripples(
    before: FleetState, after: FleetState, changes: Iterable[FleetChange]
) -> frozenset[ModelName]:
    """The models of which other workers than those in ``changes`` may look different.

    ``changes`` lead from one state to the other. A model that is not named here means
    to all others what it meant.
    """
    return frozenset(
        name for change in changes for name in _rippled(before, after, change)
    )


def _rippled(
    before: FleetState, after: FleetState, change: FleetChange
) -> Iterator[ModelName]:
    match change:
        case WorkerPut(worker):
            yield from _of_worker(before, after, worker.key)
        case WorkerGone(namespace, worker_id):
            yield from _of_worker(before, after, (namespace, worker_id))
        case SetPut(key) | SetGone(key):
            yield key.model
        case SettingPut(setting):
            yield from _of_setting(after, setting.key)
        case SettingGone(setting_key):
            yield from _of_setting(after, setting_key)
        case KnownPut() | KnownGone():
            return
        case _:
            assert_never(change)


def _of_worker(
    before: FleetState, after: FleetState, key: WorkerKey
) -> Iterator[ModelName]:
    old, new = before.workers.get(key), after.workers.get(key)
    was = old is not None and is_live(before, old)
    now = new is not None and is_live(after, new)
    if not was and not now:
        return
    if was and now and old.set_key == new.set_key:
        return
    yield from {worker.model for worker in (old, new) if worker is not None}


def _of_setting(state: FleetState, key: SettingKey) -> Iterator[ModelName]:
    match key:
        case ("hold", namespace, worker_id):
            worker = state.workers.get((namespace, worker_id))
            if worker is not None:
                yield worker.model
        case ("weight", _, "*"):
            yield from state.models
        case ("weight", _, model):
            yield model
