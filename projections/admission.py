"""Who belongs: a WorkerSet's first checksum is in force, others wait their turn."""

from __future__ import annotations

from events import Checksum

from .entities import FleetChange, Registration, SetGone, SetPut, WorkerGone, WorkerPut
from .fleet import FleetSoFar


def decide_arrival(
    state: FleetSoFar, worker: Registration, old: Registration | None
) -> tuple[FleetChange, ...]:
    """The changes when ``worker`` comes, in place of its life ``old`` if there is one.

    A checksum that the WorkerSet has not seen goes to the end of its cohorts. A worker
    that stays in its set with its checksum keeps its place: it never left. One that
    moves leaves its old cohort or set before it joins another.
    """
    key = worker.set_key
    if old is not None and old.set_key == key and old.checksum == worker.checksum:
        return (WorkerPut(worker),)
    leaving = () if old is None else _after_leaving(state, old)
    cohorts = _cohorts_then(state, leaving, worker)
    if worker.checksum in cohorts:
        return (WorkerPut(worker), *leaving)
    others = tuple(c for c in leaving if not _is_about(c, worker))
    return (WorkerPut(worker), *others, SetPut(key, (*cohorts, worker.checksum)))


def decide_leaving(state: FleetSoFar, old: Registration) -> tuple[FleetChange, ...]:
    """The changes when the worker ``old`` goes.

    An emptied cohort is forgotten, so the oldest of the others is in force from then
    on; the last worker takes its WorkerSet with it.
    """
    return (WorkerGone(old.namespace, old.worker_id), *_after_leaving(state, old))


def _after_leaving(state: FleetSoFar, old: Registration) -> tuple[FleetChange, ...]:
    members = state.members(old.set_key)
    if members is None or members.counts.get(old.checksum, 0) > 1:
        return ()
    cohorts = tuple(c for c in members.cohorts if c != old.checksum)
    if cohorts:
        return (SetPut(old.set_key, cohorts),)
    return (SetGone(old.set_key),)


def _cohorts_then(
    state: FleetSoFar, leaving: tuple[FleetChange, ...], worker: Registration
) -> tuple[Checksum, ...]:
    for change in leaving:
        if isinstance(change, SetPut) and change.key == worker.set_key:
            return change.cohorts
        if isinstance(change, SetGone) and change.key == worker.set_key:
            return ()
    members = state.members(worker.set_key)
    return () if members is None else members.cohorts


def _is_about(change: FleetChange, worker: Registration) -> bool:
    return isinstance(change, SetPut | SetGone) and change.key == worker.set_key
