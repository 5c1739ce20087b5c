"""Folding many records at once: what they change together, and then one change.

Nobody sees the states between, so a worker that says ten things is hashed and put in
its place once. The decisions are those of `step`, record by record, over what stands
so far; only what follows from them waits. `fold_all` is `step` again and again, for
less; a property test holds it to that.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar, cast

import msgspec
from immutables import Map

from events import (
    Checksum,
    PortClaimed,
    PortReleased,
    Record,
    Revision,
    WorkerEvent,
    WorkerRegistered,
)

from .applying import apply, stays
from .deciding import AnyWorkerEvent, Refusal, decide_worker
from .digest import MODULUS, total_of
from .entities import (
    FleetChange,
    KnownPut,
    Registration,
    SetGone,
    SetPut,
    WorkerGone,
    WorkerKey,
    WorkerPut,
    WorkerSetKey,
)
from .fleet import NO_MEMBERS
from .fold import FoldState, claim_refusal, release_refusal, step, with_refusal
from .lives_so_far import LivesSoFar, OpenLife
from .port import Held, PortKey, PortState, PortTable, decide_claim, decide_release

K = TypeVar("K")
V = TypeVar("V")


def fold_all(state: FoldState, records: Iterable[Record]) -> FoldState:
    """The state after all ``records``, in their order."""
    batch = Folding(state)
    for record in records:
        batch.add(record)
    return batch.settled()


class _Standing(msgspec.Struct):
    """A WorkerSet's cohorts and how many workers each has, so far."""

    cohorts: tuple[Checksum, ...]
    counts: dict[Checksum, int]


class _Overlay(dict[K, V]):
    """Changes over a map that stays as it is: what is not among them is looked up."""

    __slots__ = ("_below",)

    def __init__(self, below: Map[K, V]) -> None:
        super().__init__()
        self._below = below

    def get(self, key: K, default: Any = None) -> Any:  # noqa: ANN401 - as a dict's
        return self[key] if key in self else self._below.get(key, default)

    def __missing__(self, key: K) -> V:
        return self._below[key]


def _over(below: Map[K, V]) -> dict[K, V]:
    """Nothing is looked up in what is empty, as at the beginning of a replay."""
    return _Overlay(below) if below else {}


class _Ports:
    """The port table, changed in place, and hashed where it is another at the end."""

    __slots__ = ("_before", "ports", "revisions")

    def __init__(self, table: PortTable) -> None:
        self._before = table
        self.ports: dict[PortKey, PortState] = _over(table.ports)
        self.revisions: dict[PortKey, Revision] = {}

    def finish(self) -> PortTable:
        before = self._before
        gone = total_of(
            before.ports[key] for key in self.ports.keys() & before.ports.keys()
        )
        total = total_of(self.ports.values(), before.total)
        return PortTable(
            ports=before.ports.update(self.ports),
            revisions=before.revisions.update(self.revisions),
            total=(total - gone) % MODULUS,
        )


class _Now(msgspec.Struct, gc=False):
    """A worker so far, and its life."""

    worker: Registration | None
    life: OpenLife | None
    moved: bool = False
    """Whether it is another than it was at the beginning."""


