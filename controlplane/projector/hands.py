"""The hands of a core: carry its effects out and bring the answers back to it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, Final

import msgspec

from controlplane.beats import encode_signal
from controlplane.broker import Broker
from controlplane.clock import Clock
from controlplane.errors import (
    AppendConflictError,
    AppendOutcomeUnknownError,
    LogFullError,
    LogUnavailableError,
)
from controlplane.eventlog import EventLog, Pending
from controlplane.identifiers import new_uuid7
from controlplane.logs import get_logger
from controlplane.telemetry import ProjectorMetrics
from controlplane.viewfeed import ViewFeed
from events import (
    ControlPlaneError,
    InvalidIdentityError,
    PortReleased,
    Revision,
    WorkerExpired,
    subject_of,
    worker_subject,
)
from projections import FoldState, Held, Life, LifeKey

from .caretaker import Inquiry
from .core import Core
from .effects import (
    Alarm,
    Announce,
    Effect,
    Expire,
    Inquire,
    LookAtView,
    Publish,
    Rebuild,
    Resign,
    SayHead,
    TakeSnapshot,
    Tell,
)
from .finding import denied_snapshot

_log = get_logger("projector")
AGAIN_AFTER_S: Final = 0.2
EXPIRIES_AT_ONCE: Final = 16
BATCH_MAX: Final = 1000
DECISION_S_MAX: Final = 2.0


class RebuildError(Exception):
    """Ends a term: the core's state of mind is no longer to be trusted."""


class Tools(msgspec.Struct, frozen=True, kw_only=True):
    """What hands work with."""

    broker: Broker
    log: EventLog
    feed: ViewFeed
    clock: Clock
    metrics: ProjectorMetrics
    name: str
    resign: Callable[[str], Coroutine[Any, Any, None]]
    log_fill: Callable[[], float]
    stir: Callable[[], None] = lambda: None
    """Called when the core took something in: its next tick may be due earlier."""


