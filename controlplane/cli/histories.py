"""Opening a history for a command, and the state at any moment that one may name."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Final, TypeAlias

from cyclopts import Parameter

from controlplane.archive import ArchiveHistory
from controlplane.playback import (
    History,
    LogHistory,
    Moment,
    Progress,
    Starts,
    state_at,
)
from controlplane.router.checkpoint import read_checkpoint_snapshot
from projections import FoldState, PlaneState, fleet_of

from .opening import opened
from .options import Connecting

FromArchive: TypeAlias = Annotated[Path | None, Parameter(name="--from-archive")]
"""The option of every command that looks back: read this archive, not the log."""
MomentText: TypeAlias = Annotated[str, Parameter(allow_leading_hyphen=True)]
"""A moment as it is said on the command line; ``-10m`` is one, too."""
_ZSTD: Final = bytes.fromhex("28b52ffd")


@asynccontextmanager
async def opened_history(
    options: Connecting, from_archive: Path | None = None, *, snapshots: bool = False
) -> AsyncIterator[History]:
    """The history in the cell's log, or in an archive, which needs no broker.

    With ``snapshots`` the projector's may stand in for the log's beginning. Raises
    what `opened` raises, or `ArchiveUnusableError`.
    """
    if from_archive is not None:
        yield await ArchiveHistory.of(from_archive)
        return
    async with opened(options) as plane:
        starts = Starts(plane.log, plane.broker) if snapshots else None
        yield await LogHistory.of(plane.log, starts)


async def state_of(
    history: History, moment: Moment | None, progress: Progress | None = None
) -> PlaneState:
    """As `state_at`, also for a file that holds a state of its own.

    Raises what reading it raises: `ArchiveUnusableError`, `SnapshotUnusableError`.
    """
    if isinstance(moment, Path):
        return await state_in(moment, progress)
    return await state_at(history, moment, progress)


async def state_in(path: Path, progress: Progress | None = None) -> PlaneState:
    """The state in a file: at the end of an archive, or in a router's checkpoint.

    Raises `ArchiveUnusableError`, `SnapshotUnusableError`.
    """
    if is_archive(path):
        return await state_at(await ArchiveHistory.of(path), None, progress)
    snapshot, header = read_checkpoint_snapshot(path)
    state = FoldState(
        fleet_state=fleet_of(snapshot),
        anomalies=snapshot.anomalies,
        revision=snapshot.revision,
        fingerprint=snapshot.fingerprint,
        recorded_at=snapshot.recorded_at,
    )
    return PlaneState(state, cell=header.cell, log_id=snapshot.log_id)


def is_archive(path: Path) -> bool:
    """Whether it is packed; a checkpoint begins with a line of text."""
    try:
        with path.open("rb") as file:
            return file.read(len(_ZSTD)) == _ZSTD
    except OSError:
        return False
