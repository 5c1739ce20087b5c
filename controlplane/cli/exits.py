"""Exit codes, and the one line that says what happened.

They follow sysexits.h, so that a script can tell a no from a failure, and a failure
that time mends from one that a person must mend.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from controlplane.archive import (
    ArchiveUnusableError,
    ExportRefusedError,
    ExportStoppedError,
    ImportRefusedError,
)
from controlplane.errors import (
    AppendConflictError,
    AppendOutcomeUnknownError,
    HistoryForkedError,
    HistoryTruncatedError,
    IncarnationSupersededError,
    LeaseLostError,
    LogFullError,
    LogUnavailableError,
    ModelInUseError,
    PortsExhaustedError,
    SettingsError,
    StreamMissingError,
    TopologyDriftError,
)
from controlplane.playback import (
    EventNotFoundError,
    MomentAheadError,
    MomentInvalidError,
    MomentTooEarlyError,
    RecordRemovedError,
    RouterElsewhereError,
    RouterUnseenError,
    TypeUnknownError,
)
from controlplane.sidecar import ChildNotHealthyError, ChildNotStartedError
from events import ControlPlaneError, InvalidIdentityError, UndecodableRecordError
from projections import (
    ModelNotFoundError,
    ModelUnavailableError,
    SequenceGapError,
    SnapshotUnusableError,
)

OK: Final = 0
NO: Final = 1
USAGE: Final = 64
BAD_DATA: Final = 65
UNREACHABLE: Final = 69
OUR_BUG: Final = 70
TRY_AGAIN: Final = 75
CONFIGURATION: Final = 78
INTERRUPTED: Final = 130


class UsageError(ControlPlaneError):
    """The command was called wrongly. Call it again, as the message says."""


class NotYetError(ControlPlaneError):
    """What was asked for is not there yet. Do as the message says, or try again."""


class CellMissingError(ControlPlaneError):
    """The broker has no such cell. Create it."""

    def __init__(self, *, cell: str, url: str, missing: tuple[str, ...]) -> None:
        """Name the ``cell``, the broker and the ``missing`` streams."""
        self.cell, self.url, self.missing = cell, url, missing
        which = "" if cell == "default" else f" --cell {cell}"
        super().__init__(
            f"cell {cell!r} is not complete at {url} (no stream "
            f"{', '.join(missing)}); create it: controlplane init{which}"
        )


class AdapterNameError(ControlPlaneError):
    """An adapter has no setting of its own. Decide for the model that it belongs to."""

    def __init__(self, *, adapter: str, models: Sequence[str]) -> None:
        """Name the ``adapter`` and the ``models`` whose workers have it."""
        self.adapter, self.models = adapter, tuple(models)
        named = ", ".join(map(repr, self.models))
        super().__init__(
            f"{adapter!r} is an adapter of {named}, and goes by what is decided "
            "for that; set it there"
        )


class SaidError(ControlPlaneError):
    """The answer is no, and it was printed already."""


SILENT: Final = (SaidError,)
_CODES: Final[tuple[tuple[type[BaseException], int], ...]] = (
    (UsageError, USAGE),
    (InvalidIdentityError, USAGE),
    (MomentInvalidError, USAGE),
    (MomentTooEarlyError, USAGE),
    (TypeUnknownError, USAGE),
    (SaidError, NO),
    (AdapterNameError, NO),
    (EventNotFoundError, NO),
    (RecordRemovedError, NO),
    (RouterUnseenError, NO),
    (ExportRefusedError, NO),
    (ImportRefusedError, NO),
    (ModelNotFoundError, NO),
    (ModelUnavailableError, NO),
    (ModelInUseError, NO),
    (UndecodableRecordError, BAD_DATA),
    (SnapshotUnusableError, BAD_DATA),
    (ArchiveUnusableError, BAD_DATA),
    (RouterElsewhereError, BAD_DATA),
    (HistoryTruncatedError, BAD_DATA),
    (HistoryForkedError, BAD_DATA),
    (StreamMissingError, CONFIGURATION),
    (LogUnavailableError, UNREACHABLE),
    (NotYetError, TRY_AGAIN),
    (ExportStoppedError, TRY_AGAIN),
    (MomentAheadError, TRY_AGAIN),
    (AppendConflictError, TRY_AGAIN),
    (AppendOutcomeUnknownError, TRY_AGAIN),
    (LogFullError, TRY_AGAIN),
    (PortsExhaustedError, TRY_AGAIN),
    (SequenceGapError, TRY_AGAIN),
    (TimeoutError, TRY_AGAIN),
    (OSError, TRY_AGAIN),
    (LeaseLostError, TRY_AGAIN),
    (ChildNotStartedError, TRY_AGAIN),
    (ChildNotHealthyError, TRY_AGAIN),
    (IncarnationSupersededError, CONFIGURATION),
    (CellMissingError, CONFIGURATION),
    (TopologyDriftError, CONFIGURATION),
    (SettingsError, CONFIGURATION),
)
_NEXT: Final[dict[type[BaseException], str]] = {
    TopologyDriftError: "change the streams back, or start a new cell with --cell",
    ModelNotFoundError: "see what there is: controlplane models",
    ModelUnavailableError: "see why: controlplane workers",
    SequenceGapError: "try again",
    TimeoutError: "try again",
    OSError: "this machine refused to read or write: mend that, and try again",
}


def exit_code(error: BaseException) -> int:
    """The code for a command that ended by ``error``."""
    for kind, code in _CODES:
        if isinstance(error, kind):
            return code
    return OUR_BUG


def sentence(error: BaseException) -> str:
    """What happened, the values and the next step, in one line."""
    said = " ".join(str(error).split()) or type(error).__name__
    if exit_code(error) == OUR_BUG and isinstance(error, Exception):
        if type(error).__module__.startswith("cyclopts"):
            return said
        name = type(error).__name__
        next_step = "this is a bug: run it again with --debug and report the traceback"
        return f"{name}: {said}; {next_step}"
    for kind, next_step in _NEXT.items():
        if isinstance(error, kind):
            return f"{said}; {next_step}"
    return said


@contextmanager
def from_arguments() -> Iterator[None]:
    """What is refused in here was said on the command line: a `UsageError`."""
    try:
        yield
    except (SettingsError, InvalidIdentityError) as error:
        raise UsageError(str(error)) from error
