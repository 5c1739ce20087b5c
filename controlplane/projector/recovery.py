"""Where a projector begins: the log, the latest snapshot and the view stream's end.

The pure half is `decide_start`: given what was found, which state to fold on from and
whether the current epoch can go on. Recovery is the normal path: every start, every
lost connection with doubt, every divergence comes through here.
"""

from __future__ import annotations

import msgspec

from controlplane.errors import HistoryTruncatedError
from controlplane.eventlog import EventLog, LogState
from controlplane.viewfeed import ViewEntry, ViewFeed
from events import EVENT_TYPES, Record, Revision
from projections import (
    FOLD_VERSION,
    Delta,
    EpochStarted,
    FoldState,
    Position,
    SnapshotUnusableError,
    ViewMessage,
    restore,
)

from .line import Start


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """What a starting projector found."""

    log: LogState
    snapshot: FoldState | None
    """The latest snapshot's state, verified against the log…"""
    snapshot_at: Position | None
    """…and where it stands; also when it cannot be used."""
    snapshot_problem: str | None
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


class Begin(msgspec.Struct, frozen=True, kw_only=True):
    """Fold on from ``fold``; number from ``start``; compare from ``view_after``."""

    fold: FoldState
    start: Start
    snapshot_at: Position | None
    view_after: int
    log_end: Revision
    problem: str | None = None
    """Why the whole log is folded although there was a snapshot."""


async def find(log: EventLog, feed: ViewFeed) -> Found:
    """Look at everything that a projector can begin with."""
    log_state = await log.state()
    snapshot, snapshot_at, problem = await _snapshot(log, feed, log_state)
    view = await feed.state()
    entry = await feed.at(view.last_sequence) if view.messages else None
    record = beginning = None
    if entry is not None and entry.message is not None:
        record = await log.at(entry.message.revision)
        base = _base(entry)
        if base is not None and base >= view.first_sequence:
            beginning = await feed.at(base)
    return Found(
        log=log_state,
        snapshot=snapshot,
        snapshot_at=snapshot_at,
        snapshot_problem=problem,
        view_first=view.first_sequence,
        view_last=view.last_sequence,
        entry=entry,
        readable=await _last_readable(feed, entry, view.first_sequence),
        entry_record=record,
        beginning=beginning,
    )


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


async def _snapshot(
    log: EventLog, feed: ViewFeed, log_state: LogState
) -> tuple[FoldState | None, Position | None, str | None]:
    pointer = await feed.snapshot_pointer()
    if pointer is None:
        return None, None, None
    try:
        snapshot = await feed.read_snapshot(pointer)
        state = restore(snapshot, frozenset(EVENT_TYPES))
    except SnapshotUnusableError as error:
        return None, pointer.position, error.reason
    if snapshot.log_id != log_state.log_id:
        return None, pointer.position, "it is of another log"
    problem = await _mismatch(log, state, log_state)
    return (state if problem is None else None), snapshot.position, problem


async def _mismatch(log: EventLog, state: FoldState, now: LogState) -> str | None:
    """Why the log is not the one that ``state`` was folded from."""
    if state.revision > now.last_revision:
        return f"the log ends at {now.last_revision}, below it"
    if state.revision == 0:
        return None
    record = await log.at(state.revision)
    if record is not None and record.fingerprint != state.fingerprint:
        return f"the log holds another record at {state.revision}"
    return None


def decide_start(found: Found) -> Begin:
    """What to begin with.

    Raises `HistoryTruncatedError` when the log's beginning is gone and no snapshot
    reaches what is left.
    """
    reason, position, line = _epoch_going_on(found)
    first = found.log.first_revision
    snapshot, at = found.snapshot, found.snapshot_at
    fits = (
        snapshot is not None
        and position is not None
        and at is not None
        and (at.epoch, at.base) == (position.epoch, position.base)
        and at.ordinal <= position.ordinal
    )
    if snapshot is not None and at is not None and (fits or position is None):
        if snapshot.revision < first - 1:
            raise HistoryTruncatedError(first=first)
        return _begin(found, snapshot, at if fits else None, reason)
    if first > 1:
        if snapshot is None or snapshot.revision < first - 1:
            raise HistoryTruncatedError(first=first)
        return _begin(found, snapshot, None, "rebuild")
    if position is not None and line is not None:
        return _from_nothing(found, position, line)
    if snapshot is not None:
        return _begin(found, snapshot, None, "rebuild")
    return _begin(found, FoldState(), None, reason)


