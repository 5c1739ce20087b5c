"""Deliberate faults of projectors: numbering, fence, lease, history, snapshots."""

from __future__ import annotations

from typing import Any

import msgspec

from controlplane.broker import Outgoing
from controlplane.errors import HistoryForkedError
from controlplane.eventlog import EventLog
from controlplane.projector import core as projector_core
from controlplane.projector import finding, recovery, service
from controlplane.projector.core import Core
from controlplane.projector.effects import Publish, TakeSnapshot
from controlplane.projector.line import DeltaLine
from controlplane.projector.memory import Memory
from controlplane.projector.service import ProjectorService
from controlplane.viewfeed import ViewFeed
from projections import FoldState, Position, take

from .mutating import Everywhere, Mutant, Patch, always, constant


def _unfenced(_: Any) -> Any:
    async def publish(self: Any, payloads: Any, *, after: int) -> Any:
        del after
        subject, stream = self.names.view, self.names.view_stream
        messages = [Outgoing(subject=subject, payload=payload) for payload in payloads]
        if len(messages) == 1:
            return await self._broker.store(stream, messages[0])
        return await self._broker.store_batch(stream, messages)

    return publish


def _impatient(publish: Any) -> Any:
    """The next batch follows at once, as if the one in flight were stored."""

    def next_one(self: Any, state: Any, *, caught_up: bool) -> Any:
        before = self._in_flight
        if before is None or before.epoch_reason is not None or self._seen:
            effects = publish(self, state, caught_up=caught_up)
            self.flying = list(effects)
            return effects
        after = before.after + len(before.payloads)
        first = after - self.base - self.published
        last = min(len(self.pending), first + self._batch_max)
        if self.epoch is None or not 0 < first < last:
            return []
        payloads = tuple(self._encoded(index) for index in range(first, last))
        self._in_flight = Publish(payloads, after)
        self.flying.append(self._in_flight)
        return [self._in_flight]

    return next_one


def _one_of_several(stored: Any) -> Any:
    def landed(self: Any, last_sequence: int) -> Any:
        for flying in self.flying:
            if flying.after + len(flying.payloads) == last_sequence:
                self._in_flight = flying
        return stored(self, last_sequence)

    return landed


def _counts_the_stream(ends: Any) -> Any:
    """What is in the stream counts as published; what waits is not matched with it."""

    def looked(self: Any, first: int, last: int, *payload: Any) -> Any:
        effects = ends(self, first, last, *payload)
        if self.epoch is not None:
            self.published = max(self.published, last - self.base)
            self._seen.clear()
        return effects

    return looked


def _same_count(start_epoch: Any) -> Any:
    def start(self: Any, state: Any) -> Any:
        self._epoch_count = max(0, self._epoch_count - 1)
        return start_epoch(self, state)

    return start


def _whatever_is_folded(adopt: Any) -> Any:
    """Number from its start on with what is folded from now on."""

    def adopted(self: Any, view_seq: int, start: Any, fold: Any) -> Any:
        if fold.revision <= start.revision:
            return adopt(self, view_seq, start, fold)
        effects = adopt(self, view_seq, start, FoldState())
        self.begun = None
        return effects

    return adopted


def _ahead_of_stream(head: Any) -> Any:
    def boasting(self: Any, now: float) -> Any:
        said = head(self, now)
        digest = self.fold.fleet_state.digest
        return msgspec.structs.replace(said, revision=self.fold.revision, digest=digest)

    return boasting


def _as_it_is_now(_: Any) -> Any:
    def snapshot_if_due(self: Any, now: float) -> Any:
        position = self.position
        if position is None or self._snapshot_running:
            return []
        if not self._is_snapshot_due(position, now):
            return []
        self._snapshot_due, self._snapshot_running = False, True
        return [TakeSnapshot(projector_core.take(self.fold, position))]

    return snapshot_if_due


def _state_before(_: Any) -> Any:
    """The place is that of now, the state still that of the snapshot before."""
    before: list[Any] = []

    def taken(state: Any, position: Position) -> Any:
        states = [state, *before]
        before[:] = [state]
        return take(states[-1], position)

    return taken


