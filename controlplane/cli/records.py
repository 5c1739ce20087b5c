"""Records of the log as lines and as documents. Pure."""

from __future__ import annotations

from base64 import b64encode
from datetime import date
from typing import Any, Final

import msgspec
from rich.text import Text

from events import (
    AdapterLoaded,
    AdapterUnloaded,
    AnyEvent,
    LoadThresholdsSet,
    ModelForgotten,
    PortClaimed,
    PortReleased,
    Record,
    Role,
    TrafficWeightSet,
    Undecodable,
    UnknownEvent,
    WorkerDeregistered,
    WorkerExpired,
    WorkerHeld,
    WorkerRegistered,
    WorkerResumed,
    WorkerStatusChanged,
    WorkerUpdated,
)

from .columns import Cell, Column, heading, line, stream_widths

RECORD_COLUMNS: Final = (
    Column(title="revision", usual=8, right=True),
    Column(title="time", usual=8),
    Column(title="type", usual=21),
    Column(title="who", usual=26, least=12, middle=True),
    Column(title="detail", usual=40, least=12),
)
POISON: Final = "red"


class LogLines:
    """Records as lines under a heading, and under the day when it is another."""

    def __init__(self, width: int) -> None:
        """Lines of ``width`` cells."""
        self._widths = stream_widths(RECORD_COLUMNS, width)
        self._day: date | None = None

    def heading(self) -> Text:
        """What the columns are."""
        return heading(RECORD_COLUMNS, self._widths)

    def of(self, record: Record) -> list[Text]:
        """The record's line, below its day if that is new; the unreadable is marked."""
        day = record.recorded_at.date()
        lines = [] if day == self._day else [Text(f"{day} (UTC)", style="dim")]
        self._day = day
        return [*lines, self._line(record)]

    def _line(self, record: Record) -> Text:
        kind, who, what = record_parts(record)
        row: list[Cell] = [
            str(record.revision),
            f"{record.recorded_at:%H:%M:%S}",
            kind,
            who,
            what,
        ]
        return line(RECORD_COLUMNS, row, self._widths)


def record_parts(record: Record) -> tuple[Text, str, str]:
    """A record's type, whom it is about, and what it says; the unreadable is marked."""
    event = record.event
    if isinstance(event, UnknownEvent | Undecodable):
        kind, who, what = _poison(record)
        return Text(kind, style=POISON), who, what
    kind, who, what = _said(record)
    return Text(kind, style=_style(event)), who, what


def record_document(record: Record) -> dict[str, Any]:
    """One record as plain data. ``event`` is null when nobody can read it."""
    event = record.event
    readable = not isinstance(event, UnknownEvent | Undecodable)
    return {
        "revision": record.revision,
        "recorded_at": record.recorded_at,
        "subject": record.subject,
        "event": msgspec.to_builtins(event) if readable else None,
        "poison": None if readable else _poison_document(event),
    }


def _poison_document(event: object) -> dict[str, str]:
    match event:
        case UnknownEvent(tag=tag, payload=payload):
            kind, reason = "unknown", f"unknown tag {tag}"
        case Undecodable(reason=reason, payload=payload):
            kind = "undecodable"
        case _:
            raise AssertionError
    return {
        "kind": kind,
        "reason": reason,
        "payload_base64": b64encode(payload).decode(),
    }


def _poison(record: Record) -> tuple[str, str, str]:
    who = record.subject.removeprefix("log.")
    match record.event:
        case UnknownEvent(tag=tag):
            return "! unknown", who, f"tag {tag}"
        case Undecodable(reason=reason):
            return "! undecodable", who, reason
        case _:
            raise AssertionError


def _said(record: Record) -> tuple[str, str, str]:
    event = record.event
    if isinstance(event, UnknownEvent | Undecodable):
        raise AssertionError  # noqa: TRY004 - our own bug
    tag = str(type(event).__struct_config__.tag)
    who, what = _who_and_what(event)
    reason = getattr(event, "reason", "")
    if reason and not isinstance(event, PortClaimed):
        what = f"{what} ({reason})" if what else reason
    return tag.removesuffix(".v1"), who, what


def _who_and_what(event: AnyEvent) -> tuple[str, str]:  # noqa: C901, PLR0911 - a case for each event
    match event:
        case WorkerRegistered(status=status, role=role, model=model):
            part = "" if role is Role.AGGREGATED else f" {role.value}"
            return _worker(event), f"{status.value}{part} {model}"
        case WorkerStatusChanged(status=status):
            return _worker(event), status.value
        case WorkerUpdated():
            return _worker(event), _updated(event)
        case AdapterLoaded(adapter=adapter) | AdapterUnloaded(adapter=adapter):
            return _worker(event), adapter
        case WorkerExpired(silent_for_s=silent_for_s, observed_by=observer):
            return _worker(
                event
            ), f"silent for {silent_for_s:.1f} s, seen by {observer}"
        case WorkerHeld(drain=drain):
            return _worker(event), "drain" if drain else ""
        case WorkerDeregistered() | WorkerResumed():
            return _worker(event), ""
        case PortClaimed(block_start=start, block_size=size, owner=owner):
            last = start + size - 1
            block = f"{start}-{last}" if size > 1 else f"{start}"
            return f"{event.host}:{event.port}", f"{block} for {_worker(owner)}"
        case PortReleased(cause=cause):
            return f"{event.host}:{event.port}", cause
        case TrafficWeightSet(namespace=namespace, model=model, weight=weight):
            return f"{namespace}/{model}", f"weight {weight:g}"
        case LoadThresholdsSet(model=model):
            return model, _limits(event)
        case ModelForgotten(model=model):
            return model, ""


def _worker(named: Any) -> str:  # noqa: ANN401 - whatever names a worker
    return f"{named.namespace}/{named.worker_id}"


def _updated(event: WorkerUpdated) -> str:
    parts = [] if event.address is None else [event.address]
    parts += [] if event.capacity is None else ["capacity"]
    parts += [] if event.labels is None else ["labels"]
    return ", ".join(parts)


def _limits(event: LoadThresholdsSet) -> str:
    limits = {
        "kv": event.busy_kv_usage,
        "running": event.busy_running,
        "waiting": event.busy_waiting,
    }
    return ", ".join(f"{k} {v:g}" for k, v in limits.items() if v is not None)


def _style(event: object) -> str:
    if isinstance(event, WorkerExpired):
        return "red"
    return "green" if isinstance(event, WorkerRegistered) else ""
