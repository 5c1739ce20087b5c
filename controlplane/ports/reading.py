"""Reading what the log has on one host's ports, and going on from there.

What was read is folded from the beginning, for only the fold knows who holds a port: a
release that is not its holder's changes nothing, though it may be the last record
there. In a long log the beginning is the projector's latest snapshot.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime
from typing import Final

from immutables import Map
from msgspec.structs import replace

from controlplane.broker import Broker
from controlplane.errors import HistoryTruncatedError
from controlplane.eventlog import EventLog, LogState
from events import Host, Record, Revision, encode_token
from projections import HostPorts, host_ports

from .beginning import Beginning, Beginnings

LAG_S: Final = 0.01
"""A replica that lags behind the leader is asked again after so long."""
LONG: Final = 1000
"""After a reading of more it is asked whether the log's beginning is still there."""


class HostReading:
    """The ports of ``host`` as far as read.

    ``known`` is the fold of all of the host's records up to ``position``.
    """

    def __init__(
        self,
        log: EventLog,
        broker: Broker,
        host: Host,
        beginnings: Beginnings,
        *,
        forgot: Callable[[bool], None],
    ) -> None:
        """Begin without knowledge; the first `read` reads everything.

        ``forgot`` is called when what was known is forgotten: with True if the log is
        another one now.
        """
        self._log, self._broker = log, broker
        self._beginnings, self._forgot = beginnings, forgot
        self._subject: Final = f"log.port.{encode_token(host)}.>"
        self.host: Final = host
        self.known = HostPorts(host=host)
        self.now: datetime | None = None
        """The broker's time at the last reading: its clock is not behind that."""
        self.log_id = ""
        self.position: Revision = 0
        self.end: Revision = 0
        """Where the log ended when it was last read."""
        self._fingerprint = ""
        """Of the record at ``position``."""
        self._last: Revision = 0
        """Where the host's last record stands, of those that are known."""
        self._certain: Revision = 0
        self._anew = self._by_log = False
        """To forget what is known first; to pass by snapshots until all is read."""

    async def read(self, *, anew: bool) -> None:
        """Read up to where the log is now, by its leader.

        A reading that is cut goes on where it was, with ``anew`` too. Raises
        `LogUnavailableError`, and `HistoryTruncatedError` when the log's beginning is
        gone, was not read before and no usable snapshot reaches it.
        """
        self._anew = self._anew or anew
        while not await self._read_once():
            pass

    async def _read_once(self) -> bool:
        """Whether all was read; else the log changed under the reading: read again."""
        state, head, own = await asyncio.gather(
            self._log.state(), self._log.last(self._subject), self._own_last()
        )
        if self._is_replaced(state, head, own):
            self._begin_anew(is_another=self.log_id not in {"", state.log_id})
            # At once: an attempt that is cut is no reason to read from the beginning.
            self.log_id = state.log_id
        elif self._anew and state.first_revision == 1:
            self._begin_anew(is_another=False)
        self._anew = False
        if not await self._begin(state, head):
            return False
        before = max(self._certain, self.position)
        self._certain = before
        if head is not None:
            await self._read_up_to(head.revision)
        if self.position - before > LONG:
            first = (await self._log.state()).first_revision
            if not self._is_known_up_to(first):
                return False
            self._drop_purged(first)
        self._certain = max(state.last_revision, self.position)
        self.now, self._by_log = state.now, False
        self.end = self._certain
        return True

    async def _own_last(self) -> Record | None:
        return await self._log.at(self.position) if self.position else None

    def _is_replaced(
        self, state: LogState, head: Record | None, own: Record | None
    ) -> bool:
        """Whether the log is not the one that was read, or lost what was read last."""
        end = 0 if head is None else head.revision
        purged = self._last < state.first_revision
        return (
            state.log_id != self.log_id
            or state.last_revision < self.position
            or (end < self._last and not purged)
            or (own is not None and own.fingerprint != self._fingerprint)
        )

    async def _begin(self, state: LogState, head: Record | None) -> bool:
        """Begin with a snapshot, if it is the only way, or the shorter one.

        While the log can still be read it is that, and no snapshot, when records may
        have been removed from under what was known: a snapshot has them still. And
        when a search for one was cut: the log is read on where that was cut.

        False: ``state`` is not how the log stands any more.
        """
        first, known_to, found = state.first_revision, self._certain, None
        if not self._is_known_up_to(first):
            found = await self._beginnings.find(state, self.host, known_to)
        elif not self._by_log:
            self._by_log, known_to = True, max(known_to, self.position)
            found = await self._beginnings.find(state, self.host, known_to)
        if found is not None:
            self._adopt(found, head)
        if not self._is_known_up_to(first):
            self._begin_anew(is_another=False)
            now = await self._log.state()
            if (now.log_id, now.first_revision) != (state.log_id, first):
                return False
            raise HistoryTruncatedError(first=first)
        self._drop_purged(first)
        return True

    def _adopt(self, found: Beginning, head: Record | None) -> None:
        self.known = host_ports(found.ports, self.host)
        self.position, self._fingerprint = found.revision, found.fingerprint
        self._certain = found.revision
        # By the log, not by the table: that may know records which were removed.
        self._last = 0 if head is None else min(head.revision, found.revision)

    def _is_known_up_to(self, first: Revision) -> bool:
        """Whether all that was before ``first`` is known: it cannot be read again.

        It is as far as was certain before the last reading: what is purged during a
        reading is passed over by it like any other hole.
        """
        return first <= 1 or self._certain >= first - 1

    def _drop_purged(self, first: Revision) -> None:
        """What a purged record said stands, but on its subject there is none now."""
        kept = {port: at for port, at in self.known.revisions.items() if at >= first}
        if len(kept) < len(self.known.revisions):
            self.known = replace(self.known, revisions=Map(kept))

    def _begin_anew(self, *, is_another: bool) -> None:
        self._by_log = bool(self.log_id)
        self.known = HostPorts(host=self.host)
        self.position = self._last = self._certain = self.end = 0
        self._forgot(is_another)

    async def _read_up_to(self, end: Revision) -> None:
        """Fold on to ``end``, which the leader says is there.

        A replica may lag behind it: what it gives is a beginning all the same.
        """
        while self.position < end:
            await self._read_some(end)
            if self.position < end:
                await asyncio.sleep(LAG_S)

    async def _read_some(self, end: Revision) -> None:
        names, known, record = self._log.names, self.known, None
        batches = self._broker.read(
            names.log_stream,
            after=self.position,
            until=end,
            subject=names.absolute(self._subject),
        )
        async for batch in batches:
            for message in batch:
                record = self._log.record(message)
                known = known.after(record)
            if record is not None:
                self.known, self.position = known, record.revision
                self._last, self._fingerprint = record.revision, record.fingerprint
