"""The fleet as the log says it is: entities, their changes, and the one way to apply.

The leader's fold and a router's apply are the same function over the same changes, so
a router's state is the fold of a prefix of the log by construction.

Invariants of `FleetState`:
- ``seats`` holds each worker with the hash of its `WorkerPut`;
- ``models`` holds exactly the workers of ``seats``, each under its WorkerSet's key;
- a WorkerSet is there iff it has a worker or an order of cohorts;
- ``adapters`` names exactly the adapters that workers have loaded;
- ``total`` is the sum of the hashes of all entities: workers, sets with the order of
  their cohorts, settings, known names.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, TypeAlias, assert_never

import msgspec
from immutables import Map

from events import Checksum, ModelName, Needs, Status, WorkerId

from . import digest
from .entities import (
    FleetChange,
    KnownGone,
    KnownPut,
    Put,
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


class Members(msgspec.Struct, eq=False, gc=False):
    """A WorkerSet: its workers and the order of its checksums. Never changed in place.

    ``ready`` is worked out once, at the first look, and kept: it depends on nothing
    but this object.
    """

    workers: Map[WorkerId, Registration]
    cohorts: tuple[Checksum, ...]
    counts: dict[Checksum, int]
    """How many workers each checksum has."""
    _ready: tuple[Registration, ...] | None = None

    def __eq__(self, other: object) -> bool:
        """Whether both have the same workers and order of cohorts."""
        if not isinstance(other, Members):
            return NotImplemented
        return self.workers == other.workers and self.cohorts == other.cohorts

    __hash__ = None  # type: ignore[assignment]

    @property
    def checksum(self) -> Checksum | None:
        """The checksum in force: the incumbents'."""
        return self.cohorts[0] if self.cohorts else None

    @property
    def ready(self) -> tuple[Registration, ...]:
        """The admitted workers that say they are ready, in order of their ids."""
        if self._ready is None:
            incumbent = self.checksum
            found = [
                worker
                for worker in self.workers.values()
                if worker.status is Status.READY and worker.checksum == incumbent
            ]
            found.sort(key=lambda worker: worker.worker_id)
            self._ready = tuple(found)
        return self._ready

    @property
    def needs(self) -> Needs:
        """What the incumbents need; all of them need the same."""
        incumbent = self.checksum
        for worker in self.workers.values():
            if worker.checksum == incumbent:
                return worker.needs
        return ()


NO_MEMBERS: Final = Members(Map(), (), {})
Sets: TypeAlias = "Map[WorkerSetKey, Members]"


class Seat(msgspec.Struct, frozen=True, gc=False):
    """A worker with what is worked out of it once: each event looks at both again."""

    worker: Registration
    set_key: WorkerSetKey
    hash: int
    """What it adds to the digest."""


class Workers(Mapping[WorkerKey, Registration]):
    """The workers of a fleet by their keys: its seats, without the hashes."""

    __slots__ = ("_seats",)

    def __init__(self, seats: Map[WorkerKey, Seat]) -> None:
        """Show the workers of ``seats``."""
        self._seats = seats

    def __getitem__(self, key: WorkerKey) -> Registration:
        """The worker of this key; raises KeyError."""
        return self._seats[key].worker

    def get(self, key: WorkerKey, default: Any = None) -> Any:  # noqa: ANN401 - as a dict's
        """The worker of this key, or ``default``."""
        seat = self._seats.get(key)
        return default if seat is None else seat.worker

    def __iter__(self) -> Iterator[WorkerKey]:
        """The keys, in no particular order."""
        return iter(self._seats)

    def __len__(self) -> int:
        """How many workers there are."""
        return len(self._seats)


