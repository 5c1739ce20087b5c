"""A history: everything a log says, wherever it is kept.

Whoever looks back reads through this, so that the log on a broker and an archive on
disk answer the same questions in the same way.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import datetime
from typing import NamedTuple, Protocol, Self

from controlplane.errors import HistoryTruncatedError
from controlplane.eventlog import EventLog
from events import Cell, Record, Revision, StoredRecord
from projections import FoldState

from .starting import Starts


class Ends(NamedTuple):
    """Where a history begins and ends."""

    first: Revision
    """The first revision that is still there; last + 1 when there is none."""
    last: Revision
    """The last revision ever; 0 when nothing was ever recorded."""
    now: datetime | None
    """The broker's clock: now, or when the archive was made. None: nobody knows."""


class History(Protocol):
    """The records of one log, in order."""

    @property
    def cell(self) -> Cell:
        """The cell that the log belongs to."""
        ...

    @property
    def log_id(self) -> str | None:
        """The log's identity; None: nobody knows."""
        ...

    async def ends(self) -> Ends:
        """Where it begins, and where it ends at this moment."""
        ...

    def batches(
        self, after: Revision = 0, until: Revision | None = None
    ) -> AsyncIterator[list[Record]]:
        """Yield the records in (after, until], in order, many at a time; then end.

        ``until=None``: the last one when called. Revisions without a record are
        passed over.
        """
        ...

    def stored(
        self, after: Revision = 0, until: Revision | None = None
    ) -> AsyncIterator[list[StoredRecord]]:
        """As `batches`, with each payload as it is stored."""
        ...

    async def at(self, revision: Revision) -> Record | None:
        """The record at ``revision``; None: there is none."""
        ...

    def beheaded(self, first: Revision) -> HistoryTruncatedError:
        """What is to be said when it begins at ``first``, and all of it is needed."""
        ...

    async def start(self, end: Revision) -> FoldState | None:
        """What its records up to some revision not beyond ``end`` mean, if it knows.

        None: it does not; whoever wants to know folds them.
        """
        ...


class LogHistory:
    """The history in a log on the broker. Raises what `EventLog` raises."""

    def __init__(
        self, log: EventLog, log_id: str | None = None, starts: Starts | None = None
    ) -> None:
        """Read from ``log``, whose identity is ``log_id``; see `of`.

        Without ``starts`` every state is folded from the first record.
        """
        self._log, self._log_id, self._starts = log, log_id, starts
        self.started_at: Revision = 0
        """Where the last state was begun; 0: before the first record."""

    @classmethod
    async def of(cls, log: EventLog, starts: Starts | None = None) -> Self:
        """The history of ``log``, its identity asked for now."""
        return cls(log, (await log.state()).log_id, starts)

    @property
    def cell(self) -> Cell:
        """The log's cell."""
        return self._log.names.cell

    @property
    def log_id(self) -> str | None:
        """The log's identity, if it was asked for."""
        return self._log_id

    async def ends(self) -> Ends:
        """Where the log stands, by its leader.

        Raises `ImportUnfinishedError`: a part of an archive is no history.
        """
        state = await self._log.whole_state()
        self._log_id = state.log_id
        return Ends(state.first_revision, state.last_revision, state.now)

    async def batches(
        self, after: Revision = 0, until: Revision | None = None
    ) -> AsyncIterator[list[Record]]:
        """Yield the log's records in (after, until]."""
        async for records in self._log.read_batches(after, until):
            yield records

    async def stored(
        self, after: Revision = 0, until: Revision | None = None
    ) -> AsyncIterator[list[StoredRecord]]:
        """Yield the log's records in (after, until], as they are stored."""
        async for records in self._log.read_stored(after, until):
            yield records

    async def at(self, revision: Revision) -> Record | None:
        """The log's record at ``revision``, by its leader."""
        return await self._log.at(revision)

    def beheaded(self, first: Revision) -> HistoryTruncatedError:
        """A backup may have the rest."""
        return HistoryTruncatedError(first=first)

    async def start(self, end: Revision) -> FoldState | None:
        """The state at the projector's latest snapshot up to ``end``."""
        self.started_at = 0
        if self._starts is None:
            return None
        found = await self._starts.find(self._log_id, end)
        if found is not None:
            self.started_at = found.revision
        return found
