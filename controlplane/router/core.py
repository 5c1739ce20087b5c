"""A router's decisions: which view message is next, when to catch up, how stale it is.

States. No replica yet; a replica from a checkpoint (served, but not confirmed); a
live one. Beside that it is catching up (a task of the shell reads snapshot and view
stream; live messages wait in a buffer) or not.

Inputs: live view messages, the outcome of catching up, heads, time. Effects:
`CatchUp` (one at a time), `Moved` (the position changed, with what changed in the
fleet), `Diverged`.

Rules. Only the next delta of the current epoch is applied. One already applied is
dropped. Any gap, other epoch or divergence means: catch up. An epoch is learnt from
the view stream or a snapshot, never from a head. A head tells how far the leader is:
level with it (same epoch, ordinal and digest) its revision is one's own, for nothing
in between changed the view; a later head with a lower revision is ignored.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Sequence
from typing import Final, Literal, TypeAlias

import msgspec

from controlplane.viewfeed import Head, SnapshotPointer, ViewEntry
from events import Revision
from projections import (
    EMPTY,
    Delta,
    DivergenceError,
    Epoch,
    EpochStarted,
    FleetChange,
    SequenceGapError,
    diff,
)

from .replica import Replica, at_beginning, fleet_at

BUFFER_MAX: Final = 20_000
DIGESTS_MAX: Final = 1024

Reason: TypeAlias = Literal["start", "epoch", "gap", "dropped", "divergence", "history"]
Source: TypeAlias = Literal["none", "checkpoint", "live"]


class CatchUp(msgspec.Struct, frozen=True):
    """Read what is missing, then `Core.caught_up`. ``anew``: trust no replica."""

    reason: Reason
    anew: bool = False


class Moved(msgspec.Struct, frozen=True):
    """The position changed, and with it these parts of the fleet."""

    changes: tuple[FleetChange, ...]
    resync: Reason | None = None


class Diverged(msgspec.Struct, frozen=True):
    """One's own fleet is not the one that the view stream or a head says."""

    error: DivergenceError


Effect: TypeAlias = CatchUp | Moved | Diverged


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
    """The last message that is no foreign one; None: the stream is empty."""
    beginning: ViewEntry | None
    """The start of its epoch, if the stream still has it."""
    pointer: SnapshotPointer | None


