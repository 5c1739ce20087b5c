"""An event in its place in the log."""

from __future__ import annotations

from datetime import datetime
from hashlib import blake2b
from typing import TypeAlias

import msgspec

from .identity import Revision
from .port import PortClaimed, PortReleased
from .setting import (
    LoadThresholdsSet,
    ModelForgotten,
    TrafficWeightSet,
    WorkerHeld,
    WorkerResumed,
)
from .worker import (
    AdapterLoaded,
    AdapterUnloaded,
    WorkerDeregistered,
    WorkerExpired,
    WorkerRegistered,
    WorkerStatusChanged,
    WorkerUpdated,
)

AnyEvent: TypeAlias = (
    WorkerRegistered
    | WorkerStatusChanged
    | WorkerUpdated
    | AdapterLoaded
    | AdapterUnloaded
    | WorkerDeregistered
    | WorkerExpired
    | PortClaimed
    | PortReleased
    | WorkerHeld
    | WorkerResumed
    | TrafficWeightSet
    | LoadThresholdsSet
    | ModelForgotten
)
"""Every event that this version understands."""


class UnknownEvent(msgspec.Struct, frozen=True, kw_only=True):
    """A record whose tag this version does not know. Never guessed at."""

    tag: str
    payload: bytes
    event_id: str = ""


class Undecodable(msgspec.Struct, frozen=True, kw_only=True):
    """A record that cannot be read. Never a removal, never "free"."""

    reason: str
    payload: bytes
    event_id: str = ""


class Record(msgspec.Struct, frozen=True, gc=False):
    """An event with its revision, the broker's time of recording and its subject."""

    revision: Revision
    recorded_at: datetime
    """UTC, truncated to microseconds; kept by archive and import."""
    subject: str
    """Relative to the cell: ``log.worker.{namespace}.{worker}`` and so on."""
    event: AnyEvent | UnknownEvent | Undecodable

    @property
    def fingerprint(self) -> str:
        """What identifies the record in its place: tells one history from another."""
        if self.event.event_id:
            return self.event.event_id
        if isinstance(self.event, UnknownEvent | Undecodable):
            payload = self.event.payload
        else:
            payload = msgspec.json.encode(self.event, order="deterministic")
        return "blake2b:" + blake2b(payload, digest_size=16).hexdigest()
