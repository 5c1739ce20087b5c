"""What goes into the worker's core, and what comes out of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias

import msgspec

from controlplane.beats import NoticeKind, WireNotice
from controlplane.errors import AppendConflictError, LeaseLostError
from events import (
    Capacity,
    ControlPlaneError,
    Incarnation,
    ModelName,
    Record,
    Revision,
    Status,
)
from projections import PortBlock, Want

from .declared import Draft

Cause: TypeAlias = Literal["unknown", "expired"]
"""Why a worker registers again."""


# ---- inputs ------------------------------------------------------------------------
class Begin(msgspec.Struct, frozen=True):
    """The worker wants to be in the log."""


class SubjectRead(msgspec.Struct, frozen=True, kw_only=True):
    """The log's leader said how the worker's subject stands: the answer to a read."""

    log_id: str
    last: Revision
    """Of the last record on the subject; 0: there is none."""
    records: tuple[Record, ...]
    """Those after the revision asked for; none if none was named."""
    whole: bool
    """What was asked for is not there as it was known: these are all it has.

    The log is another, ends below it, or holds another record there.
    """
    fresh: Incarnation
    """Free to be taken for a next life."""
    fingerprint: str = ""
    """Identifies the last record."""


class Appended(msgspec.Struct, frozen=True):
    """The event is in the log."""

    revision: Revision
    fingerprint: str = ""
    """Identifies it."""
    holds: bool = True
    """Whether the life it registers certainly holds its ports."""


class Conflicted(msgspec.Struct, frozen=True):
    """The event is not in the log, for its expectation did not hold."""

    error: AppendConflictError


class Failed(msgspec.Struct, frozen=True):
    """Nothing came of the read or the append; certainly nothing was stored."""

    error: ControlPlaneError


class PortsClaimed(msgspec.Struct, frozen=True, kw_only=True):
    """A block for each want is held by the life that asked."""

    blocks: tuple[PortBlock, ...]
    revision: Revision
    """Of the last claim."""
    log_id: str


class PortsRest(msgspec.Struct, frozen=True):
    """Nothing is stored: ports of this life cannot be claimed yet."""


class PortsTaken(msgspec.Struct, frozen=True):
    """Nothing is stored: another holds ports of this life."""

    error: LeaseLostError


class PortsReturned(msgspec.Struct, frozen=True):
    """The ports are given back, or left to the lease."""


class Resumed(msgspec.Struct, frozen=True):
    """A pause is over."""


class Noticed(msgspec.Struct, frozen=True):
    """The leader says something: a hint, to be checked in the log."""

    notice: WireNotice


class SetStatus(msgspec.Struct, frozen=True):
    """The caller wants another status."""

    status: Status
    reason: str = ""


class Update(msgspec.Struct, frozen=True, kw_only=True):
    """The caller wants to say other things of the worker; None: as they are."""

    address: str | None = None
    capacity: Capacity | None = None
    labels: Mapping[str, str] | None = None


class LoadAdapter(msgspec.Struct, frozen=True):
    """The caller serves one more adapter."""

    adapter: ModelName


class UnloadAdapter(msgspec.Struct, frozen=True):
    """The caller serves one adapter less."""

    adapter: ModelName


class Leave(msgspec.Struct, frozen=True):
    """The caller wants to be out of the log."""

    reason: str = ""


Command: TypeAlias = SetStatus | Update | LoadAdapter | UnloadAdapter
Answer: TypeAlias = (
    SubjectRead
    | Appended
    | Conflicted
    | Failed
    | PortsClaimed
    | PortsRest
    | PortsTaken
    | PortsReturned
)
"""What comes of a job, but for a pause."""
Input: TypeAlias = Begin | Answer | Resumed | Noticed | Command | Leave


# ---- effects -----------------------------------------------------------------------
class ReadSubject(msgspec.Struct, frozen=True):
    """Ask the log's leader how the worker's subject stands; `SubjectRead`, `Failed`."""

    after: Revision | None
    """Its records above this one; None: only where it stands."""
    log_id: str
    fingerprint: str = ""
    """Identifies the record at ``after``, as it is known; empty: it is not."""


class ClaimPorts(msgspec.Struct, frozen=True):
    """Claim a block for each want, all or none; `PortsClaimed`, `Failed`."""

    wants: tuple[Want, ...]
    incarnation: Incarnation


class Append(msgspec.Struct, frozen=True):
    """Seal the draft and append it until the answer is definite.

    Answered by `Appended`, `Conflicted` or `Failed`, with ports also by `PortsRest` or
    `PortsTaken`.
    """

    draft: Draft
    expected: Revision
    cause: Cause | None = None
    blocks: tuple[PortBlock, ...] = ()
    """Claim these in the same batch, or release them with a farewell."""


class ReturnPorts(msgspec.Struct, frozen=True):
    """Release what is still held of these; `PortsReturned`, in any case and soon."""

    blocks: tuple[PortBlock, ...]


class Pause(msgspec.Struct, frozen=True):
    """Wait a moment, then `Resumed`; whatever else is to be done ends the pause."""

    error: ControlPlaneError | None
    """What went wrong; None: time has to pass, that is all."""


class KeepBeating(msgspec.Struct, frozen=True):
    """Beat as this life from now on."""

    incarnation: Incarnation
    log_id: str
    revision: Revision


class Deliver(msgspec.Struct, frozen=True):
    """Tell the caller."""

    kind: NoticeKind
    reason: str
    revision: Revision


class End(msgspec.Struct, frozen=True):
    """It is over: by the caller's wish, or by this error."""

    error: ControlPlaneError | None


Job: TypeAlias = ReadSubject | ClaimPorts | Append | ReturnPorts | Pause
"""Effects that are answered by an input; at most one is open at a time."""
Effect: TypeAlias = Job | KeepBeating | Deliver | End
