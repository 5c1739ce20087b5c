"""Snapshots that may stand in for the beginning of a log, and who vouches for them.

What was folded before is as good as folding it again, if the log is the one that it
was folded from: the same id, and the same record where the snapshot ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Final

from controlplane.broker import Broker
from controlplane.eventlog import EventLog
from controlplane.viewfeed import SnapshotPointer, ViewFeed
from events import EVENT_TYPES, Revision
from projections import FOLD_VERSION, Snapshot, SnapshotUnusableError

KNOWN_TAGS: Final = frozenset(EVENT_TYPES)
"""What this version understands: whose maker understood less is of no use."""


class Snapshots:
    """The snapshots of one log that are kept, the latest and the one before.

    Every call raises `LogUnavailableError`, `StreamMissingError` and `SettingsError`
    when they cannot be read, and `SnapshotUnusableError` for one that is not sound.
    """

    def __init__(self, log: EventLog, broker: Broker) -> None:
        """Of ``log``, through ``broker``."""
        self._log: Final = log
        self._feed: Final = ViewFeed(broker, log.names.cell)

    async def latest(
        self, log_id: str | None, at_least: Revision
    ) -> SnapshotPointer | None:
        """Where the latest one stands, if it may be of use as far as that says."""
        pointer = await self._feed.snapshot_pointer()
        if (
            pointer is None
            or pointer.fold_version != FOLD_VERSION
            or pointer.position.epoch.log_id != log_id
            or pointer.revision < at_least
        ):
            return None
        return pointer

    async def read(self, pointer: SnapshotPointer) -> Snapshot:
        """The one that ``pointer`` names."""
        snapshot = await self._feed.read_snapshot(pointer)
        if snapshot.position != pointer.position:
            raise SnapshotUnusableError(reason="its pointer says another place")
        return snapshot

    async def older(self, pointer: SnapshotPointer) -> AsyncIterator[Snapshot]:
        """Those kept beside the one that ``pointer`` names, the latest first."""
        for snapshot_id in await self._feed.snapshot_ids():
            if snapshot_id != pointer.snapshot_id:
                yield await self._feed.read_unnamed(snapshot_id)

    async def check(self, snapshot: Snapshot) -> None:
        """Raise `SnapshotUnusableError` if the log is not the one that it was made of.

        A record that was purged vouches for nothing and denies nothing. The log is
        asked after the snapshot was read: what it ends with is there then.
        """
        at = snapshot.revision
        state, record = await asyncio.gather(self._log.state(), self._log.at(at))
        if snapshot.log_id != state.log_id:
            raise SnapshotUnusableError(reason="it is of another log")
        if at > state.last_revision:
            reason = f"the log ends at {state.last_revision}, below it"
            raise SnapshotUnusableError(reason=reason)
        if record is not None and record.fingerprint != snapshot.fingerprint:
            reason = f"the log holds another record at {at}"
            raise SnapshotUnusableError(reason=reason)
