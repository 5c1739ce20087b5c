"""The line of deltas: numbered, published once and in order, checked against others'.

The delta of ordinal k has its place in the view stream: ``base + k``. A publish says
which sequence must be the last, so whoever publishes, and however late a message
lands, each ordinal is stored once. What somebody else published is compared with
one's own bytes. A message that does not fit breaks the numbering: the leader starts a
new epoch where it stands, and routers resync. So does a delta that no message can
carry, and a backlog that no memory should.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final

from controlplane.viewfeed import ViewEntry
from events import Revision
from projections import (
    FOLD_VERSION,
    Delta,
    Epoch,
    EpochStarted,
    FleetChange,
    FoldState,
    Position,
    encode_view,
)

from .drafts import Draft, draft, fill_batch, start_of
from .effects import Alarm, Effect, Publish, Rebuild, Resign
from .footing import Footing
from .start import Start

PENDING_MAX: Final = 100_000
"""Deltas that may wait; with more a new epoch is cheaper for everybody."""
AHEAD_MAX: Final = 10_000
"""So far may the fold run ahead of what is read of the view stream, or behind it."""
HISTORY_LOST: Final = ("log_lost_tail", "log_forked")
OUTDATED: Final = "a newer version numbers the view"


class DeltaLine:
    """The deltas between the fold and the view stream.

    Invariants: ``published`` deltas of ``epoch`` are known to be (or to have been) in
    the stream; ``pending`` are the next ones, in order; together they lead exactly to
    the fold. Without an epoch there are none.
    """

    def __init__(self, start: Start, *, batch_max: int) -> None:
        """Begin at ``start``; publish at most ``batch_max`` deltas at once."""
        self._batch_max = batch_max
        self.log_id = start.log_id
        self.epoch: Epoch | None = None
        self.base = self.published = 0
        self.revision: Revision = 0
        if start.position is not None:
            self.epoch = start.position.epoch
            self.base, self.published = start.position.base, start.position.ordinal
            self.revision = start.position.delta_revision
        self._line_start = self.stands_at = start.folded
        """``stands_at``: of which revision the digest and the anomalies are."""
        self.begun = start.begun
        """How the epoch began, until the fold has come there and is compared."""
        self.digest, self.anomalies = start.line_digest, start.line_anomalies
        self._epoch_count = max(start.epoch_count, start.over)
        self._epoch_reason = start.epoch_reason
        self._over, self._over_reason = start.over, start.over_reason
        self.view_end, self.trimmed_to = start.view_end, start.trimmed_to
        self._read_to = start.view_end
        if start.position is not None:
            self._read_to = min(start.position.view_seq, start.view_end)
        self.pending: deque[Draft] = deque()
        self._seen: deque[ViewEntry] = deque()
        self._in_flight: Publish | None = None
        self._footing = Footing(start.view_end, start.last_payload)
        self.outdated = start.outdated
        """A newer fold version numbers the view: this one must not lead."""
        self.bytes_encoded = 0

    # ---- from the fold ---------------------------------------------------------
    def add(
        self, state: FoldState, changes: tuple[FleetChange, ...], now: float
    ) -> None:
        """A record changed the view: its delta is next, if the epoch began before."""
        if self.epoch is None or state.revision <= self._line_start:
            return
        self.pending.append(draft(state, changes, now))

    def position(self, folded: Revision) -> Position | None:
        """Where a fold of ``folded`` stands in the epoch, published or not.

        None: nowhere sure, or still before the epoch's start.
        """
        if self.epoch is None or self._starting or folded < self.epoch.revision:
            return None
        return Position(
            epoch=self.epoch,
            base=self.base,
            ordinal=self.published + len(self.pending),
            delta_revision=self.pending[-1].revision if self.pending else self.revision,
        )

    @property
    def known_epoch(self) -> Epoch | None:
        """The epoch that the view stream is known to be in, reached or not."""
        return None if self._starting else self.epoch

    @property
    def level(self) -> bool:
        """Whether the view stream holds all that the fold knows, as far as is known."""
        return (
            self.epoch is not None
            and not self._starting
            and not self.pending
            and not self._seen
            and self.base + self.published == self.view_end
        )

    @property
    def history_lost(self) -> tuple[int, str] | None:
        """The last epoch that may number lost records, and what became of them."""
        if self._is_over:
            return self._over, self._over_reason
        if self.epoch is not None or self._epoch_reason not in HISTORY_LOST:
            return None
        return self._epoch_count, self._epoch_reason

    @property
    def ahead(self) -> bool:
        """Whether the fold should wait for the view stream to be read."""
        return len(self.pending) > AHEAD_MAX and not self._all_read

    @property
    def behind(self) -> bool:
        """Whether the view stream should wait for the fold. Never while `ahead`."""
        return len(self._seen) > AHEAD_MAX and not self.pending

    @property
    def _all_read(self) -> bool:
        return max(self._read_to, self.trimmed_to) >= self.view_end

    @property
    def _starting(self) -> bool:
        return self._in_flight is not None and self._in_flight.epoch_reason is not None

    @property
    def _is_over(self) -> bool:
        """Whether this epoch may be followed but not led on with."""
        return self.epoch is not None and self.epoch.count <= self._over

    # ---- from the view stream --------------------------------------------------
    def seen(self, entries: Sequence[ViewEntry], fold: FoldState) -> list[Effect]:
        """Take note of what the view stream holds, in its order."""
        for entry in entries:
            self._read_to = max(self._read_to, entry.view_seq)
            self.view_end = max(self.view_end, entry.view_seq)
            self._footing.stand_on(entry.view_seq, entry.payload)
            if self.epoch is None or entry.view_seq > self.base + self.published:
                self._seen.append(entry)
        return self.settle(fold)

    def doubt(self) -> list[Effect]:
        """Contact was lost: nothing is published or compared before a look."""
        self._footing.doubted = True
        return self.look()

    @property
    def doubted(self) -> bool:
        """Whether contact was lost since a `Publish` in flight was decided."""
        return self._footing.doubted

    def ends(
        self, first_sequence: int, last_sequence: int, payload: bytes | None
    ) -> list[Effect]:
        """The answer to `LookAtView`."""
        lost = self._footing.what_is_lost(last_sequence, payload)
        if lost is not None:
            return [Rebuild(lost)]
        known_to = max(self._read_to, self.trimmed_to)
        if self.epoch is not None:
            known_to = max(known_to, self.base + self.published)
        if first_sequence - 1 > known_to:
            # An epoch may have begun there.
            return [Rebuild("the view stream was trimmed before it was read")]
        # More may have been seen since the question was asked.
        self.view_end = max(self.view_end, last_sequence)
        self.trimmed_to = max(self.trimmed_to, first_sequence - 1)
        return self.look() if self.doubted else []

    def settle(self, fold: FoldState) -> list[Effect]:
        """Match what the view stream holds with what was computed here."""
        if self._starting or not self._footing.sure:
            return []
        effects: list[Effect] = []
        to_compare = self._seen[0].view_seq if self._seen else self.trimmed_to + 1
        self._pass(min(self.trimmed_to, to_compare - 1))
        while self._seen:
            entry = self._seen[0]
            match entry.message:
                case Delta() as delta if self._fits(entry.view_seq, delta):
                    self._pass(entry.view_seq - 1)
                    if not self.pending and delta.revision > fold.revision:
                        break
                    self._seen.popleft()
                    effects += self._audit(entry)
                case _:
                    self._seen.popleft()
                    effects += self._misfit(entry, fold)
        if len(self.pending) > PENDING_MAX:
            self.lose_epoch("rebuild")
        return effects

    def _misfit(self, entry: ViewEntry, fold: FoldState) -> list[Effect]:
        """Something else than this epoch's next delta: the start of an epoch, or not.

        What others did in an epoch that began unseen cannot be told from here.
        """
        match entry.message:
            case EpochStarted() as start if self._is_new(start):
                return self._adopt(entry.view_seq, start, fold)
            case Delta(epoch=epoch) if self.epoch is None or epoch > self.epoch:
                self._epoch_count = max(self._epoch_count, epoch.count)
                if epoch.fold_version > FOLD_VERSION:
                    return self._step_back()
                if self.epoch is not None and epoch.log_id == self.log_id:
                    return [Rebuild("an epoch began unseen")]
        if self.epoch is None:
            return []
        self.lose_epoch("foreign")
        return [Alarm("foreign", entry.view_seq, entry.payload, b"")]

    def _fits(self, view_seq: int, delta: Delta) -> bool:
        """Whether the delta stands in its place in this epoch, at or after the next."""
        return (
            delta.epoch == self.epoch
            and view_seq == self.base + delta.ordinal
            and delta.ordinal > self.published
        )

    def _pass(self, trimmed_to: int) -> None:
        """Count as published what was stored once and is no longer there to compare."""
        if self.epoch is not None:
            while self.pending and self.base + self.published < trimmed_to:
                self._advance()

    def _audit(self, entry: ViewEntry) -> list[Effect]:
        """Compare what is published with one's own; without any it should not be."""
        own = self._encoded(0) if self.pending else b""
        if own == entry.payload:
            self._advance()
            return []
        self.lose_epoch("divergence")
        return [Alarm("divergence", entry.view_seq, entry.payload, own)]

    def _is_new(self, start: EpochStarted) -> bool:
        return self.epoch is None or start.epoch > self.epoch

    def _adopt(
        self, view_seq: int, start: EpochStarted, fold: FoldState
    ) -> list[Effect]:
        """Somebody began an epoch: number from there on."""
        self._epoch_count = max(self._epoch_count, start.epoch.count)
        if start.epoch.fold_version > FOLD_VERSION:
            return self._step_back()
        if start.epoch.fold_version < FOLD_VERSION:
            self.lose_epoch("fold_version")
            return []
        if start.epoch.log_id != self.log_id:
            self.lose_epoch("log_replaced")
            return []
        if fold.revision > start.revision:
            return [Rebuild("an epoch began below what is folded")]
        self._begin(start.epoch, view_seq)
        self.digest, self.anomalies = start.digest, start.anomalies
        self.begun = start
        return self._check_start(fold) if fold.revision == start.revision else []

    def passes(self, before: FoldState, after: FoldState) -> list[Effect]:
        """The fold went on by a record; it may have come to the epoch's start."""
        if self.begun is None or after.revision < self.begun.revision:
            return []
        there = after.revision == self.begun.revision
        return self._check_start(after if there else before)

    def _check_start(self, fold: FoldState) -> list[Effect]:
        """Compare how the epoch began with ``fold``, which stands at its revision.

        Or below, where the record at it is gone from the log. Somebody who did not
        know yet that the log had lost its tail may have begun the epoch on that.
        """
        start, self.begun = self.begun, None
        if start is None:
            raise AssertionError
        own, base = start_of(start.epoch, fold, start.reason), self.base
        if fold.revision == start.revision and own.fingerprint != start.fingerprint:
            self.lose_epoch("log_forked")
            return [Rebuild("an epoch began on another history than is folded")]
        if (own.digest, own.anomalies) == (start.digest, start.anomalies):
            return []
        self.lose_epoch("divergence")
        return [Alarm("divergence", base, encode_view(start), encode_view(own))]

    def _step_back(self) -> list[Effect]:
        self.outdated = True
        self.lose_epoch("fold_version")
        return [Resign(OUTDATED)]

    # ---- publishing ------------------------------------------------------------
    def look(self) -> list[Effect]:
        """Find out where the stream ends before anything is published."""
        if self._in_flight is not None:
            return []
        return [*self._footing.look(self.view_end)]

    def publish(self, state: FoldState, *, caught_up: bool) -> list[Effect]:
        """What a leader publishes next: one message or batch at a time."""
        if not self._footing.sure or self._in_flight is not None or self._seen:
            return []
        if self._is_over:
            if not caught_up:
                return []
            self.lose_epoch(self._over_reason)
        at = self.base + self.published
        missing = self.epoch is not None and not self.pending and at < self.trimmed_to
        if caught_up and missing:
            # More was published than the log accounts for, and nobody can read it.
            self.lose_epoch("foreign")
        if self.epoch is not None and self.pending and at == self.view_end:
            count = min(len(self.pending), self._batch_max)
            payloads = fill_batch(self._encoded(index) for index in range(count))
            if payloads:
                self._in_flight = Publish(payloads, self.view_end)
                return [self._in_flight]
            self.lose_epoch("rebuild")
        if self.epoch is None and caught_up and self._all_read:
            return [self._start_epoch(state)]
        return []

    def stored(self, last_sequence: int) -> list[Effect]:
        """The `Publish` in flight is stored and ends at ``last_sequence``."""
        if self._in_flight is not None:
            self._footing.stand_on(last_sequence, self._in_flight.payloads[-1])
        self._in_flight = None
        self.view_end = max(self.view_end, last_sequence)
        self._pass(last_sequence)
        while self._seen and self._seen[0].view_seq <= self.base + self.published:
            self._seen.popleft()
        return self.look() if self.doubted else []

    def refused(self) -> list[Effect]:
        """The `Publish` in flight was refused, or nobody knows: look, then go on."""
        starting = self._starting
        self._in_flight = None
        if starting:
            return [Rebuild("the start of an epoch was not confirmed")]
        return self.look()

    def _start_epoch(self, state: FoldState) -> Publish:
        reason, count = self._epoch_reason, self._epoch_count + 1
        epoch = Epoch(count, FOLD_VERSION, self.log_id, state.revision)
        after = self.view_end
        self._begin(epoch, after + 1)
        self.digest = state.fleet_state.digest
        self.anomalies = state.anomalies.counts
        started = start_of(epoch, state, reason)
        self._in_flight = Publish((encode_view(started),), after, epoch_reason=reason)
        return self._in_flight

    # ---- numbering -------------------------------------------------------------
    def _begin(self, epoch: Epoch, base: int) -> None:
        self.epoch, self.base, self.published = epoch, base, 0
        self._line_start = self.revision = self.stands_at = epoch.revision
        self.begun = None
        self._epoch_count = max(self._epoch_count, epoch.count)
        self.pending.clear()

    def lose_epoch(self, reason: str) -> None:
        """The numbering is broken: a leader begins a new epoch where the fold is."""
        self.epoch = self.begun = None
        self._epoch_reason = reason
        self.pending.clear()

    def _advance(self) -> None:
        next_one = self.pending.popleft()
        self.published += 1
        self.revision = self.stands_at = next_one.revision
        self.digest, self.anomalies = next_one.digest, next_one.anomalies

    def _encoded(self, index: int) -> bytes:
        if self.epoch is None:
            raise AssertionError(index)
        before = self.pending[index - 1].revision if index else self.revision
        ordinal = self.published + 1 + index
        payload = self.pending[index].encode(self.epoch, ordinal, before)
        self.bytes_encoded += len(payload)
        return payload
