"""What differs for workers between two views, in the order that is safe to follow."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Literal, TypeAlias

import msgspec

from events import ModelName, Revision, WorkerId

from .entities import (
    FleetChange,
    Hold,
    Registration,
    SetGone,
    SetPut,
    SettingGone,
    SettingPut,
    WorkerGone,
    WorkerKey,
    WorkerPut,
)
from .readiness import SetMeaning
from .view import Fleet, Worker

_Workers: TypeAlias = Mapping[WorkerId, Registration]


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """A worker as it is now and as it was; ``worker`` is None when it was removed."""

    kind: Literal["added", "changed", "removed"]
    worker: Worker | None
    before: Worker | None
    revision: Revision


class Touched:
    """Which workers may look different after some changes of the fleet."""

    def __init__(self) -> None:
        """Nothing yet."""
        self.workers: set[WorkerKey] = set()
        self.models: set[ModelName] = set()
        self.everything = False

    def __bool__(self) -> bool:
        """Whether there is anything to look at."""
        return self.everything or bool(self.workers or self.models)

    def add(self, changes: Iterable[FleetChange], before: Fleet) -> None:
        """Note what ``changes`` may concern; ``before``: the fleet before them."""
        for change in changes:
            match change:
                case WorkerPut(worker):
                    self._note(worker.key, before)
                    self.models.add(worker.model)
                case WorkerGone(namespace, worker_id):
                    self._note((namespace, worker_id), before)
                case SetPut(set_key) | SetGone(set_key):
                    self.models.add(set_key.model)
                case SettingPut() | SettingGone():
                    self.everything = True
                case _:
                    continue

    def _note(self, key: WorkerKey, before: Fleet) -> None:
        """A worker, and the model that it may have left: others may miss its role."""
        self.workers.add(key)
        old = before.state.workers.get(key)
        if old is not None:
            self.models.add(old.model)


def worker_changes(before: Fleet, after: Fleet, touched: Touched) -> list[Change]:
    """How the workers in ``touched`` differ: removed, then changed, then added.

    A worker is also looked at when its WorkerSet means something else now: other
    missing roles, weight or checksum. Each list is in the order of namespace and id.
    """
    models = touched.models
    keys = set(touched.workers)
    if touched.everything:
        models = {*before.state.models, *after.state.models}
        keys.update(_held_otherwise(before, after))
    for model in models:
        keys.update(_shifted(before, after, model))
    removed: list[Change] = []
    changed: list[Change] = []
    added: list[Change] = []
    for key in sorted(keys):
        old, new = before.worker(*key), after.worker(*key)
        if old == new:
            continue
        group = removed if new is None else added if old is None else changed
        kind: Literal["added", "changed", "removed"] = (
            "removed" if new is None else "added" if old is None else "changed"
        )
        group.append(Change(kind=kind, worker=new, before=old, revision=after.revision))
    return [*removed, *changed, *added]


def _shifted(before: Fleet, after: Fleet, model: ModelName) -> Iterator[WorkerKey]:
    """Workers of the model that may look different; WorkerSets alike are passed over.

    Most of a fleet is alike after a resync, and comparing sets is cheap where deriving
    each worker is not.
    """
    old, new = before.sets(model), after.sets(model)
    for key in {*old, *new}:
        was, now = old.get(key), new.get(key)
        had = {} if was is None else was.members.workers
        has = {} if now is None else now.members.workers
        if was is None or now is None or _means_same(was, now):
            ids = _differing(had, has)
        else:
            ids = {*had, *has}
        for worker_id in ids:
            yield (key.namespace, worker_id)


def _means_same(was: SetMeaning, now: SetMeaning) -> bool:
    return (was.missing_roles, was.weight, was.members.checksum) == (
        now.missing_roles,
        now.weight,
        now.members.checksum,
    )


def _differing(had: _Workers, has: _Workers) -> set[WorkerId]:
    if had is has or had == has:
        return set()
    ids = {worker_id for worker_id in had if worker_id not in has}
    ids.update(w for w, worker in has.items() if had.get(w) != worker)
    return ids


def _held_otherwise(before: Fleet, after: Fleet) -> Iterator[WorkerKey]:
    """Workers whose hold came or went."""
    old, new = before.state.settings, after.state.settings
    if old is new:
        return
    for settings, others in ((old, new), (new, old)):
        for key, setting in settings.items():
            match setting:
                case Hold(namespace=namespace, worker_id=worker_id) if (
                    key not in others
                ):
                    yield (namespace, worker_id)
