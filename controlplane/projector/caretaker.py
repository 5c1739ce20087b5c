"""The care of lives: leases renewed by beats, expired in time, senders told the news.

Only a leader expires and tells; a follower keeps the same book, so that a take-over
starts warm. Nothing here decides from a fold that is behind the log.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

import msgspec

from controlplane.beats import Beat, NoticeKind, WireNotice
from events import (
    Incarnation,
    Namespace,
    PortClaimed,
    Record,
    Revision,
    WorkerEvent,
    WorkerExpired,
    WorkerId,
    WorkerRegistered,
)
from projections import FoldState, LeaseBook, Life, LifeKey, drains_unheard

from .effects import Effect, Expire, Inquire, Tell

REMEMBERED_MAX: Final = 10_000
NOTICE_EVERY_S: Final = 3.0
EXPIRY_RETRY_S: Final = 2.0


class Inquiry(msgspec.Struct, frozen=True, kw_only=True):
    """What the log says, read at its leader, of a worker whose beat does not fit."""

    namespace: Namespace
    worker_id: WorkerId
    beat: Beat
    last: Record | None
    """The last record on the worker's subject…"""
    own: Record | None
    """…and the one at the beat's revision."""
    log_id: str
    log_end: Revision

    @property
    def shows_loss(self) -> bool:
        """Whether the log ends below what it acknowledged to this life."""
        return self.beat.log_id == self.log_id and self.beat.revision > self.log_end

    @property
    def was_here(self) -> bool:
        """Whether the log holds what it acknowledged to this life."""
        event = None if self.own is None else self.own.event
        return (
            isinstance(event, WorkerEvent)
            and event.incarnation == self.beat.incarnation
        )

    @property
    def claimed_here(self) -> bool:
        """Whether what it acknowledged to this life is a claim that the log holds."""
        event = None if self.own is None else self.own.event
        return (
            isinstance(event, PortClaimed)
            and event.owner.incarnation == self.beat.incarnation
        )

    def has_news_for(self, folded: Revision) -> bool:
        """Whether the log says more of this worker than is folded."""
        if folded < self.beat.revision <= self.log_end:
            return True
        return self.last is not None and self.last.revision > folded


