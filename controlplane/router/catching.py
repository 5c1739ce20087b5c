"""Catching up: read what a router lacks from snapshots and the view stream."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from datetime import datetime
from typing import Final, TypeVar

import msgspec

from controlplane.broker import StreamState
from controlplane.viewfeed import SnapshotPointer, ViewEntry, ViewFeed
from events import ControlPlaneError
from projections import FleetChange, SnapshotUnusableError

from .core import Core, Found
from .planning import BeginWith, LoadSnapshot, ReadTail, StreamEnd, Wait, collected
from .planning import plan as decide_plan
from .replica import Replica, from_snapshot

FOREIGN_MAX: Final = 1000

_T = TypeVar("_T")


class NotYetError(ControlPlaneError):
    """Nothing to catch up from: the leader must do something first."""


async def look(
    feed: ViewFeed, state: StreamState, pointer: SnapshotPointer | None
) -> StreamEnd:
    """Where the view stream ends, and what there is to begin with."""
    entry = await feed.at(state.last_sequence) if state.messages else None
    steps = FOREIGN_MAX
    while entry is not None and entry.message is None and steps:
        steps -= 1
        view_seq = entry.view_seq - 1
        entry = await feed.at(view_seq) if view_seq >= state.first_sequence else None
    if entry is not None and entry.message is None:
        entry = None
    end = StreamEnd(
        first=state.first_sequence,
        last=state.last_sequence,
        entry=entry,
        pointer=pointer,
    )
    match pointer, end.message:
        case SnapshotPointer(position=place), message if (
            message is not None and place.epoch == message.epoch
        ):
            return end
    return await _with_beginning(feed, end)


async def _with_beginning(feed: ViewFeed, end: StreamEnd) -> StreamEnd:
    if end.message is None or end.base < end.first:
        return end
    return msgspec.structs.replace(end, beginning=await feed.at(end.base))


async def catch_up(core: Core, feed: ViewFeed, *, anew: bool) -> Found:
    """What there is at the end of the view stream. ``anew``: trust no replica.

    Raises `NotYetError`, `SnapshotUnusableError`, `SequenceGapError`,
    `DivergenceError` and `LogUnavailableError`: look again later.
    """
    state, pointer, head = await _together(
        feed.state(), feed.snapshot_pointer(), feed.last_head()
    )
    end = await look(feed, state, pointer)
    own = None if anew else core.replica
    replica, changes = await _reach(feed, end, own)
    return Found(
        replica=replica, changes=changes, age_s=_age_s(end, state.now), head=head
    )


async def _together(
    state: Awaitable[StreamState],
    pointer: Awaitable[SnapshotPointer | None],
    head: Awaitable[_T],
) -> tuple[StreamState, SnapshotPointer | None, _T]:
    return await asyncio.gather(state, pointer, head)


def _age_s(end: StreamEnd, now: datetime) -> float:
    """How long ago somebody is known to have known all: when he last published."""
    known = None if end.entry is None else end.entry.stored_at
    if known is None and end.pointer is not None:
        known = end.pointer.taken_at
    return 0.0 if known is None else max(0.0, (now - known).total_seconds())


async def _reach(
    feed: ViewFeed, end: StreamEnd, own: Replica | None
) -> tuple[Replica, tuple[FleetChange, ...] | None]:
    """The replica at the stream's end; what changed from ``own`` on, if that led."""
    match decide_plan(end, own):
        case ReadTail(after) if own is not None:
            return await _read_tail(feed, own, after, end.last)
        case LoadSnapshot(pointer):
            replica = await _load(feed, end, pointer)
        case BeginWith(replica):
            pass
        case Wait(reason):
            raise NotYetError(reason)
        case plan:
            raise AssertionError(plan)
    after = min(replica.position.view_seq, end.last)
    replica, _ = await _read_tail(feed, replica, after, end.last)
    return replica, None


async def _load(feed: ViewFeed, end: StreamEnd, pointer: SnapshotPointer) -> Replica:
    """The replica in the snapshot; of an unusable one, the epoch's start instead."""
    try:
        return from_snapshot(await feed.read_snapshot(pointer))
    except SnapshotUnusableError:
        without = msgspec.structs.replace(end, pointer=None)
        match decide_plan(await _with_beginning(feed, without), None):
            case BeginWith(replica):
                return replica
        raise


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
