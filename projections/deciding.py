"""What an event changes in the fleet: changes, or why there are none."""

from __future__ import annotations

from datetime import datetime
from sys import intern
from typing import Final, TypeAlias, assert_never

import msgspec

from events import (
    AdapterLoaded,
    AdapterUnloaded,
    LoadThresholdsSet,
    ModelForgotten,
    ModelName,
    Status,
    TrafficWeightSet,
    WorkerDeregistered,
    WorkerExpired,
    WorkerHeld,
    WorkerRegistered,
    WorkerResumed,
    WorkerStatusChanged,
    WorkerUpdated,
)

from .admission import decide_arrival, decide_leaving
from .anomaly import AnomalyKind
from .entities import (
    FleetChange,
    Hold,
    KnownGone,
    KnownPut,
    Registration,
    Setting,
    SettingGone,
    SettingPut,
    Thresholds,
    Weight,
    WorkerPut,
)
from .fleet import FleetSoFar, FleetState


class Refusal(msgspec.Struct, frozen=True):
    """The record changes nothing, and why."""

    kind: AnomalyKind
    reason: str
    skipped_tag: str | None = None


_THUS: Final = Refusal("no_op", "the worker is thus already")

AnyAmendment: TypeAlias = (
    WorkerStatusChanged
    | WorkerUpdated
    | AdapterLoaded
    | AdapterUnloaded
    | WorkerDeregistered
    | WorkerExpired
)
_ENDINGS: Final = (WorkerDeregistered, WorkerExpired)
AnyWorkerEvent: TypeAlias = WorkerRegistered | AnyAmendment
AnySettingEvent: TypeAlias = (
    WorkerHeld | WorkerResumed | TrafficWeightSet | LoadThresholdsSet | ModelForgotten
)
Outcome: TypeAlias = tuple[FleetChange, ...] | Refusal


def decide_worker(
    state: FleetSoFar,
    event: AnyWorkerEvent,
    current: Registration | None,
    recorded_at: datetime,
) -> Outcome:
    """What a worker's event changes; only its current life may change it.

    ``current`` is the event's worker as ``state`` has it. What becomes of it is the
    first of the changes.
    """
    if isinstance(event, WorkerRegistered):
        return _registered(state, event, current, recorded_at)
    if current is None:
        return Refusal("no_op", f"no worker {event.namespace}/{event.worker_id}")
    if current.incarnation != event.incarnation:
        now = current.incarnation
        return Refusal(
            "stale", f"incarnation {event.incarnation}, but {now} is current"
        )
    return _amended(state, event, current)


def _amended(state: FleetSoFar, event: AnyAmendment, current: Registration) -> Outcome:
    # By how often they come; a match costs more.
    if isinstance(event, WorkerStatusChanged):
        return _restated(current, event.status)
    if isinstance(event, WorkerUpdated):
        return _updated(current, event)
    if isinstance(event, AdapterLoaded):
        adapters = tuple(sorted({*current.adapters, event.adapter}))
        outcome = _changed(current, adapters=adapters)
        if isinstance(outcome, Refusal):
            return outcome
        return (*outcome, *_learn(state, (event.adapter,)))
    if isinstance(event, AdapterUnloaded):
        adapters = tuple(a for a in current.adapters if a != event.adapter)
        return _changed(current, adapters=adapters)
    if isinstance(event, _ENDINGS):
        return decide_leaving(state, current)
    assert_never(event)


def decide_setting(state: FleetState, event: AnySettingEvent) -> Outcome:
    """What an operator's decision changes."""
    match event:
        case WorkerHeld():
            return _set(
                state,
                Hold(
                    namespace=event.namespace,
                    worker_id=event.worker_id,
                    reason=event.reason,
                    by=event.by,
                ),
            )
        case WorkerResumed():
            key = ("hold", event.namespace, event.worker_id)
            if key in state.settings:
                return (SettingGone(key),)
            return Refusal("no_op", "the worker is not held")
        case TrafficWeightSet():
            return _set(
                state,
                Weight(
                    namespace=event.namespace,
                    model=event.model,
                    weight=_number(event.weight),
                    reason=event.reason,
                    by=event.by,
                ),
            )
        case LoadThresholdsSet(busy_kv_usage=usage):
            return _set(
                state,
                Thresholds(
                    model=event.model,
                    busy_kv_usage=None if usage is None else _number(usage),
                    busy_running=event.busy_running,
                    busy_waiting=event.busy_waiting,
                    reason=event.reason,
                    by=event.by,
                ),
            )
        case ModelForgotten():
            return _forgotten(state, event.model)
        case _:
            assert_never(event)


def _registered(
    state: FleetSoFar,
    event: WorkerRegistered,
    current: Registration | None,
    recorded_at: datetime,
) -> Outcome:
    again = current is not None and current.incarnation == event.incarnation
    worker = Registration(
        namespace=_one(event.namespace),
        worker_id=event.worker_id,
        incarnation=event.incarnation,
        component=_one(event.component),
        endpoint=_one(event.endpoint),
        model=_one(event.model),
        role=event.role,
        needs=event.needs,
        checksum=event.checksum,
        address=event.address,
        capabilities=_as_set(event.capabilities),
        adapters=_as_set(event.adapters),
        capacity=event.capacity,
        labels=event.labels,
        lease_ttl_s=_number(event.lease_ttl_s),
        status=event.status,
        registered_at=current.registered_at if current and again else recorded_at,
    )
    if worker == current:
        return Refusal("no_op", "the registration says what is known already")
    learnt = _learn(state, (worker.model, *worker.adapters))
    return (*decide_arrival(state, worker, current), *learnt)


def _one(text: str) -> str:
    """The one object for this text: what all have in common is at hand, and alike."""
    return intern(text) if type(text) is str else text


def _as_set(names: tuple[str, ...]) -> tuple[str, ...]:
    """Each name once, in order; nearly always there are none."""
    return tuple(sorted(set(names))) if names else ()


def _updated(current: Registration, event: WorkerUpdated) -> Outcome:
    given = {
        "address": event.address,
        "capacity": event.capacity,
        "labels": event.labels,
    }
    return _changed(current, **{k: v for k, v in given.items() if v is not None})


def _restated(current: Registration, status: Status) -> Outcome:
    if status is current.status:
        return _THUS
    return (WorkerPut(msgspec.structs.replace(current, status=status)),)


def _changed(current: Registration, **fields: object) -> Outcome:
    worker = msgspec.structs.replace(current, **fields)
    if worker == current:
        return _THUS
    return (WorkerPut(worker),)


def _set(state: FleetState, setting: Setting) -> Outcome:
    if state.settings.get(setting.key) == setting:
        return Refusal("no_op", "the setting stands already")
    return (SettingPut(setting),)


def _number(value: float) -> float:
    """One form for equal numbers: neither 1 beside 1.0 nor -0.0 beside 0.0."""
    return float(value) + 0.0


def _forgotten(state: FleetState, model: ModelName) -> Outcome:
    if model not in state.known:
        return Refusal("no_op", f"no model {model!r} is known")
    if model in state.models or model in state.adapters:
        return Refusal("no_op", f"model {model!r} has workers, so it stays known")
    return (KnownGone(model),)


def _learn(state: FleetSoFar, names: tuple[ModelName, ...]) -> tuple[KnownPut, ...]:
    new = [name for name in names if name not in state.known]
    return tuple(map(KnownPut, dict.fromkeys(new))) if new else ()
