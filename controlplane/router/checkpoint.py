"""A router's checkpoint file: its replica, so that it starts with the broker down.

The file is a line of JSON (format, cell, checksum, time) and a compressed snapshot. It
is written beside the old one and renamed over it, so it is always whole, old or new.
It names workers and their addresses, so only its owner may read it.
"""

from __future__ import annotations

import os
import stat
from datetime import datetime
from pathlib import Path
from threading import Lock
from typing import Final

import msgspec

from controlplane.errors import SettingsError
from controlplane.viewfeed import pack_snapshot, unpack_snapshot
from events import UNREADABLE, Cell, Revision
from projections import (
    Anomalies,
    FoldState,
    Snapshot,
    SnapshotUnusableError,
    take,
)

from .replica import Replica, from_snapshot

FORMAT: Final = 1
MODE: Final = 0o600


class Header(msgspec.Struct, frozen=True, kw_only=True):
    """The first line of the file."""

    checkpoint: int
    cell: Cell
    checksum: str
    fresh_at: datetime
    """When the replica was last known to be all there is."""
    fingerprint_at: Revision | None = None
    """The revision of the snapshot's fingerprint; None: nobody knows."""


class CheckpointFile:
    """The file of one router of ``cell`` at ``path``. Any thread may write it."""

    def __init__(self, path: Path, cell: Cell) -> None:
        """Nothing is read or written yet; a link is followed now, once for all.

        Raises `SettingsError` for what cannot be a file.
        """
        self.path, self._cell = _followed(path), cell
        self.check()
        self._beside = self.path.with_name(f".{self.path.name}.new")
        self._lock = Lock()

    def check(self) -> None:
        """Raise `SettingsError` if there is something else than a file."""
        try:
            mode = self.path.stat().st_mode
        except (FileNotFoundError, PermissionError):
            return  # there may be a file later; until then, each use says so
        except (OSError, ValueError) as error:
            raise _no_file(self.path, str(error)) from error
        if not stat.S_ISREG(mode):
            raise _no_file(self.path, "there is something else")

    def write(self, replica: Replica, fresh_at: datetime) -> None:
        """Save ``replica``, known to be all there was at ``fresh_at``.

        Raises OSError. One call at a time: a later one waits.
        """
        state = FoldState(
            fleet_state=replica.fleet,
            anomalies=Anomalies(counts=replica.anomalies),
            revision=replica.revision,
            fingerprint=replica.fingerprint,
        )
        with self._lock:
            packed, checksum = pack_snapshot(take(state, replica.position))
            header = Header(
                checkpoint=FORMAT,
                cell=self._cell,
                checksum=checksum,
                fresh_at=fresh_at,
                fingerprint_at=replica.fingerprint_at,
            )
            self._replace(msgspec.json.encode(header) + b"\n" + packed)

    def _replace(self, content: bytes) -> None:
        """One name for the file beside: what a kill left there is overwritten."""
        beside = self._beside
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
        try:
            try:
                opened = os.open(beside, flags, MODE)
            except FileExistsError:
                beside.unlink(missing_ok=True)
                opened = os.open(beside, flags, MODE)
            with open(opened, "wb") as file:  # noqa: PTH123 - a mode
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            beside.replace(self.path)
        except OSError:
            beside.unlink(missing_ok=True)
            raise

    def read(self) -> tuple[Replica, datetime]:
        """The replica saved there, and when it was last known to be all there is.

        Raises `SnapshotUnusableError`, also when there is no such file.
        """
        snapshot, header = read_checkpoint_snapshot(self.path)
        if header.cell != self._cell:
            reason = f"{self.path} is of cell {header.cell}, not {self._cell}"
            raise SnapshotUnusableError(reason=reason)
        replica = from_snapshot(snapshot)
        known = header.fingerprint_at
        replica = msgspec.structs.replace(
            replica,
            fingerprint="" if known is None else replica.fingerprint,
            fingerprint_at=0 if known is None else known,
        )
        return replica, header.fresh_at


def _followed(path: Path) -> Path:
    """Where ``path`` leads. Replacing a link would leave what it leads to behind."""
    try:
        return path.resolve()
    except (OSError, ValueError, RuntimeError) as error:
        raise _no_file(path, str(error)) from error


def _no_file(path: Path, why: str) -> SettingsError:
    rule = f"a file, or the name of one to be ({why})"
    return SettingsError(field="checkpoint", value=str(path), rule=rule)


def read_checkpoint_snapshot(path: Path) -> tuple[Snapshot, Header]:
    """The snapshot in the file at ``path``. Raises `SnapshotUnusableError`."""
    try:
        line, _, packed = path.read_bytes().partition(b"\n")
        header = msgspec.json.decode(line, type=Header)
    except OSError as error:
        raise SnapshotUnusableError(reason=str(error)) from error
    except UNREADABLE as error:
        reason = f"{path} is no checkpoint: {error}"
        raise SnapshotUnusableError(reason=reason) from error
    if header.checkpoint != FORMAT:
        reason = f"format {header.checkpoint}, this version reads {FORMAT}"
        raise SnapshotUnusableError(reason=reason)
    if header.fresh_at.tzinfo is None:
        raise SnapshotUnusableError(reason=f"{path} says no time zone")
    return unpack_snapshot(packed, header.checksum), header
