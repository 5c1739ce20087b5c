"""The records of a history up to a moment, as they were, not folded."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import datetime, timedelta

from events import Record

from .errors import EventNotFoundError, MomentAheadError, MomentTooEarlyError
from .history import History
from .moments import PointInTime, is_event
from .player import Progress, before_end, up_to, whole_ends


async def records_to(
    history: History, moment: PointInTime | None, progress: Progress | None = None
) -> AsyncIterator[list[Record]]:
    """Yield the records from the first to that of ``moment``; None: all there are.

    Raises as `state_at`; what is known only at the end is raised there.
    """
    ends = await whole_ends(history)
    if isinstance(moment, int) and moment > ends.last:
        raise MomentAheadError(revision=moment, last=ends.last)
    if isinstance(moment, timedelta):
        moment = await before_end(history, ends, moment)
    end = moment if isinstance(moment, int) else ends.last
    last: Record | None = None
    if end > 0:
        async for records in up_to(history, moment, end):
            if records:
                last = records[-1]
                yield records
                if progress is not None:
                    progress(last.revision, end)
    if isinstance(moment, datetime) and last is None and ends.last > 0:
        first = await history.at(ends.first)
        if first is not None:
            raise MomentTooEarlyError(time=moment, began=first.recorded_at)
    if isinstance(moment, str) and (
        last is None or not is_event(moment, last.fingerprint)
    ):
        raise EventNotFoundError(event_id=moment, last=ends.last)
