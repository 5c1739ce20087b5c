"""The projector's decisions. Everything that happens comes in; effects go out.

States. The core folds records into a `FoldState`; its `DeltaLine` numbers what they
change and matches it with the view stream; its `Caretaker` watches over leases. It
leads or follows, and it is caught up with the log or not yet.

Inputs: records of the log, entries of the view stream, the answers to its own
effects, the lease won or lost, beats, and the time at each tick. Each is one method
that returns effects. Effects are in ``effects``; the shell carries them out, one
`Publish` at a time, and brings the answers back.

The lease only keeps two projectors from trying at the same time. Safety is the fence
in the view stream (``line``) and the expectation on each subject of the log.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from controlplane.beats import Beat
from controlplane.settings import Settings
from controlplane.viewfeed import Head, ViewEntry
from events import Namespace, Record, Revision, WorkerId
from projections import FoldState, LeaseBook, Position, Snapshot, step, take

from .caretaker import Caretaker, Inquiry
from .effects import Announce, Effect, Resign, SayHead, TakeSnapshot
from .line import OUTDATED, DeltaLine
from .start import Start

OWED_HEAD_S: Final = 0.05
"""A head that is owed follows the one before after so long, not after a second."""


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """The numbers that the core goes by."""

    publish_batch_max: int = 500
    snapshot_every: int = 1000
    snapshot_records: int = 50_000
    snapshot_bytes: int = 1 << 29
    """View bytes between snapshots: half of what the stream keeps."""
    snapshot_age_s: float = 12 * 3600.0
    """Seconds between snapshots: half of how long the stream keeps deltas."""
    head_every_s: float = 1.0
    judge_every_s: float = 0.5
    canary_lost_s: float = 5.0


def limits_of(settings: Settings) -> Limits:
    """The numbers that an operator's settings come to."""
    return Limits(
        publish_batch_max=settings.publish_batch_max,
        snapshot_every=settings.snapshot_every,
        snapshot_records=settings.snapshot_records,
        snapshot_bytes=settings.view_max_bytes // 2,
        snapshot_age_s=settings.view_max_age_s / 2,
        head_every_s=settings.head_every_s,
        judge_every_s=settings.canary_every_s,
        canary_lost_s=settings.canary_lost_s,
    )


