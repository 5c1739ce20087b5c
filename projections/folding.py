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
)

from .applying import apply, stays
from .deciding import AnyWorkerEvent, Outcome, Refusal, decide_worker
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
from .fold import FoldState, claim, release, step, turn_over, with_refusal
from .life import Life, LifeKey, Lives, touched
from .port import PortKey, PortState, PortTable

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


class _Lives:
    """Lives that are changed in place; `set` and `delete` give the same lives back."""

    __slots__ = ("_before", "_now", "get")

    def __init__(self, before: Lives) -> None:
        self._before = before
        self._now: dict[LifeKey, Life | None] = _over(before)
        self.get = self._now.get

    def set(self, key: LifeKey, life: Life) -> _Lives:
        self._now[key] = life
        return self

    def delete(self, key: LifeKey) -> _Lives:
        if key in self._before:
            self._now[key] = None
        else:  # nothing is kept of lives that came and went
            del self._now[key]
        return self

    def finish(self) -> Lives:
        lives = self._before.mutate()
        for key, life in self._now.items():
            if life is not None:
                lives[key] = life
            else:
                del lives[key]
        return lives.finish()


class _Ports:
    """The port table, changed in place, and hashed where it is another at the end."""

    __slots__ = ("_before", "_revisions", "ports")

    def __init__(self, table: PortTable) -> None:
        self._before = table
        self.ports: dict[PortKey, PortState] = _over(table.ports)
        self._revisions: dict[PortKey, Revision] = {}

    def put(self, state: PortState, revision: Revision) -> _Ports:
        key = (state.host, state.port)
        self.ports[key] = state
        self._revisions[key] = revision
        return self

    def touch(self, key: PortKey, revision: Revision) -> _Ports:
        self._revisions[key] = revision
        return self

    def finish(self) -> PortTable:
        before = self._before
        gone = total_of(
            before.ports[key] for key in self.ports.keys() & before.ports.keys()
        )
        total = total_of(self.ports.values(), before.total)
        return PortTable(
            ports=before.ports.update(self.ports),
            revisions=before.revisions.update(self._revisions),
            total=(total - gone) % MODULUS,
        )


class _Now(msgspec.Struct):
    """A worker so far; ``last``: where its subject stands, if its life knows less."""

    worker: Registration | None
    last: Revision | None = None
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
        self._lives = _Lives(state.lives)
        self._ports, self._anomalies = _Ports(state.ports), state.anomalies
        self._last: Record | None = None

    def add(self, record: Record) -> None:
        """Fold one record more."""
        event = record.event
        if isinstance(event, WorkerEvent):
            outcome = self._add_worker(event, record)
        elif isinstance(event, PortClaimed):
            ports, lives = cast("PortTable", self._ports), cast("Lives", self._lives)
            _, _, outcome = claim(ports, lives, event, record)
        elif isinstance(event, PortReleased):
            ports, lives = cast("PortTable", self._ports), cast("Lives", self._lives)
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
        changes: list[FleetChange] = []
        for key, now in self._workers.items():
            if now.last is not None and now.worker is not None:
                lives = cast("Lives", self._lives)
                touched(lives, now.worker.life_key, now.last)
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

    def _add_worker(self, event: AnyWorkerEvent, record: Record) -> Outcome:
        """Fold a worker's event; gives what it changed, or why it did not."""
        key = (event.namespace, event.worker_id)
        now = self._workers.get(key)
        if now is None:
            seat = self._fleet.seats.get(key)
            now = self._workers[key] = _Now(None if seat is None else seat.worker)
        before = now.worker
        outcome = decide_worker(self, event, before, record.recorded_at)
        if not isinstance(outcome, Refusal):
            self._take(now, outcome)
        after = now.worker
        if (
            before is not None
            and after is not None
            and after.incarnation == before.incarnation
            and after.lease_ttl_s == before.lease_ttl_s
        ):
            now.last = record.revision  # most do no more than that
            return outcome
        lives = cast("Lives", self._lives)
        if before is not None and now.last is not None:
            touched(lives, before.life_key, now.last)
        now.last = None
        turn_over(lives, before, after, record.revision)
        if after is None and key not in self._fleet.seats:
            del self._workers[key]
        return outcome

    def _take(self, now: _Now, changes: tuple[FleetChange, ...]) -> None:
        """Note the changes of a worker, whose own comes first."""
        before, first = now.worker, changes[0]
        after = first.worker if isinstance(first, WorkerPut) else None
        now.worker, now.moved = after, True
        if before is None or after is None or not stays(before, after):
            self._count(before, -1)
            self._count(after, 1)
        if len(changes) > 1:
            self._follow(changes[1:])

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