class FleetState(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The whole fleet of a cell at one position. See the module for its invariants."""

    seats: Map[WorkerKey, Seat] = Map()
    models: Map[ModelName, Sets] = Map()
    adapters: Map[ModelName, Map[WorkerKey, None]] = Map()
    settings: Map[SettingKey, Setting] = Map()
    known: Map[ModelName, KnownPut] = Map()
    total: int = 0

    @property
    def workers(self) -> Workers:
        """Every worker by its key."""
        return Workers(self.seats)

    @property
    def digest(self) -> str:
        """32 hex digits that equal fleets share."""
        return digest.digest_text(self.total)

    def members(self, key: WorkerSetKey) -> Members | None:
        """The WorkerSet of this key."""
        sets = self.models.get(key.model)
        return None if sets is None else sets.get(key)

    def entities(self) -> Iterable[Put]:
        """Everything the digest covers, in no particular order."""
        yield from (WorkerPut(seat.worker) for seat in self.seats.values())
        for sets in self.models.values():
            yield from (SetPut(k, m.cohorts) for k, m in sets.items() if m.cohorts)
        yield from (SettingPut(setting) for setting in self.settings.values())
        yield from self.known.values()


EMPTY: Final = FleetState()


def apply(state: FleetState, changes: Iterable[FleetChange]) -> FleetState:
    """The fleet after ``changes``. Total: putting replaces, removing tolerates."""
    draft = _Draft(state)
    for change in changes:
        if isinstance(change, WorkerPut):  # nearly all are; a match costs more
            draft.put_worker(change)
            continue
        match change:
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


def build(puts: Iterable[Put]) -> FleetState:
    """The fleet of these entities: as `apply` on the empty one, in one go."""
    seats: dict[WorkerKey, Seat] = {}
    cohorts: dict[WorkerSetKey, tuple[Checksum, ...]] = {}
    settings: dict[SettingKey, Setting] = {}
    known: dict[ModelName, KnownPut] = {}
    for put in puts:
        if isinstance(put, WorkerPut):  # nearly all are; a match costs more
            worker = put.worker
            seat = Seat(worker, worker.set_key, digest.entity_hash(put))
            seats[worker.key] = seat
            continue
        match put:
            case SetPut(key, order):
                cohorts[key] = order
            case SettingPut(setting):
                settings[setting.key] = setting
            case KnownPut(name):
                known[name] = put
            case _:
                assert_never(put)
    workers = [seat.worker for seat in seats.values()]
    models = _hierarchy(seats.values(), cohorts)
    others = [
        *(SetPut(key, order) for key, order in cohorts.items() if order),
        *map(SettingPut, settings.values()),
        *known.values(),
    ]
    total = digest.total_of(others, sum(seat.hash for seat in seats.values()))
    return FleetState(
        seats=Map(seats),
        models=models,
        adapters=_by_adapter(workers),
        settings=Map(settings),
        known=Map(known),
        total=total,
    )


def _hierarchy(
    seats: Iterable[Seat],
    cohorts: dict[WorkerSetKey, tuple[Checksum, ...]],
) -> Map[ModelName, Sets]:
    members: dict[WorkerSetKey, dict[WorkerId, Registration]]
    members = {key: {} for key, order in cohorts.items() if order}
    for seat in seats:
        members.setdefault(seat.set_key, {})[seat.worker.worker_id] = seat.worker
    models: dict[ModelName, dict[WorkerSetKey, Members]] = {}
    for key, found in members.items():
        counts = dict(Counter(worker.checksum for worker in found.values()))
        group = Members(Map(found), cohorts.get(key, ()), counts)
        models.setdefault(key.model, {})[key] = group
    return Map({name: Map(sets) for name, sets in models.items()})


def _by_adapter(
    workers: Iterable[Registration],
) -> Map[ModelName, Map[WorkerKey, None]]:
    having: dict[ModelName, dict[WorkerKey, None]] = {}
    for worker in workers:
        for name in worker.adapters:
            having.setdefault(name, {})[worker.key] = None
    return Map({name: Map[WorkerKey, None](keys) for name, keys in having.items()})


def _stays(old: Registration, new: Registration) -> bool:
    """Whether a worker stays in its WorkerSet with its checksum.

    Nearly every event leaves that as it is, and then no count changes.
    """
    return (
        old.checksum == new.checksum
        and old.model == new.model
        and old.role is new.role
        and old.component == new.component
        and old.endpoint == new.endpoint
    )


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
        key = worker.key
        old = self.seats.get(key)
        stays = old is not None and _stays(old.worker, worker)
        set_key = old.set_key if old is not None and stays else worker.set_key
        seat = Seat(worker, set_key, digest.entity_hash(put))
        self.seats = self.seats.set(key, seat)
        if old is not None and stays:
            self.total = (self.total - old.hash + seat.hash) % digest.MODULUS
            sets = self.models[set_key.model]
            members = sets[set_key]
            workers = members.workers.set(worker.worker_id, worker)
            members = Members(workers, members.cohorts, members.counts)
            self.models = self.models.set(set_key.model, sets.set(set_key, members))
            if old.worker.adapters != worker.adapters:
                self._unload(old.worker)
                self._load(worker)
            return
        if old is not None:
            self._leave(old)
        self.total = (self.total + seat.hash) % digest.MODULUS
        members = self._members(set_key)
        counts = dict(members.counts)
        counts[worker.checksum] = counts.get(worker.checksum, 0) + 1
        workers = members.workers.set(worker.worker_id, worker)
        self._keep(set_key, Members(workers, members.cohorts, counts))
        self._load(worker)

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
        self._unload(old)

    def _load(self, worker: Registration) -> None:
        for name in worker.adapters:
            having = self.adapters.get(name, Map())
            self.adapters = self.adapters.set(name, having.set(worker.key, None))

    def _unload(self, worker: Registration) -> None:
        for name in worker.adapters:
            having = self.adapters[name].delete(worker.key)
            self.adapters = (
                self.adapters.set(name, having)
                if having
                else self.adapters.delete(name)
            )

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
