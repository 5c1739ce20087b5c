"""Where a fold may start instead of at the first record: at a projector's snapshot.

Only where the outcome is certain to be the same. A time or an event's id is searched
for from the first record on, because clocks may step back and ids may be repeated; so
a snapshot stands in for a revision, or for the end.
"""

from __future__ import annotations

import asyncio
from typing import Final

from controlplane.broker import Broker
from controlplane.errors import LogUnavailableError, SettingsError, StreamMissingError
from controlplane.eventlog import EventLog
from controlplane.logs import get_logger
from controlplane.snapshots import KNOWN_TAGS, Snapshots
from events import Revision
from projections import FoldState, Snapshot, SnapshotUnusableError, restore

RECORDS_MIN: Final = 10_000
"""Fewer are folded before a snapshot is fetched: some 5 µs each."""
BYTES_A_RECORD: Final = 64
"""So much of a snapshot takes as long to unpack and verify as a record to be folded."""
PATIENCE_S: Final = 2.0
"""How long is waited for a snapshot by one who can fold the log as well."""

_log = get_logger("replay")


class Starts:
    """Finds the state at the latest usable snapshot of a log that is whole."""

    def __init__(self, log: EventLog, broker: Broker) -> None:
        """Of ``log``, through ``broker``."""
        self._log, self._broker = log, broker
        self._snapshots: Final = Snapshots(log, broker)

    async def find(self, log_id: str | None, end: Revision) -> FoldState | None:
        """A state at or before ``end``, to be folded on to there; None: begin anew.

        Its log, its fold's version, its digests and the record that it ends with are
        checked, and that no record before was removed: the snapshot would know it.
        Whatever is wrong with a snapshot, or in the way of it, means None.
        """
        try:
            async with asyncio.timeout(PATIENCE_S):
                return await self._find(log_id, end)
        except (SnapshotUnusableError, StreamMissingError) as error:
            reason = str(error)
        except (LogUnavailableError, SettingsError, TimeoutError) as error:
            reason = str(error) or "no answer in time"
        _log.info("the whole log is folded, without a snapshot", reason=reason)
        return None

    async def _find(self, log_id: str | None, end: Revision) -> FoldState | None:
        if end < RECORDS_MIN:
            return None
        pointer = await self._snapshots.latest(log_id, RECORDS_MIN)
        if pointer is None or min(pointer.revision, end) < (
            pointer.bytes / BYTES_A_RECORD
        ):
            return None
        if pointer.revision <= end:
            return await self._checked(await self._snapshots.read(pointer), end)
        async for snapshot in self._snapshots.older(pointer):
            if RECORDS_MIN <= snapshot.revision <= end:
                return await self._checked(snapshot, end)
        return None

    async def _checked(self, snapshot: Snapshot, end: Revision) -> FoldState:
        """What the snapshot says. Raises `SnapshotUnusableError`."""
        state = restore(snapshot, KNOWN_TAGS)
        if state.revision > end:
            reason = f"it stands at revision {state.revision}, its pointer says less"
            raise SnapshotUnusableError(reason=reason)
        await self._snapshots.check(snapshot)
        log = await self._broker.state(self._log.names.log_stream)
        if log.messages < log.last_sequence:
            raise SnapshotUnusableError(reason="records were removed from the log")
        _log.info("a snapshot stands in for the log's beginning", at=state.revision)
        return state