class Folding:
    """A fold in progress. To those who decide it is the fleet so far.

    For a history that comes in pieces: the longer it lasts, the less an event costs.
    It holds what changed and is still there; what came and went leaves nothing.
    """

    def __init__(self, state: FoldState) -> None:
        """Go on from ``state``, which stays as it is."""
        self._begin(state)

    def _begin(self, state: FoldState) -> None:
        self._state, self._fleet = state, state.fleet_state
        self._workers: dict[WorkerKey, _Now] = {}
        self._sets: dict[WorkerSetKey, SetPut | SetGone] = {}
        self._learnt: list[KnownPut] = []
        self.known = self._fleet.known
        self._standing: dict[WorkerSetKey, _Standing] = {}
        # Lives and ports as far as those who decide look at them.
        self._lives = LivesSoFar(state.lives)
        self._ports, self._anomalies = _Ports(state.ports), state.anomalies
        self._last: Record | None = None

    def add(self, record: Record) -> None:
        """Fold one record more."""
        event = record.event
        if isinstance(event, WorkerEvent):
            refusal = self._add_worker(event, record)
        elif isinstance(event, PortClaimed):
            refusal = self._add_claim(event, record)
        elif isinstance(event, PortReleased):
            refusal = self._add_release(event, record)
        else:  # rare, and about more than one worker
            self._begin(step(self.settled(), record).state)
            return
        if refusal is not None:
            self._anomalies = with_refusal(self._anomalies, refusal, record)
        self._last = record

    def settled(self) -> FoldState:
        """The state so far. Nothing can be added any more."""
        last = self._last
        if last is None:
            return self._state
        changes: list[FleetChange] = []
        for key, now in self._workers.items():
            if now.moved:
                changes.append(
                    WorkerPut(now.worker) if now.worker else WorkerGone(*key)
                )
        changes += self._sets.values()
        changes += self._learnt
        return FoldState(
            fleet_state=apply(self._fleet, changes),
            ports=self._ports.finish(),
            lives=self._lives.finish(),
            drains=self._state.drains,
            anomalies=self._anomalies,
            revision=last.revision,
            fingerprint=last.fingerprint,
            recorded_at=last.recorded_at,
        )

    def members(self, key: WorkerSetKey) -> _Standing:
        """The WorkerSet of this key, so far; without cohorts if there is none."""
        standing = self._standing.get(key)
        if standing is None:
            found = self._fleet.members(key) or NO_MEMBERS
            standing = _Standing(found.cohorts, dict(found.counts))
            self._standing[key] = standing
        return standing

    # Each gives why the record changed nothing, if it did not.

    def _add_worker(self, event: AnyWorkerEvent, record: Record) -> Refusal | None:
        key = (event.namespace, event.worker_id)
        now = self._workers.get(key) or self._find(key)
        before, life = now.worker, now.life
        outcome = decide_worker(self, event, before, record.recorded_at)
        if isinstance(outcome, Refusal):
            if before is None:
                self._forget(key)
            elif life is not None:
                life.last = record.revision
            return outcome
        first = outcome[0]
        after = first.worker if isinstance(first, WorkerPut) else None
        now.worker, now.moved = after, True
        if after is None or isinstance(event, WorkerRegistered):
            self._turn_over(now, before, after, record.revision)
        elif life is not None:  # most do no more than that
            life.last = record.revision
        if len(outcome) > 1:
            self._follow(outcome[1:])
        if after is None:
            self._forget(key)
        return None

    def _add_claim(self, event: PortClaimed, record: Record) -> Refusal | None:
        key, ports = (event.host, event.port), self._ports
        ports.revisions[key] = record.revision
        held = decide_claim(cast("PortTable", ports), event, record.recorded_at)
        if held is None:
            return claim_refusal(ports.ports[key], event)
        ports.ports[key] = held
        self._lives.claim(held.owner, held.lease_ttl_s, key)
        return None

    def _add_release(self, event: PortReleased, record: Record) -> Refusal | None:
        key, ports = (event.host, event.port), self._ports
        before = ports.ports.get(key)
        ports.revisions[key] = record.revision
        resting = decide_release(cast("PortTable", ports), event, record.recorded_at)
        if resting is None:
            return release_refusal(before)
        ports.ports[key] = resting
        if isinstance(before, Held):
            self._lives.release(before.owner, key)
        return None

    def _find(self, key: WorkerKey) -> _Now:
        """A worker that nothing was said of so far."""
        seat = self._fleet.seats.get(key)
        if seat is None:
            now = _Now(None, None)
        else:
            now = _Now(seat.worker, self._lives.find(seat.worker.life_key))
        self._workers[key] = now
        return now

    def _forget(self, key: WorkerKey) -> None:
        """Keep nothing of a worker that came and went."""
        if key not in self._fleet.seats:
            del self._workers[key]

    def _turn_over(
        self,
        now: _Now,
        before: Registration | None,
        after: Registration | None,
        revision: Revision,
    ) -> None:
        """A worker came, went or said again what it is."""
        if before is None or after is None or not stays(before, after):
            self._count(before, -1)
            self._count(after, 1)
        life = now.life
        if before and after and before.incarnation == after.incarnation:
            if life is not None:
                life.lease_ttl_s, life.last = after.lease_ttl_s, revision
            return
        if life is not None:
            self._lives.unregister(life)
        now.life = None
        if after is not None:
            now.life = self._lives.register(after.life_key, after.lease_ttl_s, revision)

    def _follow(self, changes: tuple[FleetChange, ...]) -> None:
        """Note what a worker's change brings about: in sets, and of known names."""
        for change in changes:
            if isinstance(change, SetGone):
                self._drop_set(change)
            elif isinstance(change, SetPut):
                self._sets[change.key] = change
                self.members(change.key).cohorts = change.cohorts
            else:
                assert isinstance(change, KnownPut)  # noqa: S101 - there is no other
                self._learnt.append(change)
                self.known = self.known.set(change.name, change)

    def _drop_set(self, gone: SetGone) -> None:
        """Nobody is left in a WorkerSet."""
        if self._fleet.members(gone.key) is None:
            self._sets.pop(gone.key, None)
            del self._standing[gone.key]
        else:
            self._sets[gone.key] = gone
            self.members(gone.key).cohorts = ()

    def _count(self, worker: Registration | None, more: int) -> None:
        if worker is not None:
            counts = self.members(worker.set_key).counts
            counts[worker.checksum] = counts.get(worker.checksum, 0) + more
