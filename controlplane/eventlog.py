"""The log: append events and read records. What the rest knows of the LOG stream."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from datetime import datetime
from functools import partial
from typing import Final

import msgspec
from msgspec.structs import replace

from events import (
    AnyEvent,
    Cell,
    InvalidIdentityError,
    PortReleased,
    Record,
    Revision,
    Status,
    StoredRecord,
    TrafficWeightSet,
    WorkerDeregistered,
    WorkerExpired,
    WorkerHeld,
    WorkerStatusChanged,
    decode,
    encode,
    subject_of,
)

from .broker import Broker, Message, Outgoing, StreamState
from .errors import (
    AppendConflictError,
    AppendOutcomeUnknownError,
    HistoryForkedError,
    LogFullError,
    LogUnavailableError,
    SettingsError,
)
from .origin import Origin, check_import, origin_of, recorded_at
from .recognition import Recognition
from .settings import Settings
from .topology import LOG_ID, Names

REPEAT_AFTER_S: Final = 0.1
FREEING: Final = (WorkerDeregistered, WorkerExpired, WorkerHeld, PortReleased)
"""Events that end something: for them the last of a limited log is kept."""
FAREWELL_BYTES: Final = 640
"""What the end of one life or claim takes in the log, with its headers."""
UNLIMITED_FOR_S: Final = 30.0


def check_after(revision: Revision) -> None:
    """Refuse to begin before the beginning. Raises `SettingsError`."""
    if revision < 0:
        rule = "0, the beginning, or the revision behind which to read on"
        raise SettingsError(field="after", value=revision, rule=rule)


class Appended(msgspec.Struct, frozen=True):
    """An event is in the log, at this revision; of several, the last."""

    revision: Revision


class LogState(msgspec.Struct, frozen=True, kw_only=True):
    """Where the log stands, answered by its leader."""

    log_id: str
    first_revision: Revision
    last_revision: Revision
    bytes: int
    max_bytes: int
    now: datetime

    @property
    def fill(self) -> float:
        """The share of its limit that is used; 0 without a limit."""
        return self.bytes / self.max_bytes if self.max_bytes > 0 else 0.0


class Pending(msgspec.Struct, frozen=True):
    """An event to append; ``expected``: the last revision on its subject, 0: none."""

    event: AnyEvent
    expected: Revision | None = None
    fresh: bool = False
    """Nobody sent it before: then a conflict at the first try is believed, without a
    look into the log for what may be one's own. Dear only where conflicts are many."""


