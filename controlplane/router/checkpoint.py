"""A router's checkpoint file: its replica, so that it starts with the broker down.

The file is a line of JSON (format, checksum, time) and a compressed snapshot. It is
written beside the old one and renamed over it, so it is always whole, old or new.
"""

from __future__ import annotations

import os
from datetime import datetime
from pathlib import Path
from typing import Final

import msgspec

from controlplane.viewfeed import pack_snapshot, unpack_snapshot
from projections import (
    Anomalies,
    FoldState,
    Snapshot,
    SnapshotUnusableError,
    take,
)

from .replica import Replica, from_snapshot

FORMAT: Final = 1


class Header(msgspec.Struct, frozen=True, kw_only=True):
    """The first line of the file."""

    checkpoint: int
    checksum: str
    saved_at: datetime


def write_checkpoint(path: Path, replica: Replica, now: datetime) -> None:
    """Save ``replica`` at ``path``. Raises OSError."""
    state = FoldState(
        fleet_state=replica.fleet,
        anomalies=Anomalies(counts=replica.anomalies),
        revision=replica.revision,
        fingerprint=replica.fingerprint,
    )
    packed, checksum = pack_snapshot(take(state, replica.position))
    header = Header(checkpoint=FORMAT, checksum=checksum, saved_at=now)
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with beside.open("wb") as file:
            file.write(msgspec.json.encode(header) + b"\n" + packed)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


def read_checkpoint(path: Path) -> tuple[Replica, datetime]:
    """The replica saved at ``path`` and when.

    Raises `SnapshotUnusableError`, also when there is no such file.
    """
    snapshot, header = read_checkpoint_snapshot(path)
    return from_snapshot(snapshot), header.saved_at


def read_checkpoint_snapshot(path: Path) -> tuple[Snapshot, Header]:
    """The snapshot in the file at ``path``. Raises `SnapshotUnusableError`."""
    try:
        line, _, packed = path.read_bytes().partition(b"\n")
        header = msgspec.json.decode(line, type=Header)
    except OSError as error:
        raise SnapshotUnusableError(reason=str(error)) from error
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        reason = f"{path} is no checkpoint: {error}"
        raise SnapshotUnusableError(reason=reason) from error
    if header.checkpoint != FORMAT:
        reason = f"format {header.checkpoint}, this version reads {FORMAT}"
        raise SnapshotUnusableError(reason=reason)
    return unpack_snapshot(packed, header.checksum), header
