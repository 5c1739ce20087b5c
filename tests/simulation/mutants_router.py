"""Deliberate faults of routers: what is applied, learnt, kept and told."""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

import msgspec

from controlplane import presence
from controlplane.router import planning
from controlplane.router.changes import ChangeReader
from controlplane.router.client import RouterView
from controlplane.router.core import Core, Moved
from controlplane.router.keeping import Keeper
from controlplane.router.planning import BeginWith, ReadTail, Wait
from controlplane.router.replica import Replica, at_beginning, fleet_at
from controlplane.router.syncing import Syncing
from projections import (
    EMPTY,
    AnomalyCounts,
    Delta,
    Position,
    WorkerPut,
    apply,
)

from .mutating import Everywhere, Mutant, Patch, always

_with = msgspec.structs.replace


def _placed(replica: Any, delta: Any, fleet: Any) -> Any:
    """The replica at the place of ``delta``, whatever was missed before it."""
    position = _with(
        replica.position, ordinal=delta.ordinal, delta_revision=delta.revision
    )
    return _with(
        replica,
        position=position,
        fleet=fleet,
        revision=max(delta.revision, replica.revision),
        fingerprint=delta.fingerprint,
        fingerprint_at=delta.revision,
        anomalies=delta.anomalies,
    )


def _skipping(take_delta: Any) -> Any:
    def taken(self: Any, delta: Any, view_seq: int) -> Any:
        replica = self.replica
        if replica is None or delta.epoch != replica.position.epoch:
            return take_delta(self, delta, view_seq)
        if delta.ordinal <= replica.position.ordinal + 1:
            return take_delta(self, delta, view_seq)
        fleet = apply(replica.fleet, delta.changes)
        self._stand_at(_placed(replica, delta, fleet))
        return [Moved(delta.changes)]

    return taken


def _gaps_ignored(_: Any) -> Any:
    def after(self: Any, delta: Any, view_seq: int) -> Any:
        del view_seq
        return _placed(self, delta, apply(self.fleet, delta.changes))

    return after


def _over_the_hole(plan: Any) -> Any:
    def planned(end: Any, replica: Any) -> Any:
        if end.message is not None and replica is not None:
            position = replica.position
            if position.epoch == end.message.epoch and position.base == end.base:
                return ReadTail(min(position.view_seq, end.last))
        return plan(end, replica)

    return planned


def _queue_applied(drain: Any) -> Any:
    """What waited during the catch-up is added once more, whatever it brought."""

    def drained(self: Any) -> Any:
        waited = [entry.message for entry in self._buffer]
        effects = drain(self)
        for message in waited:
            replica = self.replica
            if not isinstance(message, Delta) or replica is None:
                continue
            puts = tuple(c for c in message.changes if isinstance(c, WorkerPut))
            if message.ordinal < replica.position.ordinal:
                self.replica = _with(replica, fleet=apply(replica.fleet, puts))
                effects.append(Moved(puts))
        return effects

    return drained


def _any_head(_: Any) -> Any:
    def adopt(self: Any, head: Any) -> bool:
        replica = self.replica
        if replica is None or head.revision <= replica.revision:
            return False
        self.replica = _with(
            replica,
            revision=head.revision,
            fingerprint=head.fingerprint,
            fingerprint_at=head.revision,
        )
        return True

    return adopt


def _lower_head(_: Any) -> Any:
    def adopt(self: Any, head: Any) -> bool:
        replica = self.replica
        if (
            replica is None
            or head.ordinal != replica.position.ordinal
            or head.digest != replica.digest
            or not head.fingerprint
            or head.revision == replica.revision
        ):
            return False
        self.replica = _with(
            replica,
            revision=head.revision,
            fingerprint=head.fingerprint,
            fingerprint_at=head.revision,
            anomalies=head.anomalies,
        )
        return True

    return adopt


def _epoch_of_head(head_said: Any) -> Any:
    def learnt(self: Any, head: Any, now: float, age_s: float = 0.0) -> Any:
        replica = self.replica
        if replica is None or self.source != "live":
            return []
        if head.epoch != replica.position.epoch:
            position = _with(replica.position, epoch=head.epoch, ordinal=head.ordinal)
            self.replica = _with(replica, position=position)
        return head_said(self, head, now, age_s)

    return learnt


def _empty_at_end(plan: Any) -> Any:
    """Where only waiting helps, an empty fleet is as good a beginning."""

    def planned(end: Any, replica: Any) -> Any:
        found = plan(end, replica)
        if not isinstance(found, Wait) or end.pointer is None:
            return found
        place = end.pointer.position
        epoch = place.epoch if end.message is None else end.message.epoch
        revision = place.delta_revision if end.message is None else end.message.revision
        base = place.base if end.message is None else end.base
        return BeginWith(
            Replica(
                position=Position(
                    epoch=epoch,
                    base=base,
                    ordinal=max(0, end.last - base),
                    delta_revision=revision,
                ),
                fleet=EMPTY,
                revision=revision,
                fingerprint="",
                fingerprint_at=0,
                anomalies=AnomalyCounts(),
            )
        )

    return planned


def _resync_untold(moved: Any) -> Any:
    def told(self: Any, changes: Any, fleet: Any) -> None:
        if changes is not None:
            moved(self, changes, fleet)

    return told