class Caretaker:
    """Watches over the lives of a fold. ``book`` outlives caretakers."""

    def __init__(self, book: LeaseBook, log_id: str) -> None:
        """Keep ``book`` for the lives of the log ``log_id``."""
        self._book, self._log_id = book, log_id
        self._looked = False
        self._expiring: dict[LifeKey, float] = {}
        self._expired: OrderedDict[Incarnation, Revision] = OrderedDict()
        self._told: OrderedDict[tuple[Incarnation, NoticeKind], float] = OrderedDict()
        self.held = 0
        self.guard_engaged = False

    def note(self, record: Record, now: float) -> None:
        """Watch lives that begin; remember those that expired: their beats may go on.

        Before the first judgement nobody need be watched: it looks at everybody.
        """
        match record.event:
            case WorkerRegistered() as event if self._looked:
                key = (event.namespace, event.worker_id, event.incarnation)
                self._book.welcome(key, event.lease_ttl_s, now)
            case PortClaimed(owner=owner) as event if self._looked:
                key = (owner.namespace, owner.worker_id, owner.incarnation)
                self._book.welcome(key, event.lease_ttl_s, now)
            case WorkerExpired() as event:
                self._expired[event.incarnation] = record.revision
                _forget_oldest(self._expired)

    def act(self) -> None:
        """From now on what is judged is done: nothing has been tried yet."""
        self._expiring.clear()

    def judge(self, fold: FoldState, now: float, own_server: str) -> list[Effect]:
        """Expire who is overdue. Looking at everybody is dear: only when it can be."""
        if self._looked and self._book.is_quiet:
            self.held, self.guard_engaged = 0, False
            return []
        self._looked = True
        verdict = self._book.judge(fold.lives, now, own_server)
        self.held, self.guard_engaged = verdict.held, verdict.guard_engaged
        effects: list[Effect] = []
        self._expiring = {k: t for k, t in self._expiring.items() if k in fold.lives}
        for overdue in verdict.expire:
            tried_at = self._expiring.get(overdue.life.key)
            if tried_at is None or now - tried_at >= EXPIRY_RETRY_S:
                self._expiring[overdue.life.key] = now
                effects.append(Expire(overdue.life, overdue.silent_for_s))
        return effects

    def remind(self, fold: FoldState, now: float) -> list[Effect]:
        """Tell whom an operator asked to drain, again and again until they do."""
        effects: list[Effect] = []
        for order, worker in drains_unheard(fold.drains, fold.fleet_state):
            reason = order.reason or f"asked by {order.by or 'an operator'}"
            notice = _notice(
                worker.incarnation, "drain_requested", reason, order.revision
            )
            effects += self._tell(order.key, notice, now)
        return effects

    def beat(
        self,
        fold: FoldState,
        worker: tuple[Namespace, WorkerId],
        beat: Beat,
        now: float,
        *,
        answers: bool,
    ) -> list[Effect]:
        """A beat arrived: it renews its life's lease, or its sender learns the news.

        ``answers``: whether this projector leads and is up to date.
        """
        key = (*worker, beat.incarnation)
        life = fold.lives.get(key)
        if life is None or life.ended:
            return self._tell_unknown(fold, worker, beat, now) if answers else []
        self._book.beat(key, now, beat.server_id)
        if not answers:
            return []
        if beat.revision > fold.revision and beat.log_id == self._log_id:
            return self._inquire(worker, beat, now)
        if life.registered is not None:
            return self._tell_quarantined(fold, life, now)
        # It holds ports only. If it knows of a later record, that was a registration,
        # which the log may have lost while the claims before it stayed.
        known = [fold.ports.revisions.get(key) for key in life.ports]
        if beat.log_id == self._log_id and beat.revision in known:
            return []
        return self._inquire(worker, beat, now)

    def _tell_unknown(
        self,
        fold: FoldState,
        worker: tuple[Namespace, WorkerId],
        beat: Beat,
        now: float,
    ) -> list[Effect]:
        incarnation = beat.incarnation
        current = fold.fleet_state.workers.get(worker)
        if current is not None:
            life = fold.lives.get(current.life_key)
            since = 0 if life is None or life.registered is None else life.registered
            if since > beat.revision or beat.log_id != self._log_id:
                notice = _superseded(incarnation, current.incarnation, since)
                return self._tell(worker, notice, now)
        elif beat.log_id != self._log_id:
            reason = f"the log is {self._log_id} now"
            notice = _notice(incarnation, "unknown", reason, fold.revision)
            return self._tell(worker, notice, now)
        elif incarnation in self._expired:
            notice = _expired(incarnation, self._expired[incarnation])
            return self._tell(worker, notice, now)
        return self._inquire(worker, beat, now)

    def _inquire(
        self, worker: tuple[Namespace, WorkerId], beat: Beat, now: float
    ) -> list[Effect]:
        """Ask the log before anything is said; not more often than it could be said."""
        if self._may_say((beat.incarnation, "unknown"), now):
            return [Inquire(*worker, beat)]
        return []

    def inquired(self, fold: FoldState, inquiry: Inquiry) -> list[Effect]:
        """The answer to `Inquire`.

        A life registered above what is folded is not unknown, unless the log ends
        below: then it lost that registration. Nor is one that only claimed ports, and
        knows of no more than that.
        """
        beat, last = inquiry.beat, inquiry.last
        worker = (inquiry.namespace, inquiry.worker_id)
        life = fold.lives.get((*worker, beat.incarnation))
        is_here = life is not None and (
            life.registered is not None or inquiry.claimed_here
        )
        if inquiry.log_id != self._log_id or is_here:
            return []
        match last:
            case Record(event=WorkerExpired(incarnation=ended)) if (
                ended == beat.incarnation
            ):
                return [Tell(*worker, _expired(ended, last.revision))]
        if inquiry.has_news_for(fold.revision):
            return []
        current = fold.fleet_state.workers.get(worker)
        if current is not None and inquiry.was_here:
            since = fold.lives[current.life_key].registered or 0
            notice = _superseded(beat.incarnation, current.incarnation, since)
            return [Tell(*worker, notice)]
        if life is not None and life.ended:  # its ports only: nothing is unknown
            return []
        reason = "the log holds no such life"
        notice = _notice(beat.incarnation, "unknown", reason, fold.revision)
        return [Tell(*worker, notice)]

    def _tell_quarantined(
        self, fold: FoldState, life: Life, now: float
    ) -> list[Effect]:
        seat = fold.fleet_state.seats.get((life.namespace, life.worker_id))
        if seat is None or seat.worker.incarnation != life.incarnation:
            return []
        worker = seat.worker
        members = fold.fleet_state.members(seat.set_key)
        incumbent = None if members is None else members.checksum
        if incumbent in (None, worker.checksum):
            return []
        reason = (
            f"checksum {worker.checksum} differs from the WorkerSet's {incumbent}; "
            "register in a namespace of its own, or wait until the others left"
        )
        revision = life.registered or 0
        notice = _notice(life.incarnation, "quarantined", reason, revision)
        return self._tell(worker.key, notice, now)

    def _tell(
        self, worker: tuple[Namespace, WorkerId], notice: WireNotice, now: float
    ) -> list[Effect]:
        if self._may_say((notice.incarnation, notice.kind), now):
            return [Tell(*worker, notice)]
        return []

    def _may_say(self, what: tuple[Incarnation, NoticeKind], now: float) -> bool:
        """Whether it is time to say this (again)."""
        said_at = self._told.get(what)
        if said_at is not None and now - said_at < NOTICE_EVERY_S:
            return False
        self._told[what] = now
        self._told.move_to_end(what)
        _forget_oldest(self._told)
        return True


def _notice(
    incarnation: Incarnation, kind: NoticeKind, reason: str, revision: Revision
) -> WireNotice:
    return WireNotice(
        incarnation=incarnation, kind=kind, reason=reason, revision=revision
    )


def _superseded(
    incarnation: Incarnation, by: Incarnation, since: Revision
) -> WireNotice:
    return _notice(incarnation, "superseded", f"incarnation {by} registered", since)


def _expired(incarnation: Incarnation, revision: Revision) -> WireNotice:
    reason = "no beat came for longer than the lease"
    return _notice(incarnation, "expired", reason, revision)


def _forget_oldest(remembered: OrderedDict) -> None:  # type: ignore[type-arg]
    if len(remembered) > REMEMBERED_MAX:
        remembered.popitem(last=False)