class Core:
    """One projector's state of mind. See the module."""

    def __init__(
        self,
        fold: FoldState,
        start: Start,
        book: LeaseBook,
        limits: Limits,
        *,
        name: str,
        now: float,
        snapshot_at: Position | None = None,
        snapshot_age_s: float = 0.0,
    ) -> None:
        """Begin with ``fold`` at ``start``; the last snapshot is of ``snapshot_at``."""
        self.name, self._limits, self.book = name, limits, book
        self.fold = fold
        self.line = DeltaLine(start, batch_max=limits.publish_batch_max)
        self.care = Caretaker(book, start.log_id)
        self.leading = self.caught_up = False
        self._head_at = now - limits.head_every_s
        self._head_owed = False
        self._judge_at = now + limits.judge_every_s
        self._snapshot_at = snapshot_at
        self._snapshot_time = now - snapshot_age_s
        self._snapshot_bytes = 0
        self._snapshot_revision = fold.revision if snapshot_at is not None else 0
        self._snapshot_due = self._snapshot_running = False
        self._holes = 0
        self._snapshot_of: tuple[FoldState, Position] | None = None
        self._snapshot_taken: Revision = 0
        self._loss_announced = False

    # ---- the log ---------------------------------------------------------------
    def records(self, records: Iterable[Record], now: float) -> list[Effect]:
        """Fold ``records`` and publish what they change."""
        effects: list[Effect] = []
        for record in records:
            before, taken = self.fold, step(self.fold, record)
            self.fold = taken.state
            if self.line.begun is not None:
                effects += self.line.passes(before, taken.state)
            self.care.note(record, now)
            if taken.changes:
                self.line.add(taken.state, taken.changes, now)
            else:
                self._head_owed = True
        return [*effects, *self.line.settle(self.fold), *self._go_on(now)]

    def reached_end(self, now: float) -> list[Effect]:
        """The log is folded up to where it ended when this core began."""
        self.caught_up = True
        return self._go_on(now)

    # ---- the view stream -------------------------------------------------------
    def view_seen(self, entries: Sequence[ViewEntry], now: float) -> list[Effect]:
        """Take note of what the view stream holds, in its order."""
        effects = self.line.seen(entries, self.fold)
        if self.leading and self.line.epoch is None:
            effects += self.line.look()
        return [*effects, *self._go_on(now)]

    def contact_lost(self) -> list[Effect]:
        """Contact with the view stream was lost, and may be there again.

        Meanwhile it may have lost its tail and grown another.
        """
        return self.line.doubt()

    def view_ends(
        self,
        first_sequence: int,
        last_sequence: int,
        now: float,
        payload: bytes | None = None,
    ) -> list[Effect]:
        """The answer to `LookAtView`; ``payload``: of the message that it names."""
        effects = self.line.ends(first_sequence, last_sequence, payload)
        if not self._snapshot_covers():
            self._snapshot_due = True
        effects += self.line.settle(self.fold)
        return [*effects, *self._go_on(now)]

    def view_misses(
        self, messages: int, first_sequence: int, now: float
    ) -> list[Effect]:
        """So many ``messages`` are gone from amid the view stream, and all before.

        Nobody can read over a hole, nor begin with a snapshot of what stands before
        the stream's first sequence: a snapshot from behind lets routers pass.
        """
        grown, self._holes = messages > self._holes, messages
        at = self._snapshot_at
        outrun = at is not None and at.view_seq < first_sequence - 1
        if not (grown or outrun) or not self.leading:
            return []
        self._snapshot_due = True
        return self._go_on(now)

    def published(self, last_sequence: int, now: float) -> list[Effect]:
        """The `Publish` in flight is stored, ending at ``last_sequence``."""
        effects = self.line.stored(last_sequence)
        return [*effects, *self.line.settle(self.fold), *self._go_on(now)]

    def publish_failed(self) -> list[Effect]:
        """The `Publish` in flight was refused, or its outcome is unknown."""
        return self.line.refused()

    # ---- leading ---------------------------------------------------------------
    def won(self) -> list[Effect]:
        """The lease was won: look where the view stream ends, go on from there."""
        if self.line.outdated:
            return [Resign(OUTDATED)]
        self.leading = self._head_owed = True
        self._holes = 0
        self.care.act()
        return self.line.look()

    def lost(self) -> None:
        """The lease was lost or given back. What is in flight is fenced."""
        self.leading = False

    def _go_on(self, now: float) -> list[Effect]:
        """What a leader does next."""
        if not self.leading:
            return []
        effects = self.line.publish(self.fold, caught_up=self.caught_up)
        return [*effects, *self._snapshot_if_due(now)]

    def tick(self, now: float, own_server: str = "") -> list[Effect]:
        """Time passed: say the head, judge the leases, stand down if blind."""
        judges = now >= self._judge_at
        if judges:
            self._judge_at = now + self._limits.judge_every_s
        silent_s = self.book.canary_silent_s(now)
        if self.leading and silent_s > self._limits.canary_lost_s:
            return [Resign("the canary has not returned")]
        effects = [*self._head_if_due(now), *self._go_on(now)]
        if judges and self.caught_up:
            # Not before: lives that are not folded yet would lose their beats.
            verdict = self.care.judge(self.fold, now, own_server)
            if self.leading:
                effects += verdict
                effects += self.care.remind(self.fold, now)
        return effects

    def next_tick_at(self) -> float:
        """When a `tick` is due next; another input may bring that forward."""
        return min(self._judge_at, self._head_due_at())

    @property
    def position(self) -> Position | None:
        """Where the fold stands in the epoch; None: nowhere sure."""
        return self.line.position(self.fold.revision)

    # ---- heads -----------------------------------------------------------------
    def _head_due_at(self) -> float:
        """When the next head is due: soon, if one is owed; infinity: none will be."""
        if not self.leading or not self.caught_up or self.position is None:
            return math.inf
        every_s = self._limits.head_every_s
        if self._head_owed and self.line.level:
            every_s = min(OWED_HEAD_S, every_s)
        return self._head_at + every_s

    def _head_if_due(self, now: float) -> list[Effect]:
        if now < self._head_due_at():
            return []
        self._head_at, self._head_owed = now, False
        return [SayHead(self._head(now))]

    def _head(self, now: float) -> Head:
        """Where the view stands: all that is published, and how late the rest is."""
        line, epoch = self.line, self.line.epoch
        if epoch is None:
            raise AssertionError
        level = not line.pending
        oldest = now if level else line.pending[0].since
        return Head(
            log_id=line.log_id,
            epoch=epoch,
            ordinal=line.published,
            revision=self.fold.revision if level else line.stands_at,
            digest=line.digest,
            anomalies=self.fold.anomalies.counts if level else line.anomalies,
            unpublished_age_s=max(0.0, now - oldest),
            log_fill=0.0,
            leader=self.name,
            fingerprint=self.fold.fingerprint if level else "",
        )

    # ---- snapshots -------------------------------------------------------------
    def snapshot_stored(self, position: Position, now: float) -> list[Effect]:
        """The snapshot of ``position`` is stored, or a later one was already."""
        self._snapshot_running = False
        self._snapshot_at, self._snapshot_time = position, now
        self._snapshot_bytes = self.line.bytes_encoded
        self._snapshot_revision = self._snapshot_taken
        return self._go_on(now)

    def snapshot_failed(self, now: float) -> list[Effect]:
        """It could not be stored: try again."""
        self._snapshot_running, self._snapshot_due = False, True
        return self._go_on(now)

    def snapshot_found(self, position: Position | None, now: float) -> list[Effect]:
        """The latest snapshot that can be read is of ``position``; None: there is none.

        Whoever starts needs one: what was lost or damaged is written again.
        """
        if not self.leading or self._snapshot_running:
            return []
        self._snapshot_at = position
        return self._go_on(now)

    def final_snapshot(self) -> Snapshot | None:
        """The snapshot of a clean stop, if a leader has news since the last one."""
        position = self.position
        if not self.leading or position is None or self.line.pending:
            return None
        at = (self._snapshot_at, self._snapshot_revision)
        return (
            None if at == (position, self.fold.revision) else take(self.fold, position)
        )

    def _snapshot_covers(self) -> bool:
        """Whether the last snapshot and what the view stream holds are the whole."""
        at = self._snapshot_at
        return (
            at is not None
            and at.epoch == self.line.epoch
            and at.base == self.line.base
            and at.view_seq >= self.line.trimmed_to
        )

    def _snapshot_if_due(self, now: float) -> list[Effect]:
        """Take a snapshot when one is due, once all that leads to it is published.

        One that is ahead of the view stream would be of no use to the next leader,
        who has to publish what lies between.
        """
        position = self.position
        if position is None or self._snapshot_running:
            return []
        if self._snapshot_of is None and self._is_snapshot_due(position, now):
            self._snapshot_of = self.fold, position
        if self._snapshot_of is None:
            return []
        fold, wanted = self._snapshot_of
        if wanted.epoch == position.epoch and wanted.ordinal > self.line.published:
            return []
        self._snapshot_of = None
        if wanted.epoch != position.epoch:
            return []
        self._snapshot_due, self._snapshot_running = False, True
        self._snapshot_taken = fold.revision
        return [TakeSnapshot(take(fold, wanted))]

    def _is_snapshot_due(self, position: Position, now: float) -> bool:
        at, limits = self._snapshot_at, self._limits
        same = at is not None and at.epoch == position.epoch
        news = position.ordinal - (at.ordinal if at is not None and same else 0)
        return (
            self._snapshot_due
            or not same
            or news >= limits.snapshot_every
            or self.fold.revision - self._snapshot_revision >= limits.snapshot_records
            or (news > 0 and now - self._snapshot_time >= limits.snapshot_age_s)
            or self.line.bytes_encoded - self._snapshot_bytes >= limits.snapshot_bytes
        )

    # ---- beats -----------------------------------------------------------------
    def beat(
        self, namespace: Namespace, worker_id: WorkerId, beat: Beat, now: float
    ) -> list[Effect]:
        """A beat arrived. Before this core caught up, note beats in the book itself."""
        answers = self.leading and self.caught_up
        worker = (namespace, worker_id)
        return self.care.beat(self.fold, worker, beat, now, answers=answers)

    def inquired(self, inquiry: Inquiry, now: float) -> list[Effect]:
        """The answer to `Inquire`."""
        if not self.leading:
            return []
        effects = self.care.inquired(self.fold, inquiry)
        if inquiry.shows_loss and not self._loss_announced:
            # A life was told a revision that the log no longer has. Whatever was
            # published of those records stands under numbers that others will get.
            self._loss_announced = True
            self.line.lose_epoch("log_lost_tail")
            beat, end = inquiry.beat, inquiry.log_end
            reason = f"a worker knows revision {beat.revision}; the log ends at {end}"
            effects = [Announce(reason), *effects, *self.line.look()]
        return [*effects, *self._go_on(now)]
