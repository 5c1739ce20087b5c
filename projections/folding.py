"""Folding many records at once: what they change together, and then one change.

Nobody sees the states between, so a worker that says ten things is hashed and put in
its place once. The decisions are those of `step`, record by record, over what stands
so far; only what follows from them waits. `fold_all` is `step` again and again, for
less; a property test holds it to that.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

import msgspec

from events import (
    Checksum,
    PortClaimed,
    PortReleased,
    Record,
    Revision,
    WorkerEvent,
)

from .applying import apply, stays
from .deciding import Refusal, decide_worker
from .digest import MODULUS, total_of
from .entities import (
    FleetChange,
    KnownPut,
    Registration,
    SetGone,
    SetPut,
    WorkerKey,
    WorkerPut,
    WorkerSetKey,
)
from .fleet import NO_MEMBERS
from .fold import FoldState, claim, release, step, turn_over, with_refusal, worker_in
from .life import Life, LifeKey, Lives, touched
from .port import PortKey, PortState, PortTable


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


class _Lives:
    """Lives that are changed in place; `set` and `delete` give the same lives back."""

    __slots__ = ("_changing", "finish", "get")

    def __init__(self, frozen: Lives) -> None:
        self._changing = frozen.mutate()
        self.get, self.finish = self._changing.get, self._changing.finish

    def set(self, key: LifeKey, life: Life) -> _Lives:
        self._changing[key] = life
        return self

    def delete(self, key: LifeKey) -> _Lives:
        del self._changing[key]
        return self


class _Ports:
    """The port table, changed in place, and hashed where it is another at the end."""

    __slots__ = ("_before", "_changed", "_revisions", "ports")

    def __init__(self, table: PortTable) -> None:
        self._before, self._changed = table, set[PortKey]()
        self.ports, self._revisions = table.ports.mutate(), table.revisions.mutate()

    def put(self, state: PortState, revision: Revision) -> _Ports:
        key = (state.host, state.port)
        self.ports[key] = state
        self._changed.add(key)
        return self.touch(key, revision)

    def touch(self, key: PortKey, revision: Revision) -> _Ports:
        self._revisions[key] = revision
        return self

    def finish(self) -> PortTable:
        before = [self._before.ports.get(key) for key in self._changed]
        after = [self.ports[key] for key in self._changed]
        gone = total_of(state for state in before if state is not None)
        return PortTable(
            ports=self.ports.finish(),
            revisions=self._revisions.finish(),
            total=(total_of(after, self._before.total) - gone) % MODULUS,
        )


class Folding:
    """A fold in progress. To those who decide it is the fleet so far.

    For a history that comes in pieces: the longer it lasts, the less an event costs.
    """

    def __init__(self, state: FoldState) -> None:
        """Go on from ``state``, which stays as it is."""
        self._begin(state)

    def _begin(self, state: FoldState) -> None:
        self._state, self._fleet = state, state.fleet_state
        self._workers: dict[WorkerKey, FleetChange] = {}
        self._sets: dict[WorkerSetKey, SetPut | SetGone] = {}
        self._learnt: list[KnownPut] = []
        self.known = self._fleet.known
        self._standing: dict[WorkerSetKey, _Standing] = {}
        self._lives = _Lives(state.lives)
        self._touched: dict[LifeKey, Revision] = {}
        self._ports, self._anomalies = _Ports(state.ports), state.anomalies
        self._last: Record | None = None

    def add(self, record: Record) -> None:
        """Fold one record more."""
        event = record.event
        # Lives and ports as far as those who decide look at them.
        lives, ports = cast("Lives", self._lives), cast("PortTable", self._ports)
        if isinstance(event, WorkerEvent):
            key = (event.namespace, event.worker_id)
            before = after = self._worker(key)
            outcome = decide_worker(self, event, before, record.recorded_at)
            if not isinstance(outcome, Refusal):
                after = self._take(key, before, outcome)
            self._turn_over(before, after, record.revision)
        elif isinstance(event, PortClaimed):
            _, _, outcome = claim(ports, lives, event, record)
        elif isinstance(event, PortReleased):
            _, _, outcome = release(ports, lives, event, record)
        else:  # rare, and about more than one worker
            self._begin(step(self.settled(), record).state)
            return
        if isinstance(outcome, Refusal):
            self._anomalies = with_refusal(self._anomalies, outcome, record)
        self._last = record

    def settled(self) -> FoldState:
        """The state so far. Nothing can be added any more."""
        last = self._last
        if last is None:
            return self._state
        for key, revision in self._touched.items():
            touched(cast("Lives", self._lives), key, revision)
        changes: list[FleetChange] = [*self._workers.values(), *self._sets.values()]
        return FoldState(
            fleet_state=apply(self._fleet, [*changes, *self._learnt]),
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

    def _turn_over(
        self,
        before: Registration | None,
        after: Registration | None,
        revision: Revision,
    ) -> None:
        if before is not None:
            key = before.life_key
            if (
                after is not None
                and after.incarnation == before.incarnation
                and after.lease_ttl_s == before.lease_ttl_s
            ):
                self._touched[key] = revision  # most do no more than that
                return
            if (last := self._touched.pop(key, None)) is not None:
                touched(cast("Lives", self._lives), key, last)
        turn_over(cast("Lives", self._lives), before, after, revision)

    def _worker(self, key: WorkerKey) -> Registration | None:
        change = self._workers.get(key)
        if change is None:
            seat = self._fleet.seats.get(key)
            return None if seat is None else seat.worker
        return change.worker if isinstance(change, WorkerPut) else None

    def _take(
        self,
        key: WorkerKey,
        before: Registration | None,
        changes: tuple[FleetChange, ...],
    ) -> Registration | None:
        """Note the changes of a worker; gives what it is then."""
        after = worker_in(changes)
        if before is None or after is None or not stays(before, after):
            self._count(before, -1)
            self._count(after, 1)
        for change in changes:
            if isinstance(change, KnownPut):
                self._learnt.append(change)
                self.known = self.known.set(change.name, change)
            elif isinstance(change, SetPut | SetGone):
                self._sets[change.key] = change
                cohorts = change.cohorts if isinstance(change, SetPut) else ()
                self.members(change.key).cohorts = cohorts
            else:  # of the worker itself; nothing else comes of its events
                self._workers[key] = change
        return after

    def _count(self, worker: Registration | None, more: int) -> None:
        if worker is not None:
            counts = self.members(worker.set_key).counts
            counts[worker.checksum] = counts.get(worker.checksum, 0) + more