class Hands:
    """Carries out the effects of one core for as long as ``tasks`` run."""

    def __init__(self, core: Core, tools: Tools, tasks: asyncio.TaskGroup) -> None:
        """Work for ``core`` with ``tools``."""
        self._core, self._tools, self._tasks = core, tools, tasks
        self._expiries = asyncio.Semaphore(EXPIRIES_AT_ONCE)
        self._expiring: set[LifeKey] = set()
        self._rebuild: asyncio.Future[str] = asyncio.Future()

    def do(self, effects: Iterable[Effect]) -> None:
        """Carry out ``effects``: begin each; the answers come back by themselves."""
        for effect in effects:
            if self._rebuild.done():
                return
            match effect:
                case Rebuild(reason):
                    self._rebuild.set_result(reason)
                case Alarm():
                    self._sound(effect)
                case Announce(reason):
                    losses = self._tools.metrics.history_losses
                    losses.labels(reason="told_by_worker").inc()
                    _log.error("the log lost records", reason=reason)
                case _:
                    self._begin(effect)
        self._tools.stir()

    def _begin(self, effect: Effect) -> None:
        work = self._carry_out(effect)
        try:
            self._tasks.create_task(work)
        except RuntimeError:
            # The term is ending: whoever comes next starts from what is stored.
            work.close()

    async def until_rebuild(self) -> None:
        """Wait until the core asks to begin anew; raise `RebuildError` then."""
        raise RebuildError(await self._rebuild)

    async def _carry_out(self, effect: Effect) -> None:
        match effect:
            case Publish():
                await self._publish(effect)
            case LookAtView(at):
                await self._look(at)
            case TakeSnapshot():
                await self._snapshot(effect)
            case SayHead(head):
                fill = self._tools.log_fill()
                head = msgspec.structs.replace(head, log_fill=fill)
                await self._tools.feed.publish_head(head)
            case Expire(life):
                if life.key not in self._expiring:
                    self._expiring.add(life.key)
                    try:
                        await self._expire_in_turn(effect)
                    finally:
                        self._expiring.discard(life.key)
            case Inquire():
                await self._inquire(effect)
            case Tell():
                await self._tell(effect)
            case Resign(reason):
                await self._tools.resign(reason)

    async def _publish(self, effect: Publish) -> None:
        core, metrics = self._core, self._tools.metrics
        try:
            self._check_contact()
            stored = await self._tools.feed.publish(effect.payloads, after=effect.after)
        except AppendConflictError:
            metrics.publishes_refused.labels(reason="conflict").inc()
            self.do(core.publish_failed())
        except AppendOutcomeUnknownError:
            metrics.publishes_refused.labels(reason="outcome_unknown").inc()
            self.do(core.publish_failed())
        except ControlPlaneError as error:
            metrics.publishes_refused.labels(reason="refused").inc()
            _log.warning("deltas not published", error=str(error))
            await asyncio.sleep(AGAIN_AFTER_S)
            self.do(core.publish_failed())
        else:
            if effect.epoch_reason is not None:
                metrics.epoch_starts.labels(reason=effect.epoch_reason).inc()
                _log.info("epoch started", reason=effect.epoch_reason)
            else:
                metrics.deltas_published.inc(len(effect.payloads))
                metrics.publish_batches.inc(len(effect.payloads) > 1)
            self.do(core.published(stored.sequence, self._now()))

    def _check_contact(self) -> None:
        """Publish nothing over another connection than it was decided on.

        Between two the stream may have lost its tail: only a look can tell.
        """
        broker = self._tools.broker
        if self._core.line.doubted or not broker.connected:
            doing, reason = "publishing the view", "contact was lost meanwhile"
            raise LogUnavailableError(url=broker.url, doing=doing, reason=reason)

    async def _look(self, at: int | None) -> None:
        feed = self._tools.feed
        while True:
            try:
                state = await feed.state()
                entry = None if at is None else await feed.at(at)
            except LogUnavailableError:
                await asyncio.sleep(AGAIN_AFTER_S)
                continue
            first, last = state.first_sequence, state.last_sequence
            payload = None if entry is None else entry.payload
            self.do(self._core.view_ends(first, last, self._now(), payload))
            return

    async def _snapshot(self, effect: TakeSnapshot) -> None:
        metrics, snapshot = self._tools.metrics, effect.snapshot
        try:
            now = self._tools.clock.now()
            feed = self._tools.feed
            written = await feed.write_snapshot(snapshot, now)
            denied = None if written else await denied_snapshot(self._tools.log, feed)
        except ControlPlaneError as error:
            metrics.snapshots_failed.inc()
            _log.warning("snapshot not stored", error=str(error))
            await asyncio.sleep(AGAIN_AFTER_S)
            self.do(self._core.snapshot_failed(self._now()))
            return
        metrics.snapshots_written.inc(written)
        metrics.snapshot_revision.set(snapshot.revision)
        _log.info("snapshot stored", revision=snapshot.revision, is_newest=written)
        if denied is not None:  # it would stay, and be loaded, for as long as its epoch
            self.do([Rebuild(f"the newest snapshot is of lost history: {denied}")])
            return
        self.do(self._core.snapshot_stored(snapshot.position, self._now()))

    async def _expire_in_turn(self, effect: Expire) -> None:
        """Expire, unless the decision grew old.

        A process that was stopped meanwhile does not know who came back; whoever
        leads now judges anew.
        """
        decided_at = self._now()
        async with self._expiries:
            in_time = self._now() - decided_at < DECISION_S_MAX
            if in_time and self._core.leading:
                await self._expire(effect)

    async def _expire(self, effect: Expire) -> None:
        life = effect.life
        try:
            if life.ended and not await self._is_still_so():
                _log.info("expiry left: the log is another", worker_id=life.worker_id)
                return
            if self._core.fold.lives.get(life.key) != life:
                return  # there is news of it: it is to be judged again
            plan = await self._expiry_plan(effect)
            try:
                await self._append_expiry(plan)
            except AppendConflictError:
                # Somebody was faster, or what the fold remembers was purged.
                again = await self._reread(plan)
                if again is None:
                    raise
                await self._append_expiry(again)
        except AppendConflictError:
            _log.info("expiry overtaken", worker_id=life.worker_id)
        except InvalidIdentityError as error:
            _log.error("life cannot be expired", error=str(error))
        except (LogUnavailableError, AppendOutcomeUnknownError, LogFullError) as error:
            _log.warning("expiry not appended", error=str(error))
        else:
            self._tools.metrics.expiries.inc()
            _log.info(
                "worker expired",
                namespace=life.namespace,
                worker_id=life.worker_id,
                incarnation=life.incarnation,
                silent_for_s=round(effect.silent_for_s, 3),
            )

    async def _is_still_so(self) -> bool:
        """Whether the log still holds the last record that was folded.

        An end that the log lost is none: the life may be the current one again, and
        of those who hold ports only nothing else in the batch would show that.
        """
        fold, log = self._core.fold, self._tools.log
        record = await log.at(fold.revision)
        if record is not None:
            return record.fingerprint == fold.fingerprint
        return (await log.state()).last_revision >= fold.revision  # else: purged

    async def _append_expiry(self, plan: list[Pending]) -> None:
        for start in range(0, len(plan), BATCH_MAX):
            await self._tools.log.append_all(plan[start : start + BATCH_MAX])

    async def _reread(self, plan: list[Pending]) -> list[Pending] | None:
        """The plan without what was purged meanwhile from under its expectations.

        None: nothing was, or there is news that decides otherwise.
        """
        again = []
        for pending in plan:
            last = await self._tools.log.last(subject_of(pending.event))
            revision = 0 if last is None else last.revision
            if revision > (pending.expected or 0):
                return None
            again.append(msgspec.structs.replace(pending, expected=revision))
        return None if again == plan else again

    async def _expiry_plan(self, effect: Expire) -> list[Pending]:
        """The events that end the life: its worker's first, then its ports'.

        Of a life that no worker can have (a stranger claimed) only the ports are freed.
        """
        life, fold = effect.life, self._core.fold
        plan = []
        if not life.ended and _has_a_name(life):
            event = WorkerExpired(
                event_id=new_uuid7(),
                at=self._tools.clock.now(),
                by=self._tools.name,
                namespace=life.namespace,
                worker_id=life.worker_id,
                incarnation=life.incarnation,
                silent_for_s=effect.silent_for_s,
                observed_by=self._tools.name,
            )
            plan.append(Pending(event, await self._last_of(life, fold)))
        for key in sorted(life.ports):
            held = fold.ports.ports.get(key)
            if isinstance(held, Held):
                plan.append(self._release(held, fold))
        return plan

    async def _last_of(self, life: Life, fold: FoldState) -> Revision | None:
        """The last record on the worker's subject that the decision knew of.

        A life that never registered did not see it: then the log is asked, so that
        its registration, on the way with what it saw before, comes too late.
        """
        if life.registered is not None:
            return life.last
        last = await self._tools.log.last(
            worker_subject(life.namespace, life.worker_id)
        )
        if last is not None and last.revision > fold.revision:
            raise AppendConflictError(
                subject=last.subject, expected=fold.revision, last=last.revision, code=0
            )
        return 0 if last is None else last.revision

    def _release(self, held: Held, fold: FoldState) -> Pending:
        """The release of what ``fold`` holds; what was folded since then is not it."""
        event = PortReleased(
            event_id=new_uuid7(),
            at=self._tools.clock.now(),
            by=self._tools.name,
            host=held.host,
            port=held.port,
            claim_id=held.claim_id,
            cause="expired",
        )
        return Pending(event, fold.ports.revisions.get((held.host, held.port)))

    async def _inquire(self, effect: Inquire) -> None:
        log, beat = self._tools.log, effect.beat
        subject = worker_subject(effect.namespace, effect.worker_id)
        try:
            last = await log.last(subject)
            own = await log.at(beat.revision) if beat.revision > 0 else None
            state = await log.state()
        except LogUnavailableError:
            return
        inquiry = Inquiry(
            namespace=effect.namespace,
            worker_id=effect.worker_id,
            beat=beat,
            last=last,
            own=own,
            log_id=state.log_id,
            log_end=state.last_revision,
        )
        self.do(self._core.inquired(inquiry, self._now()))

    async def _tell(self, effect: Tell) -> None:
        names, notice = self._tools.feed.names, effect.notice
        subject = names.notice(effect.namespace, effect.worker_id)
        await self._tools.broker.publish(subject, encode_signal(notice))
        self._tools.metrics.notices_sent.labels(kind=notice.kind).inc()
        _log.info(
            "notice sent",
            namespace=effect.namespace,
            worker_id=effect.worker_id,
            kind=notice.kind,
        )

    def _sound(self, alarm: Alarm) -> None:
        if alarm.kind == "divergence":
            self._tools.metrics.divergences.inc()
        _log.error(
            "view stream holds what it must not",
            kind=alarm.kind,
            view_seq=alarm.view_seq,
            found=alarm.found.decode(errors="replace"),
            expected=alarm.expected.decode(errors="replace"),
        )

    def _now(self) -> float:
        return self._tools.clock.monotonic()


def _has_a_name(life: Life) -> bool:
    """Whether a worker may be called so: then it has a subject."""
    try:
        worker_subject(life.namespace, life.worker_id)
    except InvalidIdentityError:
        return False
    return True
