"""In words: what a record did to a worker, and what keeps a worker from being picked.

Every word follows from what the fold did: from how the worker stood before a record
and after it, or from the fold's own reason why nothing changed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from events import (
    Checksum,
    LoadThresholdsSet,
    ModelForgotten,
    Record,
    TrafficWeightSet,
    WorkerDeregistered,
    WorkerEvent,
    WorkerExpired,
    WorkerHeld,
    WorkerResumed,
)

from .anomaly import Anomaly
from .circumstances import Causes, Circumstances, circumstances_of
from .entities import Registration
from .fleet import FleetState
from .readiness import Blocker
from .view import Fleet

SHORT: Final = 8
_SAID: Final = ("status", "address", "model", "component", "endpoint")
_CHANGED: Final = ("needs", "capabilities", "capacity", "labels", "lease_ttl_s")


def short(checksum: Checksum | None) -> str:
    """A checksum as people compare it."""
    return (checksum or "none")[:SHORT]


def author(record: Record) -> str:
    """Who said it: the worker that it is about, else whoever appended it."""
    event = record.event
    if isinstance(event, WorkerEvent):
        return f"{event.namespace}/{event.worker_id}"
    return getattr(event, "by", "") or "somebody unnamed"


def with_reason(said: str, record: Record) -> str:
    """What was said, with the reason that was given, if one was."""
    reason = getattr(record.event, "reason", "")
    return f"{said}: {reason}" if reason else said


# ---- what a record did ---------------------------------------------------------
def refused(anomaly: Anomaly, current: Circumstances | None) -> str:
    """Why a record that names the worker changed nothing."""
    match anomaly.kind:
        case "stale" if current is not None:
            return f"stale incarnation: current is {current.registration.incarnation}"
        case "unknown" | "undecodable":
            return f"cannot be read, so it changes nothing: {anomaly.reason}"
        case _:
            return f"no effect: {anomaly.reason}"


def own_rule(
    record: Record,
    before: Circumstances | None,
    after: Circumstances | None,
    causes: Causes,
) -> str:
    """What a record of the worker itself made of it; the record changed something."""
    match record.event:
        case WorkerExpired(silent_for_s=silent_for_s, observed_by=observer):
            return f"expired: silent for {silent_for_s:.1f} s, seen by {observer}"
        case WorkerDeregistered():
            return with_reason("leaves by itself", record)
    assert after is not None  # noqa: S101 - whatever else changes it leaves it there
    new = after.registration
    if before is None:
        return f"registers, {new.status.value}; {_admission(after, record, causes)}"
    old = before.registration
    said = list(_moves(old, new))
    another_life = old.incarnation != new.incarnation
    if another_life:
        said.insert(0, f"a new life in place of {old.incarnation}")
    if another_life or old.checksum != new.checksum:
        said.append(_admission(after, record, causes))
    return with_reason("; ".join(said), record)


def _admission(after: Circumstances, record: Record, causes: Causes) -> str:
    own = short(after.registration.checksum)
    since = causes.in_force[after.registration.set_key]
    when = f" since revision {since.revision}"
    if after.registration.checksum != after.in_force:
        return f"quarantined: {_against(after)}{when}"
    if since is record:
        return f"with it checksum {own} comes into force"
    return f"admitted: checksum {own} is in force{when}"


def _against(standing: Circumstances) -> str:
    own, theirs = standing.registration.checksum, standing.in_force
    return f"checksum {short(own)} against incumbent {short(theirs)}"


def _moves(old: Registration, new: Registration) -> Iterator[str]:
    """What a worker says of itself that it did not say before."""
    for name in _SAID:
        was, now = getattr(old, name), getattr(new, name)
        if was != now:
            was, now = getattr(was, "value", was), getattr(now, "value", now)
            yield f"{name} {was} -> {now}"
    if old.role is not new.role:
        yield f"role {old.role.value} -> {new.role.value}"
    for name in sorted({*new.adapters} - {*old.adapters}):
        yield f"loads adapter {name}"
    for name in sorted({*old.adapters} - {*new.adapters}):
        yield f"unloads adapter {name}"
    for name in _CHANGED:
        if getattr(old, name) != getattr(new, name):
            yield f"{name} changed"


def any_rule(
    before: FleetState, after: FleetState, record: Record, causes: Causes
) -> str:
    """What a record said, whomever it is about."""
    event = record.event
    if not isinstance(event, WorkerEvent):
        return "; ".join(_decision(record))
    key = (event.namespace, event.worker_id)
    return own_rule(
        record,
        circumstances_of(Fleet(before), key),
        circumstances_of(Fleet(after), key),
        causes,
    )


def other_rule(
    record: Record,
    before: Circumstances | None,
    after: Circumstances | None,
    causes: Causes,
) -> str:
    """What a record of somebody else made of the worker; empty: nothing."""
    said = [*_decision(record)]
    if before is not None and after is not None:
        said += _effects(before, after, record, causes)
    return "; ".join(said)


def _decision(record: Record) -> Iterator[str]:
    match record.event:
        case WorkerHeld(drain=drain):
            asked = " and asked to drain" if drain else ""
            yield with_reason(f"held{asked} by {author(record)}", record)
        case WorkerResumed():
            yield with_reason(f"let go on by {author(record)}", record)
        case TrafficWeightSet(namespace=namespace, model=model, weight=weight):
            said = f"weight {weight:g} of {namespace}/{model} set by {author(record)}"
            yield with_reason(said, record)
        case ModelForgotten(model=model):
            yield with_reason(f"the name {model} is forgotten", record)
        case LoadThresholdsSet(model=model):
            said = f"busy limits of {model} set by {author(record)}"
            yield with_reason(said, record)


def _effects(
    before: Circumstances, after: Circumstances, record: Record, causes: Causes
) -> Iterator[str]:
    if before.in_force != after.in_force:
        yield (
            f"the last with checksum {short(before.in_force)} left: "
            f"{short(after.in_force)} is in force"
        )
    lost = set(after.missing_roles) - set(before.missing_roles)
    if lost:
        yield _lacking(after, causes, record)
    elif before.missing_roles != after.missing_roles:
        found = set(before.missing_roles) - set(after.missing_roles)
        names = ", ".join(sorted(role.value for role in found))
        still = "" if not after.missing_roles else "; still lacking others"
        yield f"{names} is live{still}"


def earlier(standing: Circumstances, causes: Causes) -> Iterator[tuple[Record, str]]:
    """What already stood when a worker came, as far as it matters to it."""
    worker = standing.registration
    record = causes.in_force[worker.set_key]
    yield record, f"since then checksum {short(standing.in_force)} is in force"
    left = _departure(standing, causes)
    if left is not None:
        yield left, _lacking(standing, causes, left)
    settings = _weights(standing, causes)[:1]
    limits = causes.settings.get(("thresholds", worker.model))
    for setting in (*settings, *(() if limits is None else (limits,))):
        yield setting, "; ".join(_decision(setting))


# ---- what keeps a worker away --------------------------------------------------
def blocked_by(
    blocker: Blocker,
    standing: Circumstances,
    causes: Causes,
    since: Record | None = None,
) -> tuple[str, Record | None]:
    """Why the worker has this blocker, and the record of others that is behind it.

    ``since``: the record with which the worker got it.
    """
    worker = standing.registration
    match blocker:
        case "held":
            record = causes.settings["hold", *worker.key]
            said = f"held by {author(record)} since revision {record.revision}"
            return with_reason(said, record), record
        case "checksum_mismatch":
            record = causes.in_force[worker.set_key]
            since_when = f"since revision {record.revision} ({author(record)})"
            return f"{_against(standing)} {since_when}", record
        case "needs_unmet":
            return _lacking(standing, causes, None), _departure(standing, causes)
        case "weight_zero":
            record = _weights(standing, causes)[0]
            said = f"weight 0 set at revision {record.revision} by {author(record)}"
            return with_reason(said, record), record
        case _ if since is not None:
            said = f"says that it is {blocker} since revision {since.revision}"
            return with_reason(said, since), None
        case _:
            return f"says that it is {blocker}", None


def _lacking(standing: Circumstances, causes: Causes, now: Record | None) -> str:
    names = ", ".join(role.value for role in standing.missing_roles)
    left = _departure(standing, causes)
    if left is None:
        return f"needs {names}: there never was a live one"
    if left is now:
        return f"needs {names}: the last live one left"
    where = f"revision {left.revision} ({author(left)})"
    return f"needs {names}: last live one left at {where}"


def _departure(standing: Circumstances, causes: Causes) -> Record | None:
    """The record that took the last live worker of a missing role away."""
    worker = standing.registration
    found = [
        causes.departures.get((worker.namespace, worker.model, role))
        for role in standing.missing_roles
    ]
    records = [record for record in found if record is not None]
    return max(records, key=lambda record: record.revision, default=None)


def _weights(standing: Circumstances, causes: Causes) -> list[Record]:
    """The records of the weights that are set for it; the first is what counts."""
    worker = standing.registration
    keys = [("weight", worker.namespace, name) for name in (worker.model, "*")]
    return [causes.settings[key] for key in keys if key in causes.settings]