class EventLog:
    """The log of one cell.

    Every call raises `LogUnavailableError` when the broker does not answer in time.
    """

    def __init__(self, broker: Broker, cell: Cell, settings: Settings) -> None:
        """Read and write the log of ``cell`` through ``broker``."""
        self._broker, self._settings = broker, settings
        self.names = Names(cell)
        self._prefix = self.names.prefix
        self._stream = self.names.log_stream
        self._unlimited_until = 0.0
        self._recognition = Recognition(self)
        self.resumptions = 0
        """How often a reader here had to go on from its own last record."""

    async def state(self) -> LogState:
        """Where the log stands now, by its leader."""
        state = await self._broker.state(self._stream)
        return _log_state(state)

    async def whole_state(self) -> LogState:
        """As `state`, for whoever takes the log at its word.

        Raises `ImportUnfinishedError`: a part of an archive is no history.
        """
        state = await self.state()
        get = partial(self._broker.get, self._stream)
        await check_import(get, state.first_revision, state.last_revision)
        return state

    async def append(
        self, event: AnyEvent, *, expected_revision: Revision | None = None
    ) -> Appended:
        """Append ``event``; returns when it is stored.

        ``expected_revision`` is the last one of the event's subject, 0: it must be
        new. An unknown outcome is repeated with the same bytes until there is an
        answer; what is found stored is, whatever followed on its subject, but a claim
        that was released meanwhile is a conflict. Raises `AppendConflictError`,
        `LogFullError`, `LogUnavailableError` (certainly not stored, by this call),
        `AppendOutcomeUnknownError` (no answer within ``settings.append_timeout_s``:
        repeat with the same event), `InvalidIdentityError` (no event).
        """
        return await self.append_all((Pending(event, expected_revision),))

    async def append_all(self, pending: Sequence[Pending]) -> Appended:
        """Append up to 1000 events, all or none, in this order; otherwise `append`."""
        for item in pending:
            if not isinstance(item.event, AnyEvent):
                rule = "one of the events of this version"
                raise InvalidIdentityError(field="event", value=item.event, rule=rule)
        await self._check_reserve(pending)
        deadline = asyncio.get_running_loop().time() + self._settings.append_timeout_s
        sent = False
        while True:
            try:
                return await self._append_once(pending)
            except AppendOutcomeUnknownError:
                sent = True
                pending = [replace(item, fresh=False) for item in pending]
                if asyncio.get_running_loop().time() >= deadline:
                    raise
            except LogUnavailableError as error:
                if not sent:
                    raise
                if asyncio.get_running_loop().time() >= deadline:
                    subject = subject_of(pending[0].event)
                    raise AppendOutcomeUnknownError(
                        subject=subject, reason=error.reason
                    ) from error
            await asyncio.sleep(REPEAT_AFTER_S)

    async def _append_once(self, pending: Sequence[Pending]) -> Appended:
        messages = [self._outgoing(item) for item in pending]
        try:
            if len(messages) == 1:
                stored = await self._broker.store(self._stream, messages[0])
            else:
                stored = await self._broker.store_batch(self._stream, messages)
        except AppendConflictError as conflict:
            fresh = all(item.fresh for item in pending)
            own = None if fresh else await self._recognition.find(pending)
            if own is not None:
                return Appended(own)
            raise self._relative(conflict) from conflict
        duplicate, end = stored.duplicate, stored.sequence
        if duplicate and not await self._recognition.stands(pending, end):
            event = pending[-1].event
            raise AppendConflictError(
                subject=subject_of(event),
                expected=pending[-1].expected,
                last=stored.sequence,
                code=0,
                reason="was sent before and stored at sequence "
                f"{stored.sequence}, but it does not stand there any more",
            )
        return Appended(stored.sequence)

    async def _check_reserve(self, pending: Sequence[Pending]) -> None:
        """Refuse all but what frees while there is still room for every farewell.

        That is a share of the limit, or one farewell for each subject if that is
        more, but at most half of the limit.
        """
        now = asyncio.get_running_loop().time()
        if now < self._unlimited_until or all(_frees(item.event) for item in pending):
            return
        state = await self._broker.state(self._stream)
        if state.max_bytes <= 0:
            self._unlimited_until = now + UNLIMITED_FOR_S
            return
        farewells = (state.subjects + len(pending)) * FAREWELL_BYTES
        share = int(state.max_bytes * self._settings.log_reserve)
        reserve = min(max(share, farewells), state.max_bytes // 2)
        if state.bytes > state.max_bytes - reserve:
            raise LogFullError(
                stream=self._stream,
                reason=f"{state.bytes} of {state.max_bytes} bytes are used; the rest "
                "is kept for deregistrations and expiries",
            )

    def _outgoing(self, item: Pending) -> Outgoing:
        return Outgoing(
            subject=self.names.absolute(subject_of(item.event)),
            payload=encode(item.event),
            message_id=item.event.event_id,
            expect_subject_sequence=item.expected,
        )

    def _relative(self, conflict: AppendConflictError) -> AppendConflictError:
        return AppendConflictError(
            subject=self.names.relative(conflict.subject),
            expected=conflict.expected,
            last=conflict.last,
            code=conflict.code,
            reason=conflict.reason,
        )

    async def at(self, revision: Revision) -> Record | None:
        """The record at ``revision``, from the log's leader; None: there is none."""
        message = await self._broker.get(self._stream, revision)
        return None if message is None else self.record(message)

    async def origin_at(self, revision: Revision) -> Origin | None:
        """Where the record at ``revision`` was imported from; None: it was not."""
        message = await self._broker.get(self._stream, revision) if revision else None
        return origin_of(message)

    async def last(self, subject: str) -> Record | None:
        """The last record on a relative ``subject``, from the log's leader."""
        absolute = self.names.absolute(subject)
        message = await self._broker.last(self._stream, absolute)
        return None if message is None else self.record(message)

    async def read(
        self, after: Revision = 0, until: Revision | None = None
    ) -> AsyncIterator[Record]:
        """Yield the records after ``after`` up to and with ``until``; then end.

        ``until=None``: the last revision when called. Raises `SettingsError` for a
        negative ``after``, as everything here that reads on from a revision.
        """
        async for batch in self.read_batches(after, until):
            for record in batch:
                yield record

    async def read_batches(
        self, after: Revision = 0, until: Revision | None = None
    ) -> AsyncIterator[list[Record]]:
        """As `read`, many at a time."""
        check_after(after)
        messages = self._broker.read(self._stream, after=after, until=until)
        async for batch in messages:
            yield list(map(self.record, batch))

    async def read_stored(
        self, after: Revision = 0, until: Revision | None = None
    ) -> AsyncIterator[list[StoredRecord]]:
        """As `read_batches`, with each payload as it is stored."""
        check_after(after)
        async for batch in self._broker.read(self._stream, after=after, until=until):
            yield [self._stored(message) for message in batch]

    async def on_subject(
        self, subject: str, after: Revision, until: Revision
    ) -> list[Record]:
        """The records on a relative ``subject`` in (after, until]."""
        if until <= after:
            return []
        batches = self._broker.read(
            self._stream,
            after=after,
            until=until,
            subject=self.names.absolute(subject),
        )
        return [self.record(message) async for batch in batches for message in batch]

    async def follow(self, after: Revision = 0) -> AsyncIterator[Record]:
        """Yield the records after ``after``, for ever, each once, in order.

        Raises `HistoryForkedError` when the log is no longer the one it began with.
        """
        async for batch in self.follow_batches(after):
            for record in batch:
                yield record

    async def follow_batches(
        self,
        after: Revision = 0,
        log_id: str | None = None,
        fingerprint: str | None = None,
    ) -> AsyncIterator[list[Record]]:
        """As `follow`, many at a time; yields nothing but records.

        Before the first records, and at each resumption, it is checked that the log is
        still ``log_id`` and holds the last record read, or, before any was, the one
        with ``fingerprint`` at ``after``.
        """
        check_after(after)
        if log_id is None:
            log_id = (await self.state()).log_id
        checked = False
        async for batch in self._broker.follow(self._stream, after=after):
            if not batch:
                self.resumptions += 1
            if not (batch and checked):
                # Asked now that its consumer is there: it reads what the answer is of,
                # for a log that is gone does not come back.
                await self._check_history(log_id, after, fingerprint)
                checked = True
            if not batch:
                continue
            records = [self.record(message) for message in batch]
            after, fingerprint = records[-1].revision, records[-1].fingerprint
            yield records

    async def _check_history(
        self, log_id: str, revision: Revision, fingerprint: str | None
    ) -> None:
        """Whether this is still the log that was read. Raises `HistoryForkedError`."""
        state = await self.state()
        if state.log_id != log_id:
            reason = f"its id is {state.log_id}, it was {log_id}"
            raise HistoryForkedError(reason=reason, revision=revision)
        if not fingerprint:
            return
        if state.last_revision < revision:
            reason = f"it ends at revision {state.last_revision}"
            raise HistoryForkedError(reason=reason, revision=revision)
        found = await self.at(revision)
        if found is not None and found.fingerprint != fingerprint:
            reason = f"revision {revision} holds another record"
            raise HistoryForkedError(reason=reason, revision=revision)

    def record(self, message: Message) -> Record:
        """The record that a stored message is."""
        at = message.stored_at if message.headers is None else recorded_at(message)
        subject = message.subject.removeprefix(self._prefix)
        event = decode(subject, message.payload)
        return Record(message.sequence, at, subject, event)

    def _stored(self, message: Message) -> StoredRecord:
        return StoredRecord(
            message.sequence,
            recorded_at(message),
            self.names.relative(message.subject),
            message.payload,
        )


def _frees(event: AnyEvent) -> bool:
    """Whether the event ends something, or takes traffic away."""
    match event:
        case WorkerStatusChanged(status=status):
            return status is not Status.READY
        case TrafficWeightSet(weight=weight):
            return weight == 0
        case _:
            return isinstance(event, FREEING)


def _log_state(state: StreamState) -> LogState:
    return LogState(
        log_id=state.metadata.get(LOG_ID, ""),
        first_revision=state.first_sequence,
        last_revision=state.last_sequence,
        bytes=state.bytes,
        max_bytes=state.max_bytes,
        now=state.now,
    )
