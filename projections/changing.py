"""What differs for workers between two views, in the order that is safe to follow."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import msgspec

from events import ModelName, Revision

from .entities import (
    FleetChange,
    SetGone,
    SetPut,
    SettingGone,
    SettingPut,
    WorkerGone,
    WorkerKey,
    WorkerPut,
)
from .view import Fleet, Worker


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
    keys = touched.workers | _shifted(before, after, touched)
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


def _shifted(before: Fleet, after: Fleet, touched: Touched) -> set[WorkerKey]:
    """Workers of WorkerSets whose meaning changed, though they did not themselves."""
    if touched.everything:
        return {*before.state.workers, *after.state.workers}
    keys: set[WorkerKey] = set()
    for model in touched.models:
        old, new = before.sets(model), after.sets(model)
        for key, meaning in new.items():
            was = old.get(key)
            if was is None or (
                (was.missing_roles, was.weight, was.members.checksum)
                == (meaning.missing_roles, meaning.weight, meaning.members.checksum)
            ):
                continue
            keys.update((key.namespace, w) for w in meaning.members.workers)
    return keys
