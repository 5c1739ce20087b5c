"""The fold: what a record means for the fleet, the ports and the lives.

`evolve` is total, blind and deterministic. It decides the changes of a record and
applies them through the same function that routers use. It depends on payload,
event id and recorded time, never on revision numbers, which an import may change;
those are only carried along.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final, assert_never

import msgspec

from events import (
    PortClaimed,
    PortReleased,
    PortSubject,
    Record,
    Revision,
    SettingEvent,
    Undecodable,
    UnknownEvent,
    WorkerEvent,
    WorkerSubject,
    parse_subject,
)

from . import life, port
from .anomaly import REASON_MAX, Anomalies, Anomaly, noted
from .applying import apply
from .deciding import Refusal, decide_setting, decide_worker
from .draining import NO_DRAINS, Drains, decide_drains
from .entities import FleetChange, Registration, WorkerKey, WorkerPut
from .fleet import EMPTY, FleetState
from .life import Life, Lives
from .port import NO_PORTS, Held, PortState, PortTable

FOLD_VERSION: Final = 1
"""Changes whenever the same log would give another state: then a new epoch begins."""


class FoldState(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Everything that the log says, up to ``revision``. The first state is empty."""

    fleet_state: FleetState = EMPTY
    ports: PortTable = NO_PORTS
    lives: Lives = life.NO_LIVES
    drains: Drains = NO_DRAINS
    anomalies: Anomalies = Anomalies()
    revision: Revision = 0
    fingerprint: str = ""
    """Identifies the record at ``revision``."""
    recorded_at: datetime | None = None


class Step(msgspec.Struct, frozen=True, gc=False):
    """One record folded: the state after it, and what it changed in the fleet."""

    state: FoldState
    changes: tuple[FleetChange, ...]


def evolve(state: FoldState, record: Record) -> FoldState:
    """The state after ``record``. Never raises for anything that a log may hold."""
    return step(state, record).state


def step(state: FoldState, record: Record) -> Step:
    """As `evolve`, with the fleet's changes: what a delta is made of."""
    fleet, ports, lives = state.fleet_state, state.ports, state.lives
    drains, anomalies = state.drains, state.anomalies
    outcome: tuple[FleetChange, ...] | Refusal = ()
    match record.event:
        case WorkerEvent() as event:
            seat = fleet.seats.get((event.namespace, event.worker_id))
            before = after = None if seat is None else seat.worker
            outcome = decide_worker(fleet, event, before, record.recorded_at)
            if not isinstance(outcome, Refusal):
                fleet, after = apply(fleet, outcome), worker_in(outcome)
            lives = turn_over(lives, before, after, record.revision)
        case SettingEvent() as event:
            outcome = decide_setting(fleet, event)
            drains = decide_drains(drains, event, record.revision)
            fleet = fleet if isinstance(outcome, Refusal) else apply(fleet, outcome)
        case PortClaimed() as event:
            ports, lives, outcome = claim(ports, lives, event, record)
        case PortReleased() as event:
            ports, lives, outcome = release(ports, lives, event, record)
        case UnknownEvent() | Undecodable() as opaque:
            ports, lives = _keep_place(ports, lives, fleet, record)
            outcome = _unreadable(opaque)
        case _:
            assert_never(record.event)
    if isinstance(outcome, Refusal):
        anomalies = with_refusal(anomalies, outcome, record)
        outcome = ()
    return Step(
        FoldState(
            fleet_state=fleet,
            ports=ports,
            lives=lives,
            drains=drains,
            anomalies=anomalies,
            revision=record.revision,
            fingerprint=record.fingerprint,
            recorded_at=record.recorded_at,
        ),
        outcome,
    )


def worker_in(changes: tuple[FleetChange, ...]) -> Registration | None:
    """The worker after a change of its own, which comes first; None: it is gone."""
    first = changes[0]
    return first.worker if isinstance(first, WorkerPut) else None


def turn_over(
    lives: Lives,
    before: Registration | None,
    after: Registration | None,
    revision: Revision,
) -> Lives:
    """The lives after a record on a worker's subject."""
    if before is not None and (
        after is None or after.incarnation != before.incarnation
    ):
        lives = life.unregistered(lives, before.life_key)
    if after is None:
        return lives
    if before is not None and after.incarnation == before.incarnation:
        return life.went_on(lives, after.life_key, after.lease_ttl_s, revision)
    return life.registered(
        lives,
        Life(
            namespace=after.namespace,
            worker_id=after.worker_id,
            incarnation=after.incarnation,
            lease_ttl_s=after.lease_ttl_s,
            registered=revision,
            last=revision,
        ),
    )


def claim(
    ports: PortTable, lives: Lives, event: PortClaimed, record: Record
) -> tuple[PortTable, Lives, tuple[FleetChange, ...] | Refusal]:
    """Ports and lives after a claim, and why it changed nothing if it did not."""
    key = (event.host, event.port)
    held = port.decide_claim(ports, event, record.recorded_at)
    if held is not None:
        ports = ports.put(held, record.revision)
        return ports, life.claimed(lives, held), ()
    refusal = claim_refusal(ports.ports[key], event)
    return ports.touch(key, record.revision), lives, refusal


def claim_refusal(holder: PortState, event: PortClaimed) -> Refusal:
    """Why a claim changes nothing where ``holder`` stands in its way."""
    if isinstance(holder, Held) and holder.claim_id == event.claim_id:
        return Refusal("no_op", "this claim stands already")
    return Refusal("stale", "an earlier record stands on this port")


def release(
    ports: PortTable, lives: Lives, event: PortReleased, record: Record
) -> tuple[PortTable, Lives, tuple[FleetChange, ...] | Refusal]:
    """Ports and lives after a release, and why it changed nothing if it did not."""
    key = (event.host, event.port)
    before = ports.ports.get(key)
    resting = port.decide_release(ports, event, record.recorded_at)
    if resting is not None:
        if isinstance(before, Held):
            lives = life.released(lives, before)
        return ports.put(resting, record.revision), lives, ()
    return ports.touch(key, record.revision), lives, release_refusal(before)


def release_refusal(before: PortState | None) -> Refusal:
    """Why a release changes nothing on a port that stands as ``before``."""
    if isinstance(before, Held):
        return Refusal("stale", "another claim holds this port")
    return Refusal("no_op", "the port was released already")


def _keep_place(
    ports: PortTable, lives: Lives, fleet: FleetState, record: Record
) -> tuple[PortTable, Lives]:
    """Note where a record stands that says nothing: it is the last on its subject."""
    match parse_subject(record.subject):
        case WorkerSubject(namespace, worker_id):
            key: WorkerKey = (namespace, worker_id)
            current = fleet.workers.get(key)
            if current is not None:
                lives = life.touched(lives, current.life_key, record.revision)
        case PortSubject(host, number):
            place = (host, number)
            state = port.decide_unreadable(ports, place, record.recorded_at)
            ports = (
                ports.touch(place, record.revision)
                if state is None
                else ports.put(state, record.revision)
            )
    return ports, lives


def _unreadable(event: UnknownEvent | Undecodable) -> Refusal:
    if isinstance(event, UnknownEvent):
        return Refusal("unknown", f"unknown tag {event.tag}", event.tag)
    return Refusal("undecodable", event.reason)


def with_refusal(anomalies: Anomalies, refusal: Refusal, record: Record) -> Anomalies:
    """The anomalies with a record that changed nothing."""
    anomaly = Anomaly(
        revision=record.revision,
        kind=refusal.kind,
        subject=record.subject,
        reason=refusal.reason[:REASON_MAX],
    )
    return noted(anomalies, anomaly, refusal.skipped_tag)
