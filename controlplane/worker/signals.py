"""What goes into the worker's core, and what comes out of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias

import msgspec

from controlplane.beats import NoticeKind, WireNotice
from controlplane.errors import AppendConflictError
from events import (
    Capacity,
    ControlPlaneError,
    Incarnation,
    ModelName,
    Record,
    Revision,
    Status,
)

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


class Conflicted(msgspec.Struct, frozen=True):
    """The event is not in the log, for its expectation did not hold."""

    error: AppendConflictError


class Failed(msgspec.Struct, frozen=True):
    """Nothing came of the read or the append; certainly nothing was stored."""

    error: ControlPlaneError


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
Input: TypeAlias = (
    Begin
    | SubjectRead
    | Appended
    | Conflicted
    | Failed
    | Resumed
    | Noticed
    | Command
    | Leave
)


# ---- effects -----------------------------------------------------------------------
class ReadSubject(msgspec.Struct, frozen=True):
    """Ask the log's leader how the worker's subject stands; `SubjectRead`, `Failed`."""

    after: Revision | None
    """Its records above this one; None: only where it stands."""
    log_id: str
    fingerprint: str = ""
    """Identifies the record at ``after``, as it is known; empty: it is not."""


class Append(msgspec.Struct, frozen=True):
    """Seal the draft and append it until the answer is definite.

    Answered by `Appended`, `Conflicted` or `Failed`.
    """

    draft: Draft
    expected: Revision
    cause: Cause | None = None


class Pause(msgspec.Struct, frozen=True):
    """Wait a moment, then `Resumed`; whatever else is to be done ends the pause."""

    error: ControlPlaneError


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


Job: TypeAlias = ReadSubject | Append | Pause
"""Effects that are answered by an input; at most one is open at a time."""
Effect: TypeAlias = Job | KeepBeating | Deliver | End
