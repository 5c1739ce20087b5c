"""Which record made each difference between two moments of one log."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, TypeVar

import msgspec

from events import Record, Revision

from .delta import entity_key
from .differing import (
    FleetDifference,
    OtherDifference,
    WorkerDifference,
    differences,
)
from .entities import (
    FleetChange,
    KnownGone,
    Registration,
    SetGone,
    SettingGone,
    WorkerGone,
    WorkerKey,
    WorkerPut,
    WorkerSetKey,
)
from .fleet import FleetState
from .fold import FoldState, step
from .readiness import Blocker
from .rippling import blockers_on, ground_of, ripples
from .view import Fleet

_DERIVED: Final = frozenset({"routable", "blockers"})
_Key = tuple[str, ...]
_Named = TypeVar("_Named", WorkerDifference, OtherDifference)


def compare_fleets(
    before: Fleet, after: Fleet, records: Iterable[Record] = ()
) -> FleetDifference:
    """How ``after`` differs from ``before``, as `differences`.

    ``records``: those of their log, or at least the ones between the two: then each
    difference names the revision that made it. It may be the record of another worker:
    one that needs prefill is blocked by the farewell of the last prefill worker.
    """
    trail = Trail(before, after)
    trail.feed(records)
    return trail.result()


class Trail:
    """Follows the records between two fleets and notes what made each difference.

    The fleets may come in any order of time. What made a difference is the last record
    that did: of a worker that left and came back twice, the last time.
    """

    def __init__(self, before: Fleet, after: Fleet) -> None:
        """Compare the two; `feed` it the records after the earlier one."""
        self._found = found = differences(before, after)
        early, late = (before, after)
        if early.revision > late.revision:
            early, late = late, early
        self._late = late
        self._state = FoldState(fleet_state=early.state, revision=early.revision)
        self._stayed = {one.key: frozenset(one.fields) for one in found.changed}
        self._looks = self._first_looks(early)
        """The blockers, as they were last, of those whose blockers differ."""
        self._grounds = {
            key: ground_of(early.state, key)
            for key in {early.state.workers[name].set_key for name in self._looks}
        }
        """What the WorkerSets of those have in common."""
        self._wanted: set[_Key] = {
            ("worker", *one.key)
            for one in (*found.removed, *found.changed, *found.added)
        }
        self._wanted.update(one.key for one in found.others)
        self._made: dict[_Key, Revision] = {}

    def _first_looks(self, early: Fleet) -> dict[WorkerKey, tuple[Blocker, ...]]:
        workers = early.state.workers  # none in a fleet that was read: it has no log
        shown = ((one.key, early.worker(*one.key)) for one in self._found.changed)
        return {
            key: worker.blockers
            for key, worker in shown
            if worker is not None and key in workers and self._stayed[key] & _DERIVED
        }

    def feed(self, records: Iterable[Record]) -> None:
        """Take more of the log, in its order. What is not between the two is left."""
        for record in records:
            if record.revision > self._late.revision:
                return
            if record.revision > self._state.revision:
                self._follow(record)

    def result(self) -> FleetDifference:
        """The difference with revisions; without, if these are not moments of one log.

        That is so, too, when a record between them was not there to be fed.
        """
        if self._state.fleet_state.digest != self._late.digest:
            return self._found
        return msgspec.structs.replace(
            self._found,
            removed=self._dated(self._found.removed),
            changed=self._dated(self._found.changed),
            added=self._dated(self._found.added),
            others=self._dated(self._found.others),
        )

    def _dated(self, found: tuple[_Named, ...]) -> tuple[_Named, ...]:
        return tuple(
            msgspec.structs.replace(one, revision=self._made.get(_key_of(one)))
            for one in found
        )

    def _follow(self, record: Record) -> None:
        before = self._state.fleet_state
        folded = step(self._state, record)
        self._state, after = folded.state, folded.state.fleet_state
        own: set[WorkerKey] = set()
        for change in folded.changes:
            key = _place(change)
            own.update(self._named(key))
            if key not in self._wanted:
                continue
            if not isinstance(change, WorkerPut) or self._differs(
                before, change.worker
            ):
                self._made[key] = record.revision
        models = ripples(before, after, folded.changes) if self._looks else frozenset()
        if own or models:
            self._look_again(after, own, models, record.revision)

    def _named(self, key: _Key) -> Iterator[WorkerKey]:
        """Whose blockers a change of this entity decides by itself."""
        match key:
            case ("worker", namespace, worker_id) | (
                "setting",
                "hold",
                namespace,
                worker_id,
            ) if (namespace, worker_id) in self._looks:
                yield (namespace, worker_id)

    def _differs(self, before: FleetState, worker: Registration) -> bool:
        """Whether the record made what is different of the worker."""
        old = before.workers.get(worker.key)
        if old is None:
            return True
        names = self._stayed.get(worker.key, frozenset()) - _DERIVED
        return any(getattr(old, name) != getattr(worker, name) for name in names)

    def _look_again(
        self,
        after: FleetState,
        own: set[WorkerKey],
        models: frozenset[str],
        revision: Revision,
    ) -> None:
        """Note whose blockers the record changed."""
        for name in own:
            worker = after.workers.get(name)
            if worker is not None:
                self._grounds.setdefault(worker.set_key, None)
        named = {after.workers[name].model for name in own if name in after.workers}
        shifted = {
            key
            for key in self._grounds
            if key.model in models | named and self._shifts(after, key)
        }
        for name in self._looks if shifted else own:
            worker = after.workers.get(name)
            if worker is not None and (name in own or worker.set_key in shifted):
                self._look_at(after, worker, revision)

    def _shifts(self, after: FleetState, key: WorkerSetKey) -> bool:
        """Whether the ground of a WorkerSet is another now; it is noted."""
        was, now = self._grounds[key], ground_of(after, key)
        self._grounds[key] = now
        return now is not None and not now.means(was)

    def _look_at(
        self, after: FleetState, worker: Registration, revision: Revision
    ) -> None:
        ground = self._grounds[worker.set_key]
        assert ground is not None  # noqa: S101 - the worker is in that WorkerSet
        now = blockers_on(after, ground, worker)
        if now != self._looks[worker.key]:
            self._made["worker", *worker.key] = revision
        self._looks[worker.key] = now


def _key_of(one: WorkerDifference | OtherDifference) -> _Key:
    return one.key if isinstance(one, OtherDifference) else ("worker", *one.key)


def _place(change: FleetChange) -> _Key:
    """What a change is about, as `entity_key` says it."""
    match change:
        case WorkerGone(namespace, worker_id):
            return ("worker", namespace, worker_id)
        case SetGone(key):
            return ("set", *key.sort_key())
        case SettingGone(setting_key):
            return ("setting", *setting_key)
        case KnownGone(name):
            return ("known", name)
        case put:
            return entity_key(put)