def _place_first(save: Any) -> Any:
    """The file has the place of now and the fleet of the file before."""
    before: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()

    async def saved(self: Any) -> None:
        confirmed = self._confirmed
        found = confirmed()
        if found is not None:
            replica, stale_s = found
            old = before.get(self, replica.fleet)
            before[self] = replica.fleet
            self._confirmed = lambda: (_with(replica, fleet=old), stale_s)
        try:
            await save(self)
        finally:
            self._confirmed = confirmed

    return saved


def _where_the_head_is(confirmed: Any) -> Any:
    """While it catches up, the file says the place that it is on the way to."""

    def said(self: Any) -> Any:
        found, ahead = confirmed(self), self._core._ahead
        if found is None or ahead is None:
            return found
        replica, stale_s = found
        head = ahead[0]
        if head.epoch != replica.position.epoch:
            return found
        position = _with(replica.position, ordinal=head.ordinal)
        return _with(replica, position=position, revision=head.revision), stale_s

    return said


async def _held(*_args: Any) -> bool:
    return True


def _lapsed_forgotten(judge_wait: Any) -> Any:
    def judged(seen: Any, epoch: Any, revision: int, _: Any, **end: Any) -> Any:
        return judge_wait(seen, epoch, revision, 1, **end)

    return judged


def _any_known_epoch(epoch: Any) -> Any:
    """The start of an epoch is the next place, whichever came before."""

    def taken(self: Any, start: Any, view_seq: int) -> Any:
        replica = self.replica
        fleet = None if replica is None else fleet_at(start, replica.fleet)
        if fleet is None or start.epoch == replica.position.epoch:
            return epoch(self, start, view_seq)
        self._stand_at(at_beginning(start, view_seq, fleet))
        return [Moved(() if fleet is replica.fleet else None, "epoch")]

    return taken


def _as_found(_self: Any, _before: Any, after: Any, _reason: Any) -> Any:
    return after


MUTANTS = (
    Mutant(
        "missing-ordinal-skipped",
        "a router takes a later delta though one before it is missing",
        (Patch(Core, "_delta", _skipping),),
        plans=("behind",),
    ),
    Mutant(
        "delta-gap-ignored",
        "a router that catches up reads on over what the stream has lost",
        (
            Everywhere(planning.plan, _over_the_hole),
            Patch(Replica, "after", _gaps_ignored),
        ),
        plans=("trimmed",),
    ),
    Mutant(
        "queued-add-applied",
        "what waited during a resync is applied after it",
        (Patch(Core, "_drain", _queue_applied),),
        plans=("frozen-leader",),
    ),
    Mutant(
        "head-taken-not-level",
        "a head's revision is one's own whether one is level with it or not",
        (Patch(Core, "_adopt", _any_head),),
    ),
    Mutant(
        "lower-head-taken",
        "a head of yesterday takes a router back",
        (Patch(Core, "_adopt", _lower_head),),
        plans=("strangers",),
    ),
    Mutant(
        "epoch-from-head",
        "a router learns of an epoch from a head",
        (Patch(Core, "head", _epoch_of_head),),
        plans=("frozen-leader",),
    ),
    Mutant(
        "old-snapshot-means-empty",
        "where the snapshot is older than the trimmed stream, the fleet is empty",
        (Everywhere(planning.plan, _empty_at_end),),
        plans=("trimmed",),
    ),
    Mutant(
        "step-back-taken",
        "a router that looks anew goes to an earlier place of its history",
        (Patch(Core, "_is_step_back", always(value=False)),),
        plans=("false-heads",),
    ),
    Mutant(
        "refuted-head-believed",
        "a router looks anew for a head that the view stream has just denied",
        (Patch(Core, "_is_refuted", always(value=False)),),
        plans=("false-heads",),
    ),
    Mutant(
        "earlier-epoch-taken",
        "a router goes back to an epoch whose start it hears late",
        (Patch(Core, "_epoch", _any_known_epoch),),
        plans=("late-epochs",),
    ),
    Mutant(
        "revision-taken-back",
        "a router that looked anew forgets what a head told it meanwhile",
        (Patch(Core, "_not_below", lambda _: _as_found),),
        plans=("over-foreign",),
    ),
    Mutant(
        "resync-not-told",
        "who reads changes hears nothing of a resync",
        (Patch(ChangeReader, "moved", _resync_untold),),
        plans=("fork",),
    ),
    Mutant(
        "checkpoint-before-state",
        "a router's file has the place of now and the fleet of before",
        (Patch(Keeper, "save", _place_first),),
        plans=("behind",),
    ),
    Mutant(
        "checkpoint-at-stream-end",
        "a router that is behind writes the place that it is on the way to",
        (Patch(RouterView, "_confirmed", _where_the_head_is),),
        plans=("never-level",),
    ),
    Mutant(
        "synced-by-revision",
        "synced looks at numbers, not at whose records they are",
        (Patch(Syncing, "_is_held", lambda _: _held),),
        plans=("fork",),
    ),
    Mutant(
        "wait-for-one-router",
        "the operator's gate opens with the first router",
        (Everywhere(presence.judge_wait, _lapsed_forgotten),),
        plans=("asleep",),
    ),
)
