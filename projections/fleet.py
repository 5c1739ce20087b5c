"""The fleet as the log says it is, and as it is built from its entities.

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
from typing import Any, Final, Protocol, TypeAlias, assert_never

import msgspec
from immutables import Map

from events import Checksum, ModelName, Needs, Status, WorkerId

from . import digest
from .entities import (
    KnownPut,
    Put,
    Registration,
    SetPut,
    Setting,
    SettingKey,
    SettingPut,
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

    def __ne__(self, other: object) -> bool:
        """Whether they are not equal: a Struct has an answer of its own to this."""
        return not self == other

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
Adapters: TypeAlias = "Map[ModelName, Map[WorkerKey, None]]"


class Cohorts(Protocol):
    """A WorkerSet, as far as admission looks at it."""

    @property
    def cohorts(self) -> tuple[Checksum, ...]:
        """Its checksums in order of first registration."""
        ...

    @property
    def counts(self) -> Mapping[Checksum, int]:
        """How many workers each has."""
        ...


class FleetSoFar(Protocol):
    """A fleet, as far as decisions on one worker look at it."""

    @property
    def known(self) -> Map[ModelName, KnownPut]:
        """Names that were served at some time."""
        ...

    def members(self, key: WorkerSetKey) -> Cohorts | None:
        """The WorkerSet of this key."""
        ...


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
    adapters: Adapters = Map()
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
) -> Adapters:
    having: dict[ModelName, dict[WorkerKey, None]] = {}
    for worker in workers:
        for name in worker.adapters:
            having.setdefault(name, {})[worker.key] = None
    return Map({name: Map[WorkerKey, None](keys) for name, keys in having.items()})
