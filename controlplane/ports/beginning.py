"""Where a reading of ports may begin: in the projector's latest snapshot.

Who holds a port depends on all of its records, so a reading begins with the first. In
a log that is years old that takes long, and after a purge it cannot be done. What was
folded before may stand in for it, if the log is the one that it was folded from: the
same id, and the same record where the snapshot ends. If that record was purged, the
snapshot is believed as the projector believes it.
"""

from __future__ import annotations

import asyncio
from typing import Final

import msgspec

from controlplane.broker import Broker
from controlplane.errors import LogUnavailableError, SettingsError, StreamMissingError
from controlplane.eventlog import EventLog, LogState
from controlplane.logs import get_logger
from controlplane.snapshots import KNOWN_TAGS, Snapshots
from controlplane.viewfeed import SnapshotPointer
from events import Host, Revision, encode_token
from projections import PortTable, Snapshot, SnapshotUnusableError, restore_ports

RECORDS_MIN: Final = 5000
"""Fewer are read before one knows whether there is a snapshot: 15 µs each."""
BYTES_A_RECORD: Final = 64
"""So much of a snapshot takes as long to unpack and verify as a record to be read."""
PATIENCE_S: Final = 1.0

_log = get_logger("ports")


class Beginning(msgspec.Struct, frozen=True, kw_only=True):
    """What the log says of ports, up to the record at ``revision``."""

    ports: PortTable
    revision: Revision
    fingerprint: str


class Beginnings:
    """Finds where to begin, for readers of one host's ports or of all."""

    def __init__(
        self, log: EventLog, broker: Broker, patience_s: float = PATIENCE_S
    ) -> None:
        """Of ``log``, through ``broker``.

        One who can read the log as well waits ``patience_s`` for a snapshot's bytes.
        """
        self._log, self._broker, self._patience_s = log, broker, patience_s
        self._snapshots: Final = Snapshots(log, broker)

    async def find(
        self, state: LogState, host: Host | None, known_to: Revision = 0
    ) -> Beginning | None:
        """Where to begin instead of behind ``known_to``; None: begin there.

        For the ports of ``host`` (None: of all hosts), in the log that stands at
        ``state``. If the next record is still there, only a snapshot that is worth it
        is used. Else it is the only way: raises `LogUnavailableError` and
        `SettingsError` then when it cannot be read.
        """
        needed = known_to < state.first_revision - 1
        if not needed and state.last_revision - known_to < RECORDS_MIN:
            return None
        try:
            if needed:
                snapshot = await self._snapshot(await self._pointer(state, known_to))
            else:
                async with asyncio.timeout(self._patience_s):
                    snapshot = await self._worthwhile(state, host, known_to)
            return None if snapshot is None else await self._vouched(snapshot, host)
        except (SnapshotUnusableError, StreamMissingError) as error:
            reason = str(error)
        except (LogUnavailableError, SettingsError, TimeoutError) as error:
            if needed:
                raise
            reason = str(error) or "no answer in time"
        _log.info("ports read without a snapshot", reason=reason)
        return None

    async def _worthwhile(
        self, state: LogState, host: Host | None, known_to: Revision
    ) -> Snapshot | None:
        """The latest snapshot, if it spares more than it costs."""
        subject = "log.port.>" if host is None else f"log.port.{encode_token(host)}.>"
        names = self._log.names
        count = await self._broker.count(names.log_stream, names.absolute(subject))
        if count < RECORDS_MIN:
            return None
        pointer = await self._pointer(state, known_to)
        if pointer is None:
            return None
        # As if they were spread evenly: nobody knows where in the log they stand.
        before = state.first_revision - 1
        share = (pointer.revision - max(known_to, before)) / (
            state.last_revision - before
        )
        worth = count * share >= max(RECORDS_MIN, pointer.bytes / BYTES_A_RECORD)
        return await self._snapshot(pointer) if worth else None

    async def _pointer(
        self, state: LogState, known_to: Revision
    ) -> SnapshotPointer | None:
        at_least = max(known_to + 1, state.first_revision - 1)
        return await self._snapshots.latest(state.log_id, at_least)

    async def _snapshot(self, pointer: SnapshotPointer | None) -> Snapshot | None:
        return None if pointer is None else await self._snapshots.read(pointer)

    async def _vouched(self, snapshot: Snapshot, host: Host | None) -> Beginning:
        """What the snapshot says. Raises `SnapshotUnusableError`."""
        ports = restore_ports(snapshot, KNOWN_TAGS, host)
        await self._snapshots.check(snapshot)
        return Beginning(
            ports=ports, revision=snapshot.revision, fingerprint=snapshot.fingerprint
        )
