"""What a projector can begin with: the log, the latest snapshot, the view's end."""

from __future__ import annotations

from datetime import datetime

import msgspec

from controlplane.eventlog import EventLog, LogState
from controlplane.viewfeed import SnapshotPointer, ViewEntry, ViewFeed
from events import EVENT_TYPES, Record, Revision
from projections import (
    Delta,
    Epoch,
    EpochStarted,
    FoldState,
    Position,
    SnapshotUnusableError,
    ViewMessage,
    restore,
)


class Remembered(msgspec.Struct, frozen=True, kw_only=True):
    """Where this projector stood before: nobody else may know that it was so."""

    log_id: str
    revision: Revision
    fingerprint: str
    epoch: Epoch | None
    over: int = 0
    """Epochs of this log up to this count number records that were lost…"""
    over_reason: str = ""
    """…or replaced, which this says."""


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """What a starting projector found."""

    log: LogState
    log_end: Revision
    """Of the last record that is there: below the log's end after a purge."""
    snapshot: FoldState | None
    """The latest snapshot's state, verified against the log…"""
    snapshot_at: Position | None
    """…and where it stands; also when it cannot be used."""
    snapshot_problem: str | None
    snapshot_loss: str | None = None
    """Why the log is not the one that the snapshot is of; None: it is, or unknown."""
    snapshot_taken_at: datetime | None = None
    view_first: int
    view_last: int
    entry: ViewEntry | None
    """The last message of the view stream."""
    readable: ViewEntry | None
    """The last one that is no foreign message."""
    entry_record: Record | None
    """The log's record at that message's revision."""
    beginning: ViewEntry | None
    """The start of that message's epoch."""
    beginning_record: Record | None = None
    """The log's record at the start's revision."""
    remembered: Remembered | None = None
    remembered_record: Record | None = None
    """The log's record at the revision that is remembered."""


async def find(
    log: EventLog, feed: ViewFeed, remembered: Remembered | None = None
) -> Found:
    """Look at everything that a projector can begin with.

    The log's end is asked for after the view's: what others publish meanwhile is of
    records below. And the records after both: one that was not there yet would pass
    for one that was purged. Raises `ImportUnfinishedError`: nobody leads by a part.
    """
    pointer, restored, problem = await _read_snapshot(feed)
    view = await feed.state()
    entry = await feed.at(view.last_sequence) if view.messages else None
    beginning = await _beginning(feed, entry, view.first_sequence)
    readable = await _last_readable(feed, entry, view.first_sequence)
    log_state = await log.whole_state()
    log_end = await log_end_of(log, log_state)
    snapshot_record = await _record_at(log, restored)
    record = await _record_at(log, _message(entry))
    beginning_record = await _record_at(log, _message(beginning))
    known = await _record_at(log, remembered)
    position, loss = None if pointer is None else pointer.position, None
    if position is not None and restored is not None:
        loss, problem = _mismatch(position, restored, snapshot_record, log_state)
    return Found(
        log=log_state,
        log_end=log_end,
        snapshot=restored if problem is None else None,
        snapshot_at=position,
        snapshot_problem=problem,
        snapshot_loss=loss,
        snapshot_taken_at=None if pointer is None else pointer.taken_at,
        view_first=view.first_sequence,
        view_last=view.last_sequence,
        entry=entry,
        readable=readable,
        entry_record=record,
        beginning=beginning,
        beginning_record=beginning_record,
        remembered=remembered,
        remembered_record=known,
    )


async def denied_snapshot(log: EventLog, feed: ViewFeed) -> str | None:
    """What the log says against the latest snapshot; None: nothing, or it is damaged.

    The log is asked after the snapshot was read: what it ends with is there then.
    """
    pointer, restored, problem = await _read_snapshot(feed)
    if pointer is None or restored is None or problem is not None:
        return None
    record = await _record_at(log, restored)
    return _mismatch(pointer.position, restored, record, await log.state())[1]


async def _record_at(
    log: EventLog, place: FoldState | Remembered | ViewMessage | None
) -> Record | None:
    return await log.at(place.revision) if place and place.revision else None


def _message(entry: ViewEntry | None) -> ViewMessage | None:
    return None if entry is None else entry.message


async def _beginning(
    feed: ViewFeed, entry: ViewEntry | None, first: int
) -> ViewEntry | None:
    """The start of the epoch of ``entry``, as far as it can be read."""
    base = None if entry is None else base_of(entry)
    return await feed.at(base) if base is not None and base >= first else None


async def log_end_of(log: EventLog, state: LogState) -> Revision:
    """The revision of the last record that is there; 0: there is none."""
    if not state.last_revision or await log.at(state.last_revision) is not None:
        return state.last_revision
    last = await log.last("log.>")
    return 0 if last is None else last.revision


async def _last_readable(
    feed: ViewFeed, entry: ViewEntry | None, first: int
) -> ViewEntry | None:
    """The last message that is no foreign one, at most so many places back."""
    places_max = 1000
    while entry is not None and entry.message is None and places_max:
        places_max -= 1
        view_seq = entry.view_seq - 1
        entry = await feed.at(view_seq) if view_seq >= first else None
    return entry


async def _read_snapshot(
    feed: ViewFeed,
) -> tuple[SnapshotPointer | None, FoldState | None, str | None]:
    pointer = await feed.snapshot_pointer()
    if pointer is None:
        return None, None, None
    try:
        snapshot = await feed.read_snapshot(pointer)
        state = restore(snapshot, frozenset(EVENT_TYPES))
    except SnapshotUnusableError as error:
        return pointer, None, error.reason
    if snapshot.position != pointer.position:
        return pointer, None, "its pointer says another place"
    return pointer, state, None


def _mismatch(
    at: Position, state: FoldState, record: Record | None, log: LogState
) -> tuple[str, str] | tuple[None, None]:
    """Why the log is not the one that ``state`` was folded from: the loss, in words."""
    if at.epoch.log_id != log.log_id:
        return "log_replaced", "it is of another log"
    if state.revision > log.last_revision:
        return "log_lost_tail", f"the log ends at {log.last_revision}, below it"
    if record is not None and record.fingerprint != state.fingerprint:
        return "log_forked", f"the log holds another record at {state.revision}"
    return None, None


def base_of(entry: ViewEntry) -> int | None:
    """Where the epoch of a view message starts, as the message has it."""
    match entry.message:
        case Delta(ordinal=ordinal) if entry.view_seq > ordinal >= 1:
            return entry.view_seq - ordinal
        case EpochStarted():
            return entry.view_seq
    return None