def _at_stream_end(position: Any) -> Any:
    """A replay stands where the stream ends, says its snapshot."""

    def placed(self: Any, folded: int) -> Any:
        found = position(self, folded)
        if found is None or self.view_end <= found.view_seq:
            return found
        return msgspec.structs.replace(found, ordinal=self.view_end - self.base)

    return placed


def _no_check(_: Any) -> Any:
    async def check_history(self: Any, *_args: Any) -> None:
        """All is as it was."""

    return check_history


def _by_sequence(_: Any) -> Any:
    async def check_history(
        self: Any, log_id: str, revision: int, fingerprint: str | None
    ) -> None:
        del fingerprint
        state = await self.state()
        if state.log_id != log_id or state.last_revision < revision:
            reason = f"it ends at revision {state.last_revision}"
            raise HistoryForkedError(reason=reason, revision=revision)

    return check_history


def _records_not_read(decide_start: Any) -> Any:
    def decided(found: Any) -> Any:
        records = [f for f in found.__struct_fields__ if f.endswith("_record")]
        return decide_start(msgspec.structs.replace(found, **dict.fromkeys(records)))

    return decided


def _record_not_compared(mismatch: Any) -> Any:
    return lambda at, state, _record, log: mismatch(at, state, None, log)


MUTANTS = (
    Mutant(
        "publish-without-fence",
        "deltas are stored wherever the view stream ends by now",
        (Patch(ViewFeed, "publish", _unfenced),),
        plans=("frozen-leader",),
    ),
    Mutant(
        "publish-before-acknowledged",
        "a second batch is published before the first is acknowledged",
        (
            Patch(DeltaLine, "publish", _impatient),
            Patch(DeltaLine, "stored", _one_of_several),
        ),
        plans=("foreign-amid", "frozen-leader"),
    ),
    Mutant(
        "resume-at-wrong-ordinal",
        "after a take-over the stream's length is one's own count",
        (Patch(DeltaLine, "ends", _counts_the_stream),),
        plans=("late-follower",),
    ),
    Mutant(
        "leader-after-its-lease",
        "a leader goes on when its lease has lapsed",
        (Patch(ProjectorService, "_stand_down", always(None)),),
        plans=("frozen-leader",),
    ),
    Mutant(
        "epoch-count-reused",
        "a new epoch has the count of the one before",
        (Patch(DeltaLine, "_start_epoch", _same_count),),
        plans=("fork",),
    ),
    Mutant(
        "epoch-adopted-below-the-fold",
        "an epoch that began below what is folded is joined all the same",
        (Patch(DeltaLine, "_adopt", _whatever_is_folded),),
        plans=("began-and-gone",),
    ),
    Mutant(
        "head-before-published",
        "a head says what is folded though it is not published",
        (Patch(Core, "_head", _ahead_of_stream),),
    ),
    Mutant(
        "snapshot-ahead-of-stream",
        "a snapshot stands on deltas that are not published yet",
        (Patch(Core, "_snapshot_if_due", _as_it_is_now),),
        plans=("frozen-leader",),
    ),
    Mutant(
        "snapshot-before-state",
        "a snapshot's place is written before its state is",
        (Patch(projector_core, "take", _state_before),),
    ),
    Mutant(
        "snapshot-at-stream-end",
        "a snapshot taken during a replay says that it stands at the stream's end",
        (
            Patch(DeltaLine, "position", _at_stream_end),
            Patch(service, "FOLD_AT_ONCE", constant(5)),  # as of a long log
        ),
        plans=("rebuild",),
    ),
    Mutant(
        "no-history-check",
        "a reader goes on after an interruption without looking at the history",
        (Patch(EventLog, "_check_history", _no_check),),
        plans=("fork",),
    ),
    Mutant(
        "fork-check-by-sequence",
        "a log that ends as high as before is taken for the same history",
        (
            Patch(EventLog, "_check_history", _by_sequence),
            Everywhere(recovery.decide_start, _records_not_read),
            Patch(finding, "_mismatch", _record_not_compared),
        ),
        plans=("fork",),
    ),
    Mutant(
        "nothing-remembered",
        "a new term does not know where the one before stood",
        (Patch(Memory, "keep", always(None)),),
        plans=("fork",),
    ),
)