class Core:
    """One router's state of mind. See the module."""

    def __init__(self, *, behind_max_s: float, now: float) -> None:
        """Begin with nothing; behind a head for ``behind_max_s``: catch up."""
        self.replica: Replica | None = None
        self.source: Source = "none"
        self._behind_max_s = behind_max_s
        self._buffer: deque[ViewEntry] = deque()
        self._catching = False
        self._overflowed = False
        self._digests: OrderedDict[tuple[Epoch, int], str] = OrderedDict()
        self._fresh_at = now
        self._fresh_age_s = 0.0
        self._ahead: tuple[Head, float] | None = None
        self._behind_since: float | None = None
        self.duplicates = 0

    # ---- where it stands -------------------------------------------------------
    @property
    def revision(self) -> Revision:
        """How far the log is reflected; 0 before the first sync."""
        return 0 if self.replica is None else self.replica.revision

    def stale_for_s(self, now: float) -> float:
        """Seconds since the replica was last known to be all there is."""
        return max(0.0, now - self._fresh_at) + self._fresh_age_s

    # ---- the view stream -------------------------------------------------------
    def live(self, entry: ViewEntry) -> list[Effect]:
        """A stored view message arrived as it was republished."""
        if self._catching:
            if len(self._buffer) >= BUFFER_MAX:
                self._buffer.clear()
                self._overflowed = True
            self._buffer.append(entry)
            return []
        return self._take(entry)

    def _take(self, entry: ViewEntry) -> list[Effect]:
        match entry.message:
            case EpochStarted() as start:
                return self._epoch(start, entry.view_seq)
            case Delta() as delta:
                return self._delta(delta, entry.view_seq)
            case None:
                return []

    def _epoch(self, start: EpochStarted, view_seq: int) -> list[Effect]:
        replica = self.replica
        if replica is None:
            return self._catch_up("epoch")
        if start.epoch == replica.position.epoch:
            return []
        fleet = fleet_at(start, replica.fleet)
        if fleet is None:
            return self._catch_up("epoch")
        moved = at_beginning(start, view_seq, fleet)
        changes = () if fleet is replica.fleet else diff(replica.fleet, fleet)
        self._stand_at(moved)
        return [Moved(changes, "epoch")]

    def _delta(self, delta: Delta, view_seq: int) -> list[Effect]:
        replica = self.replica
        if replica is None:
            return self._catch_up("gap")
        position = replica.position
        if delta.epoch != position.epoch:
            return self._catch_up("epoch")
        if delta.ordinal <= position.ordinal:
            return self._compare(delta)
        try:
            self._stand_at(replica.after(delta, view_seq))
        except SequenceGapError:
            return self._catch_up("gap")
        except DivergenceError as error:
            return [Diverged(error), *self._catch_up("divergence", anew=True)]
        return [Moved(delta.changes)]

    def _compare(self, delta: Delta) -> list[Effect]:
        """A delta that is applied already: drop it, but look at its digest."""
        self.duplicates += 1
        own = self._digests.get((delta.epoch, delta.ordinal), delta.digest)
        if own == delta.digest:
            return []
        where = f"epoch {delta.epoch} ordinal {delta.ordinal}"
        error = DivergenceError(where=where, expected=delta.digest, got=own)
        return [Diverged(error), *self._catch_up("divergence", anew=True)]

    def _stand_at(self, replica: Replica) -> None:
        self.replica = replica
        position = replica.position
        self._digests[position.epoch, position.ordinal] = replica.fleet.digest
        if len(self._digests) > DIGESTS_MAX:
            self._digests.popitem(last=False)
        if self._ahead is not None:
            head, heard_at = self._ahead
            if self._reached(head):
                self._ahead = self._behind_since = None
                self._fresh_at, self._fresh_age_s = heard_at, head.unpublished_age_s

    def _reached(self, head: Head) -> bool:
        key = (head.epoch, head.ordinal)
        return self._digests.get(key) == head.digest

    # ---- catching up -----------------------------------------------------------
    def begin(self, checkpoint: Replica | None, age_s: float = 0.0) -> list[Effect]:
        """Start: serve the ``checkpoint`` (of that age) if any, and catch up."""
        effects: list[Effect] = []
        if checkpoint is not None:
            self._fresh_age_s = age_s
            self.replica, self.source = checkpoint, "checkpoint"
            position = checkpoint.position
            key = (position.epoch, position.ordinal)
            self._digests[key] = checkpoint.fleet.digest
            effects.append(Moved(diff(EMPTY, checkpoint.fleet), "start"))
        return [*effects, *self._catch_up("start")]

    def reconnected(self) -> list[Effect]:
        """The connection was away: what was republished meanwhile is missing."""
        return self._catch_up("gap")

    def plan(self, end: StreamEnd, *, anew: bool) -> Plan:
        """How to reach the end of the view stream."""
        if end.entry is None or end.entry.message is None:
            return self._plan_without_stream(end, anew=anew)
        message = end.entry.message
        ordinal = message.ordinal if isinstance(message, Delta) else 0
        base = end.entry.view_seq - ordinal
        replica = None if anew else self.replica
        if replica is not None and replica.position.epoch == message.epoch:
            after = base + replica.position.ordinal
            if after >= end.first - 1:
                return ReadTail(min(after, end.last))
        return self._plan_snapshot(end, message.epoch, base, replica)

    def _plan_snapshot(
        self, end: StreamEnd, epoch: Epoch, base: int, replica: Replica | None
    ) -> Plan:
        pointer = end.pointer
        if pointer is not None and pointer.position.epoch == epoch:
            if base + pointer.position.ordinal >= end.first - 1:
                return LoadSnapshot(pointer)
            return Wait("the snapshot is older than what the view stream holds")
        match end.beginning:
            case ViewEntry(view_seq, EpochStarted() as start):
                fleet = fleet_at(start, None if replica is None else replica.fleet)
                if fleet is not None:
                    return BeginWith(at_beginning(start, view_seq, fleet))
        return Wait("the epoch's first snapshot is not written yet")

    def _plan_without_stream(self, end: StreamEnd, *, anew: bool) -> Plan:
        """The view stream is empty: by age, or because nothing ever happened."""
        pointer, replica = end.pointer, None if anew else self.replica
        if pointer is None:
            return Wait("no projector has published a view yet")
        place = pointer.position
        if place.view_seq < end.last:
            return Wait("the snapshot is older than what the view stream held")
        if place.view_seq > end.last:
            return Wait("the view stream lost its tail; its leader will refill it")
        if replica is not None and (
            replica.position.epoch == place.epoch
            and replica.position.ordinal >= place.ordinal
        ):
            return ReadTail(end.last)
        return LoadSnapshot(pointer)

    def caught_up(
        self,
        replica: Replica,
        reason: Reason,
        changes: tuple[FleetChange, ...] | None = None,
    ) -> list[Effect]:
        """The end of the view stream was reached with ``replica``.

        ``changes``: what led there from one's own replica; None: work it out. What
        waited meanwhile comes next.
        """
        self._catching = False
        before = self.replica
        effects: list[Effect] = []
        if before is None or not _is_step_back(before, replica):
            if changes is None:
                changes = diff(EMPTY if before is None else before.fleet, replica.fleet)
            if before is not None and before.position.epoch == replica.position.epoch:
                revision = max(before.revision, replica.revision)
                replica = msgspec.structs.replace(replica, revision=revision)
            self._stand_at(replica)
        else:
            changes = ()
        effects.append(Moved(changes, reason))
        self.source = "live"
        waiting, self._buffer = self._buffer, deque()
        overflowed, self._overflowed = self._overflowed, False
        for entry in waiting:
            if self._catching:
                self._buffer.append(entry)
            else:
                effects += self._take(entry)
        if overflowed and not self._catching:
            effects += self._catch_up("dropped")
        return effects

    def _catch_up(self, reason: Reason, *, anew: bool = False) -> list[Effect]:
        if self._catching:
            return []
        self._catching = True
        return [CatchUp(reason, anew)]

    # ---- heads and time --------------------------------------------------------
    def head(self, head: Head, now: float, age_s: float = 0.0) -> list[Effect]:
        """The leader said, ``age_s`` ago, where the view stands."""
        replica = self.replica
        if replica is None or self.source != "live":
            return []
        position = replica.position
        if head.epoch != position.epoch:
            self._mark_behind(head, now)
            return []
        if head.ordinal > position.ordinal:
            self._mark_behind(head, now)
            return []
        own = self._digests.get((head.epoch, head.ordinal), head.digest)
        if own != head.digest:
            where = f"epoch {head.epoch} ordinal {head.ordinal}"
            error = DivergenceError(where=where, expected=head.digest, got=own)
            return [Diverged(error), *self._catch_up("divergence", anew=True)]
        self._ahead = self._behind_since = None
        self._fresh_at, self._fresh_age_s = now, head.unpublished_age_s + age_s
        if head.ordinal == position.ordinal and head.revision > replica.revision:
            self.replica = msgspec.structs.replace(
                replica, revision=head.revision, anomalies=head.anomalies
            )
            return [Moved(())]
        return []

    def _mark_behind(self, head: Head, now: float) -> None:
        self._ahead = (head, now)
        if self._behind_since is None:
            self._behind_since = now

    def tick(self, now: float) -> list[Effect]:
        """Time passed: behind a head for too long means that something was lost."""
        since = self._behind_since
        if since is None or now - since < self._behind_max_s:
            return []
        self._behind_since = None
        return self._catch_up("gap")


def collected(
    replica: Replica, entries: Sequence[ViewEntry]
) -> tuple[Replica, tuple[FleetChange, ...]]:
    """The replica after ``entries`` of the view stream, and what they changed.

    Raises `SequenceGapError` or `DivergenceError`.
    """
    changes: list[FleetChange] = []
    for entry in entries:
        match entry.message:
            case Delta() as delta if delta.ordinal > replica.position.ordinal:
                replica = replica.after(delta, entry.view_seq)
                changes.extend(delta.changes)
            case EpochStarted() as start if start.epoch != replica.position.epoch:
                raise SequenceGapError(
                    expected=replica.position.view_seq + 1, got=entry.view_seq
                )
    return replica, tuple(changes)


def _is_step_back(before: Replica, after: Replica) -> bool:
    """Whether ``after`` is an earlier place in the same epoch."""
    old, new = before.position, after.position
    return old.epoch == new.epoch and new.ordinal < old.ordinal
