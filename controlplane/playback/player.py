"""Folding a history from its beginning to any moment, bounded by the view's size."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from typing import TypeAlias

from controlplane.eventlog import EventLog
from events import Record, Revision
from projections import Folding, FoldState, PlaneState

from .errors import EventNotFoundError, MomentAheadError, MomentTooEarlyError
from .history import Ends, History, LogHistory
from .moments import EventId, PointInTime, in_utc, is_event

Progress: TypeAlias = Callable[[Revision, Revision], None]
"""Called with the revision reached and the last one."""


async def replay_log(
    log: EventLog,
    until: Revision | datetime | None = None,
    progress: Progress | None = None,
) -> PlaneState:
    """The state after every record up to and with ``until``; None: all there are.

    A time is UTC if it does not say. Unlike `state_at` it takes a moment beyond either
    end for that end. Raises `HistoryTruncatedError` when the log's beginning is gone.
    """
    history = LogHistory(log)
    if isinstance(until, datetime):
        until = in_utc(until)
    return await _play(history, await whole_ends(history), until, progress)


async def state_at(
    history: History, moment: PointInTime | None, progress: Progress | None = None
) -> PlaneState:
    """What the log meant at ``moment``; None: at its end.

    What the history knows already is not folded again; see `History.start`. Raises
    `MomentAheadError`, `MomentTooEarlyError`, `EventNotFoundError`, and
    `HistoryTruncatedError` when the beginning of the log is gone.
    """
    ends = await whole_ends(history)
    if isinstance(moment, int) and moment > ends.last:
        raise MomentAheadError(revision=moment, last=ends.last)
    if isinstance(moment, timedelta):
        moment = await before_end(history, ends, moment)
    state = await _play(history, ends, moment, progress)
    if isinstance(moment, datetime) and state.revision == 0 < ends.last:
        first = await history.at(ends.first)
        if first is not None:
            raise MomentTooEarlyError(time=moment, began=first.recorded_at)
    if isinstance(moment, str) and not is_event(moment, state.fold_state.fingerprint):
        raise EventNotFoundError(event_id=moment, last=ends.last)
    return state


async def whole_ends(history: History) -> Ends:
    """The ends of a history whose beginning is there, else `HistoryTruncatedError`."""
    ends = await history.ends()
    if ends.first > 1 and ends.last >= ends.first:
        raise history.beheaded(ends.first)
    return ends


async def _play(
    history: History,
    ends: Ends,
    moment: PointInTime | None,
    progress: Progress | None,
) -> PlaneState:
    end = min(moment, ends.last) if isinstance(moment, int) else ends.last
    known = None
    if moment is None or isinstance(moment, int):
        known = await history.start(end)
    after = known.revision if known else 0
    folding = Folding(known or FoldState())
    if end > after:
        async for records in up_to(history, moment, end, after):
            for record in records:
                folding.add(record)
            if progress is not None and records:
                progress(records[-1].revision, end)
    state = folding.settled()
    return PlaneState(state, cell=history.cell, log_id=history.log_id)


async def up_to(
    history: History, moment: PointInTime | None, end: Revision, after: Revision = 0
) -> AsyncIterator[list[Record]]:
    """The batches up to and with ``moment``, or ``end`` if that comes first.

    They begin after ``after``, which the moment must not lie before.
    """
    async for records in history.batches(after, end):
        count = _count(records, moment)
        yield records if count is None else records[:count]
        if count is not None:
            return


def _count(records: list[Record], moment: PointInTime | None) -> int | None:
    """How many of ``records`` are up to ``moment``; None: all, and it may go on."""
    match moment:
        case datetime():
            # Clocks may step back: the first record that is later decides.
            later = (i for i, r in enumerate(records) if r.recorded_at > moment)
            return next(later, None)
        case str():
            place = _place_of(records, moment)
            return None if place is None else place + 1
        case _:
            return None


def _place_of(records: list[Record], moment: EventId) -> int | None:
    found = (i for i, r in enumerate(records) if is_event(moment, r.event.event_id))
    return next(found, None)


async def before_end(history: History, ends: Ends, ago: timedelta) -> datetime:
    """The time that is ``ago``, which is negative, from the end."""
    now = ends.now
    if now is None:
        last = await history.at(ends.last)
        now = datetime.now(UTC) if last is None else last.recorded_at
    try:
        return now + ago
    except OverflowError:  # before there was time
        return datetime.min.replace(tzinfo=UTC)
