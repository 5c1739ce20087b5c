"""Which models mean something else after a record: to workers it does not name.

What a worker may get depends on others: on the checksum in force, on live workers of
the roles it needs, on settings. To look at everybody after every record costs too much
for a long log. Most records change only the worker that they are about; this tells
them from the rest, and never errs on the quick side.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import assert_never

from events import ModelName, Status

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
)
from .fleet import FleetState
from .readiness import is_held


def is_live(state: FleetState, worker: Registration) -> bool:
    """Whether ``worker``, as ``state`` has it, is ready, admitted and not held."""
    if worker.status is not Status.READY:
        return False
    members = state.members(worker.set_key)
    if members is None or members.checksum != worker.checksum:
        return False
    return not is_held(state, worker)


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
