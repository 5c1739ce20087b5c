"""Catching up: read what a router lacks from snapshots and the view stream."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from controlplane.viewfeed import ViewEntry, ViewFeed
from projections import Delta, FleetChange

from .core import BeginWith, Core, LoadSnapshot, ReadTail, StreamEnd, Wait, collected
from .replica import Replica, from_snapshot

FOREIGN_MAX: Final = 1000


class NotYetError(Exception):
    """Nothing to catch up from: the leader must do something first."""


async def look(feed: ViewFeed) -> StreamEnd:
    """Where the view stream ends, and what there is to begin with."""
    state = await feed.state()
    entry = await feed.at(state.last_sequence) if state.messages else None
    steps = FOREIGN_MAX
    while entry is not None and entry.message is None and steps:
        steps -= 1
        view_seq = entry.view_seq - 1
        entry = await feed.at(view_seq) if view_seq >= state.first_sequence else None
    beginning = None
    if entry is not None and entry.message is not None:
        message = entry.message
        base = entry.view_seq - (message.ordinal if isinstance(message, Delta) else 0)
        beginning = await feed.at(base) if base >= state.first_sequence else None
    return StreamEnd(
        first=state.first_sequence,
        last=state.last_sequence,
        entry=entry,
        beginning=beginning,
        pointer=await feed.snapshot_pointer(),
    )


async def catch_up(
    core: Core, feed: ViewFeed, *, anew: bool
) -> tuple[Replica, tuple[FleetChange, ...] | None]:
    """The replica at the end of the view stream, and what changed from one's own.

    None for the changes: work them out, the way did not lead over one's own replica.
    Raises `NotYetError`, `SnapshotUnusableError`, `SequenceGapError`,
    `DivergenceError` and `LogUnavailableError`: look again later.
    """
    end = await look(feed)
    match core.plan(end, anew=anew):
        case ReadTail(after):
            own = core.replica
            if own is None:
                raise AssertionError
            return await _read_tail(feed, own, after, end.last)
        case LoadSnapshot(pointer):
            snapshot = await feed.read_snapshot(pointer)
            replica = from_snapshot(snapshot)
            after = replica.position.view_seq
            replica, _ = await _read_tail(feed, replica, after, end.last)
            return replica, None
        case BeginWith(replica):
            after = replica.position.view_seq
            replica, _ = await _read_tail(feed, replica, after, end.last)
            return replica, None
        case Wait(reason):
            raise NotYetError(reason)


async def _read_tail(
    feed: ViewFeed, replica: Replica, after: int, until: int
) -> tuple[Replica, tuple[FleetChange, ...]]:
    changes: list[FleetChange] = []
    if after < until:
        async for entries in feed.read(after, until):
            replica, more = collected(replica, _of(entries))
            changes.extend(more)
    return replica, tuple(changes)


def _of(entries: Sequence[ViewEntry]) -> Sequence[ViewEntry]:
    return [entry for entry in entries if entry.message is not None]
