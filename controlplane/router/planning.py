"""How a router that lacks something reaches the end of the view stream. Pure.

The stream's end decides: whose epoch it is, and how far back the stream still goes.
One's own replica is the best start if it is of that epoch and the stream goes back to
it; then a snapshot; then the epoch's own start, if its fleet is known. An empty
stream or a missing snapshot never means an empty fleet: then there is only waiting.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import msgspec

from controlplane.viewfeed import SnapshotPointer, ViewEntry
from projections import (
    Delta,
    Epoch,
    EpochStarted,
    FleetChange,
    SequenceGapError,
    ViewMessage,
)

from .replica import Replica, at_beginning, fleet_at


class ReadTail(msgspec.Struct, frozen=True):
    """Read the view stream after this sequence, on top of one's own replica."""

    after: int


class LoadSnapshot(msgspec.Struct, frozen=True):
    """Load the snapshot, then read the view stream after it."""

    pointer: SnapshotPointer


class BeginWith(msgspec.Struct, frozen=True):
    """Begin with this replica, then read the view stream after it."""

    replica: Replica


class Wait(msgspec.Struct, frozen=True):
    """Nothing to begin with yet: the leader must write a snapshot first."""

    reason: str


Plan: TypeAlias = ReadTail | LoadSnapshot | BeginWith | Wait


class StreamEnd(msgspec.Struct, frozen=True, kw_only=True):
    """What a catching-up router found of the view stream and the snapshots."""

    first: int
    last: int
    entry: ViewEntry | None
    """The last message that is no foreign one; None: there is none."""
    beginning: ViewEntry | None = None
    """The start of its epoch, if the stream still has it and somebody looked."""
    pointer: SnapshotPointer | None

    @property
    def message(self) -> ViewMessage | None:
        """The last message that is no foreign one."""
        return None if self.entry is None else self.entry.message

    @property
    def base(self) -> int:
        """Where the start of the last message's epoch stands, or stood."""
        match self.entry:
            case ViewEntry(view_seq, Delta(ordinal=ordinal)):
                return view_seq - ordinal
            case ViewEntry(view_seq):
                return view_seq
        return 0


def plan(end: StreamEnd, replica: Replica | None) -> Plan:
    """How to reach the end of the view stream; ``replica``: one's own, if trusted."""
    if end.message is None:
        return _plan_without_stream(end, replica)
    epoch = end.message.epoch
    if replica is not None and replica.position.epoch == epoch:
        after = replica.position.view_seq
        if after >= end.first - 1:
            return ReadTail(min(after, end.last))
    return _plan_anew(end, epoch, replica)


def _plan_anew(end: StreamEnd, epoch: Epoch, replica: Replica | None) -> Plan:
    pointer = end.pointer
    if pointer is not None and pointer.position.epoch == epoch:
        if pointer.position.view_seq >= end.first - 1:
            return LoadSnapshot(pointer)
        return Wait("the snapshot is older than what the view stream holds")
    match end.beginning:
        case ViewEntry(view_seq, EpochStarted() as start) if start.epoch == epoch:
            fleet = fleet_at(start, None if replica is None else replica.fleet)
            if fleet is not None:
                return BeginWith(at_beginning(start, view_seq, fleet))
    return Wait("the epoch's first snapshot is not written yet")


def _plan_without_stream(end: StreamEnd, replica: Replica | None) -> Plan:
    """The view stream is empty: by age, or because nothing ever happened."""
    if end.pointer is None:
        return Wait("no projector has published a view yet")
    place = end.pointer.position
    if place.view_seq > end.last:
        return Wait("the view stream lost its tail; its leader will refill it")
    if replica is not None and (
        replica.position.epoch == place.epoch and replica.position.view_seq >= end.last
    ):
        return ReadTail(end.last)
    if place.view_seq < end.last:
        return Wait("the snapshot is older than what the view stream held")
    return LoadSnapshot(end.pointer)


def collected(
    replica: Replica, entries: Sequence[ViewEntry]
) -> tuple[Replica, tuple[FleetChange, ...]]:
    """The replica after ``entries`` of the view stream, and what they changed.

    Raises `SequenceGapError` or `DivergenceError`.
    """
    changes: list[FleetChange] = []
    for entry in entries:
        match entry.message:
            case Delta() as delta if delta.epoch != replica.position.epoch:
                raise _gap(replica, entry)
            case Delta() as delta if delta.ordinal > replica.position.ordinal:
                replica = replica.after(delta, entry.view_seq)
                changes.extend(delta.changes)
            case EpochStarted() as start if start.epoch != replica.position.epoch:
                raise _gap(replica, entry)
    return replica, tuple(changes)


def _gap(replica: Replica, entry: ViewEntry) -> SequenceGapError:
    expected = replica.position.view_seq + 1
    return SequenceGapError(expected=expected, got=entry.view_seq)
