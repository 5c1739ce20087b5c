"""What the projector's decisions ask of the world."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from controlplane.beats import Beat, WireNotice
from controlplane.viewfeed import Head
from events import Namespace, WorkerId
from projections import Life, Snapshot


class Publish(msgspec.Struct, frozen=True):
    """Store these view messages, the first at sequence ``after + 1``."""

    payloads: tuple[bytes, ...]
    after: int
    epoch_reason: str | None = None
    """Why an epoch starts with this message; None: these are deltas."""


class LookAtView(msgspec.Struct, frozen=True):
    """Ask the view stream's leader where it begins and ends: `Core.view_ends`."""

    at: int | None = None
    """…and what it holds at this sequence."""


class TakeSnapshot(msgspec.Struct, frozen=True):
    """Store this snapshot and point to it: `Core.snapshot_stored`."""

    snapshot: Snapshot


class SayHead(msgspec.Struct, frozen=True):
    """Say where the view stands. The shell adds how full the log is."""

    head: Head


class Expire(msgspec.Struct, frozen=True):
    """Append the end of a life; a racing record of its subject wins."""

    life: Life
    silent_for_s: float


class Inquire(msgspec.Struct, frozen=True):
    """Read what the log says of a worker whose beat does not fit: `Core.inquired`."""

    namespace: Namespace
    worker_id: WorkerId
    beat: Beat


class Tell(msgspec.Struct, frozen=True):
    """Send a notice to one incarnation of a worker."""

    namespace: Namespace
    worker_id: WorkerId
    notice: WireNotice


class Resign(msgspec.Struct, frozen=True):
    """Give the lease back."""

    reason: str


class Rebuild(msgspec.Struct, frozen=True):
    """Begin anew from the log, a snapshot and the view stream."""

    reason: str


class Announce(msgspec.Struct, frozen=True):
    """Say that the log lost records that it had acknowledged."""

    reason: str


class Alarm(msgspec.Struct, frozen=True):
    """The view stream holds what it must not: keep the evidence."""

    kind: Literal["divergence", "foreign"]
    view_seq: int
    found: bytes
    expected: bytes


Effect: TypeAlias = (
    Publish
    | LookAtView
    | TakeSnapshot
    | SayHead
    | Expire
    | Inquire
    | Tell
    | Resign
    | Rebuild
    | Announce
    | Alarm
)
