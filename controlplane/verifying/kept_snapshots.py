"""What the kept snapshots say: the latest, and those that replay falls back on."""

from __future__ import annotations

from typing import Final, TypeAlias

import msgspec

from controlplane.viewfeed import SnapshotPointer, ViewFeed
from events import EVENT_TYPES, Revision
from projections import (
    FOLD_VERSION,
    Epoch,
    Snapshot,
    SnapshotUnusableError,
    restore,
)

from .claims import Claim, claim_of_snapshot
from .findings import Finding

TRIES: Final = 3
"""A snapshot may be replaced while it is read."""
Said: TypeAlias = Claim | Finding | None


async def read_snapshots(feed: ViewFeed) -> list[Claim | Finding]:
    """What each says, or why it cannot be read. Raises `LogUnavailableError`."""
    pointer, latest = await _read_latest(feed)
    others = [
        await _read_older(feed, snapshot_id, pointer)
        for snapshot_id in await feed.snapshot_ids()
        if pointer is None or snapshot_id != pointer.snapshot_id
    ]
    return [said for said in (latest, *others) if said is not None]


async def _read_latest(feed: ViewFeed) -> tuple[SnapshotPointer | None, Said]:
    for attempt in range(1, TRIES + 1):
        pointer = await feed.snapshot_pointer()
        if pointer is None:
            return None, None
        if pointer.fold_version != FOLD_VERSION:
            epoch = pointer.position.epoch
            return pointer, _foreign(epoch, pointer.fold_version, pointer.revision)
        try:
            return pointer, _claim(await feed.read_snapshot(pointer), pointer)
        except SnapshotUnusableError as error:
            if attempt == TRIES:
                who = f"the snapshot of epoch {pointer.position.epoch}"
                said = f"checksum {pointer.checksum}"
                return pointer, _unreadable(who, pointer, said, error)
    raise AssertionError


async def _read_older(
    feed: ViewFeed, snapshot_id: str, pointer: SnapshotPointer | None
) -> Said:
    """Of one that ``pointer`` does not name; None: it is being written or removed."""
    for _ in range(TRIES):
        try:
            snapshot = await feed.read_unnamed(snapshot_id)
            if snapshot.fold_version != FOLD_VERSION:
                epoch = snapshot.position.epoch
                return _foreign(epoch, snapshot.fold_version, snapshot.revision)
            return _claim(snapshot, None)
        except SnapshotUnusableError as error:
            if snapshot_id not in await feed.snapshot_ids():
                return None
            reason = error
    if (
        pointer is None
        or snapshot_id > pointer.snapshot_id  # ids tell which was begun first
        or pointer.fold_version != FOLD_VERSION
    ):
        return None
    who = f"an older snapshot, {snapshot_id},"
    return _unreadable(who, pointer, "a place among those that are kept", reason)


def _claim(snapshot: Snapshot, pointer: SnapshotPointer | None) -> Claim:
    """What it says, if it fits in itself and to the pointer that names it.

    Raises `SnapshotUnusableError`.
    """
    place, epoch = snapshot.position, snapshot.position.epoch
    if pointer is not None and (pointer.position, pointer.revision) != (
        place,
        snapshot.revision,
    ):
        raise SnapshotUnusableError(reason="its pointer says another place")
    if (snapshot.log_id, snapshot.fold_version) != (epoch.log_id, epoch.fold_version):
        reason = f"it names epoch {epoch}, but log {snapshot.log_id}"
        raise SnapshotUnusableError(reason=reason)
    state = restore(snapshot, frozenset(EVENT_TYPES))
    return claim_of_snapshot(snapshot, state.ports, is_latest=pointer is not None)


def _foreign(epoch: Epoch, fold_version: int, revision: Revision) -> Claim:
    """Of a snapshot that this version cannot read: counted, not compared."""
    epoch = msgspec.structs.replace(epoch, fold_version=fold_version)
    return Claim(kind="snapshot", epoch=epoch, revision=revision, digest="")


def _unreadable(
    who: str, pointer: SnapshotPointer, said: str, error: SnapshotUnusableError
) -> Finding:
    return Finding(
        what="unreadable",
        who=who,
        revision=pointer.revision,
        said=said,
        found=error.reason,
    )
