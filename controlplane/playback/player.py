"""Folding the log from its beginning to any moment, bounded by the view's size."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from controlplane.errors import HistoryTruncatedError
from controlplane.eventlog import EventLog
from events import Revision
from projections import FoldState, PlaneState, step


async def replay_log(
    log: EventLog,
    until: Revision | datetime | None = None,
    progress: Callable[[Revision, Revision], None] | None = None,
) -> PlaneState:
    """The state after every record up to and with ``until``; None: all there are.

    ``progress`` is called with the revision reached and the last one. Raises
    `HistoryTruncatedError` when the beginning of the log is gone.
    """
    now = await log.state()
    if now.first_revision > 1 and now.last_revision >= now.first_revision:
        raise HistoryTruncatedError(first=now.first_revision)
    end = now.last_revision
    if isinstance(until, int):
        end = min(end, until)
    state = FoldState()
    if end > 0:
        async for records in log.read_batches(0, end):
            for record in records:
                if isinstance(until, datetime) and record.recorded_at > until:
                    return PlaneState(state, cell=log.names.cell, log_id=now.log_id)
                state = step(state, record).state
            if progress is not None:
                progress(state.revision, end)
    return PlaneState(state, cell=log.names.cell, log_id=now.log_id)