Going = tuple[str, Position | None, EpochStarted | None]
"""Why a new epoch would begin; where the current one stands; how that one began."""


def _epoch_going_on(found: Found) -> Going:
    """Whether the view stream's epoch is this log's and can go on."""
    entry = found.entry
    if entry is None:
        return _epoch_of_empty_stream(found)
    message, base = entry.message, _base(entry)
    if message is None or base is None:
        return "foreign", None, None
    problem = _why_it_ends(found, message)
    if problem is not None:
        return problem, None, None
    position = Position(
        epoch=message.epoch,
        base=base,
        ordinal=entry.view_seq - base,
        delta_revision=message.revision,
    )
    match found.beginning:
        case ViewEntry(message=EpochStarted() as started) if (
            started.epoch == message.epoch
        ):
            return "rebuild", position, started
    return "rebuild", position, None


def _why_it_ends(found: Found, message: ViewMessage) -> str | None:
    """Why the epoch of the last view message cannot go on; None: it can."""
    if message.epoch.log_id != found.log.log_id:
        return "log_replaced"
    if message.epoch.fold_version != FOLD_VERSION:
        return "fold_version"
    if message.revision > found.log.last_revision:
        return "log_lost_tail"
    record = found.entry_record
    if record is not None and record.fingerprint != message.fingerprint:
        return "log_forked"
    return None


def _epoch_of_empty_stream(found: Found) -> Going:
    """The stream is empty, by age or because it is new: ask the snapshot."""
    at = found.snapshot_at
    if at is None:
        return "first", None, None
    if found.snapshot is None:
        return "rebuild", None, None
    if at.epoch.fold_version != FOLD_VERSION:
        return "fold_version", None, None
    if found.view_last < at.view_seq:
        return "view_lost", None, None
    end = msgspec.structs.replace(at, ordinal=found.view_last - at.base)
    return "rebuild", end, None


def _base(entry: ViewEntry) -> int | None:
    match entry.message:
        case Delta(ordinal=ordinal) if entry.view_seq > ordinal >= 1:
            return entry.view_seq - ordinal
        case EpochStarted():
            return entry.view_seq
    return None


def _epoch_count(found: Found) -> int:
    counts = [0]
    if found.snapshot_at is not None:
        counts.append(found.snapshot_at.epoch.count)
    if found.readable is not None and found.readable.message is not None:
        counts.append(found.readable.message.epoch.count)
    return max(counts)


def _begin(
    found: Found, fold: FoldState, position: Position | None, reason: str
) -> Begin:
    """Fold on from ``fold``, which stands at ``position`` of the epoch, or nowhere."""
    start = Start(
        log_id=found.log.log_id,
        position=position,
        folded=fold.revision,
        line_digest=fold.fleet_state.digest,
        line_anomalies=fold.anomalies.counts,
        epoch_count=_epoch_count(found),
        epoch_reason=reason,
        view_end=found.view_last,
        trimmed_to=found.view_first - 1,
    )
    after = found.view_last if position is None else position.view_seq
    return Begin(
        fold=fold,
        start=start,
        snapshot_at=found.snapshot_at if found.snapshot is not None else None,
        view_after=min(after, found.view_last),
        log_end=found.log.last_revision,
        problem=found.snapshot_problem,
    )


def _from_nothing(found: Found, position: Position, line: EpochStarted) -> Begin:
    """Fold the whole log; the epoch's deltas are those after its start's revision."""
    start = Start(
        log_id=found.log.log_id,
        position=Position(
            epoch=position.epoch,
            base=position.base,
            ordinal=0,
            delta_revision=line.revision,
        ),
        folded=line.revision,
        line_digest=line.digest,
        line_anomalies=line.anomalies,
        epoch_count=_epoch_count(found),
        epoch_reason="rebuild",
        view_end=found.view_last,
        trimmed_to=found.view_first - 1,
    )
    return Begin(
        fold=FoldState(),
        start=start,
        snapshot_at=None,
        view_after=position.base,
        log_end=found.log.last_revision,
        problem=found.snapshot_problem,
    )
