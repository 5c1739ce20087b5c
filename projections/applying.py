"""The one way to change a fleet.

The leader's fold and a router's apply are the same function over the same changes, so
a router's state is the fold of a prefix of the log by construction.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import assert_never

from immutables import Map

from events import Checksum, ModelName

from . import digest
from .entities import (
    FleetChange,
    KnownGone,
    KnownPut,
    Registration,
    SetGone,
    SetPut,
    Setting,
    SettingGone,
    SettingKey,
    SettingPut,
    WorkerGone,
    WorkerKey,
    WorkerPut,
    WorkerSetKey,
)
from .fleet import NO_MEMBERS, Adapters, FleetState, Members, Seat, Sets


def apply(state: FleetState, changes: Iterable[FleetChange]) -> FleetState:
    """The fleet after ``changes``. Total: putting replaces, removing tolerates."""
    changes = tuple(changes)
    return _amended(state, changes) or _drafted(state, changes)


def _drafted(state: FleetState, changes: Iterable[FleetChange]) -> FleetState:
    draft = _Draft(state)
    for change in changes:
        match change:
            case WorkerPut():
                draft.put_worker(change)
            case WorkerGone(namespace, worker_id):
                draft.drop_worker((namespace, worker_id))
            case SetPut(key, cohorts):
                draft.order_cohorts(key, cohorts)
            case SetGone(key):
                draft.order_cohorts(key, ())
            case SettingPut(setting):
                draft.put_setting(setting)
            case SettingGone(setting_key):
                draft.drop_setting(setting_key)
            case KnownPut():
                draft.learn(change)
            case KnownGone(name):
                draft.forget(name)
            case _:
                assert_never(change)
    return draft.finish()


def stays(old: Registration, new: Registration) -> bool:
    """Whether a worker stays in its WorkerSet, with its checksum."""
    return (
        old.checksum == new.checksum
        and old.model == new.model
        and old.role is new.role
        and old.component == new.component
        and old.endpoint == new.endpoint
    )


def _amended(state: FleetState, changes: tuple[FleetChange, ...]) -> FleetState | None:
    """The fleet after one worker changed and stayed where it was; None: it is more.

    Nearly every event does just that, and what `_Draft` does besides changes nothing.
    """
    put = changes[0] if len(changes) == 1 else None
    if not isinstance(put, WorkerPut):
        return None
    worker = put.worker
    key = worker.key
    old = state.seats.get(key)
    if old is None:
        return None
    was = old.worker
    if not stays(was, worker):
        return None
    set_key, model, added = old.set_key, worker.model, digest.entity_hash(put)
    models = state.models
    sets = models[model]
    members = sets[set_key]
    workers = members.workers.set(worker.worker_id, worker)
    members = Members(workers, members.cohorts, members.counts)
    return FleetState(
        seats=state.seats.set(key, Seat(worker, set_key, added)),
        models=models.set(model, sets.set(set_key, members)),
        adapters=_reloaded(state.adapters, was, worker),
        settings=state.settings,
        known=state.known,
        total=(state.total - old.hash + added) % digest.MODULUS,
    )


def _reloaded(adapters: Adapters, old: Registration, new: Registration) -> Adapters:
    """Who has which adapters after a worker changed."""
    if old.adapters == new.adapters:
        return adapters
    return _with_adapters(_without_adapters(adapters, old), new)


def _with_adapters(adapters: Adapters, worker: Registration) -> Adapters:
    for name in worker.adapters:
        having = adapters.get(name, Map())
        adapters = adapters.set(name, having.set(worker.key, None))
    return adapters


def _without_adapters(adapters: Adapters, worker: Registration) -> Adapters:
    for name in worker.adapters:
        having = adapters[name].delete(worker.key)
        adapters = adapters.set(name, having) if having else adapters.delete(name)
    return adapters


class _Draft:
    """A fleet being changed; `finish` freezes it. Lives within one `apply`."""

    __slots__ = ("adapters", "known", "models", "seats", "settings", "total")

    def __init__(self, state: FleetState) -> None:
        self.seats, self.models = state.seats, state.models
        self.adapters, self.settings = state.adapters, state.settings
        self.known, self.total = state.known, state.total

    def finish(self) -> FleetState:
        return FleetState(
            seats=self.seats,
            models=self.models,
            adapters=self.adapters,
            settings=self.settings,
            known=self.known,
            total=self.total,
        )

    def put_worker(self, put: WorkerPut) -> None:
        worker = put.worker
        key, set_key = worker.key, worker.set_key
        old = self.seats.get(key)
        if old is not None:
            self._leave(old)
        seat = Seat(worker, set_key, digest.entity_hash(put))
        self.seats = self.seats.set(key, seat)
        self.total = (self.total + seat.hash) % digest.MODULUS
        members = self._members(set_key)
        counts = dict(members.counts)
        counts[worker.checksum] = counts.get(worker.checksum, 0) + 1
        workers = members.workers.set(worker.worker_id, worker)
        self._keep(set_key, Members(workers, members.cohorts, counts))
        self.adapters = _with_adapters(self.adapters, worker)

    def drop_worker(self, key: WorkerKey) -> None:
        old = self.seats.get(key)
        if old is not None:
            self._leave(old)
            self.seats = self.seats.delete(key)

    def _leave(self, seat: Seat) -> None:
        """Take a worker out of its set, its adapters and the digest."""
        self.total = (self.total - seat.hash) % digest.MODULUS
        old, key = seat.worker, seat.set_key
        members = self._members(key)
        counts = dict(members.counts)
        counts[old.checksum] -= 1
        if not counts[old.checksum]:
            del counts[old.checksum]
        workers = members.workers.delete(old.worker_id)
        self._keep(key, Members(workers, members.cohorts, counts))
        self.adapters = _without_adapters(self.adapters, old)

    def order_cohorts(self, key: WorkerSetKey, cohorts: tuple[Checksum, ...]) -> None:
        members = self._members(key)
        if members.cohorts:
            self.total = digest.remove(self.total, SetPut(key, members.cohorts))
        if cohorts:
            self.total = digest.add(self.total, SetPut(key, cohorts))
        self._keep(key, Members(members.workers, cohorts, members.counts))

    def put_setting(self, setting: Setting) -> None:
        self.drop_setting(setting.key)
        self.settings = self.settings.set(setting.key, setting)
        self.total = digest.add(self.total, SettingPut(setting))

    def drop_setting(self, key: SettingKey) -> None:
        old = self.settings.get(key)
        if old is not None:
            self.total = digest.remove(self.total, SettingPut(old))
            self.settings = self.settings.delete(key)

    def learn(self, known: KnownPut) -> None:
        if known.name not in self.known:
            self.known = self.known.set(known.name, known)
            self.total = digest.add(self.total, known)

    def forget(self, name: ModelName) -> None:
        if name in self.known:
            self.total = digest.remove(self.total, self.known[name])
            self.known = self.known.delete(name)

    def _members(self, key: WorkerSetKey) -> Members:
        sets = self.models.get(key.model)
        return NO_MEMBERS if sets is None else sets.get(key, NO_MEMBERS)

    def _keep(self, key: WorkerSetKey, members: Members) -> None:
        sets: Sets = self.models.get(key.model, Map())
        if members.workers or members.cohorts:
            sets = sets.set(key, members)
        elif key in sets:
            sets = sets.delete(key)
        if sets:
            self.models = self.models.set(key.model, sets)
        elif key.model in self.models:
            self.models = self.models.delete(key.model)
