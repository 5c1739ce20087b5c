"""The projector as a process: terms, lease, beats, time and pages.

A term is the time of one core: from recovery until something makes its state of mind
doubtful (history lost, the view stream broken); then the next term begins. Leases and
beats are kept across terms.
"""

from __future__ import annotations

import asyncio
from typing import Final

import msgspec
import structlog
from prometheus_client import CollectorRegistry

from controlplane.beats import Beat
from controlplane.broker import Broker
from controlplane.clock import Clock
from controlplane.errors import (
    HistoryForkedError,
    HistoryTruncatedError,
    LogUnavailableError,
)
from controlplane.eventlog import EventLog, LogState
from controlplane.http import Handler
from controlplane.runtime import Lifetime, first_of
from controlplane.settings import Settings
from controlplane.telemetry import ProjectorMetrics, metrics_route
from controlplane.viewfeed import ViewFeed
from events import ControlPlaneError, Namespace, WorkerId
from projections import Fleet, Guard, LeaseBook

from . import pages
from .core import Core, Limits
from .ear import Ear
from .hands import Hands, RebuildError, Tools
from .leadership import Leadership
from .recovery import Begin, decide_start, find

_log = structlog.get_logger()
TICK_S: Final = 0.05
WATCH_LOG_S: Final = 1.0
TERM_AGAIN_S: Final = 0.2
TRUNCATED_AGAIN_S: Final = 2.0
STOP_S_MAX: Final = 3.0


class ProjectorService(Lifetime):
    """One projector of a cell. `run` of its lifetime returns only by an error."""

    def __init__(
        self,
        *,
        broker: Broker,
        log: EventLog,
        feed: ViewFeed,
        settings: Settings,
        clock: Clock,
        name: str,
    ) -> None:
        """Work as projector ``name``; metrics go to a registry of its own."""
        super().__init__()
        self.name = name
        self.registry = CollectorRegistry()
        self.metrics = ProjectorMetrics(self.registry)
        self._broker, self._log, self._feed = broker, log, feed
        self._settings, self._clock = settings, clock
        guard = Guard(
            share=settings.guard_share,
            least=settings.guard_min,
            hold_s=settings.guard_hold_s,
            blind_gap_s=settings.blind_gap_s,
        )
        self._book = LeaseBook(guard)
        self._lease = Leadership(broker, log.names, name=name, ttl_s=settings.lease_s)
        self._core: Core | None = None
        self._last_core: Core | None = None
        self._hands: Hands | None = None
        self._log_state: LogState | None = None
        self._behind_since: float | None = None
        self._trouble: str | None = "starting"
        self._no_lease_until = 0.0
        self._ear = Ear(
            broker, feed.names, self._book, clock, name=name, listener=self._beat
        )
        self._blind_shown = 0.0

    # ---- terms -----------------------------------------------------------------
    async def _run(self, tasks: asyncio.TaskGroup) -> None:
        await self._broker.wait_connected(self._settings.connect_timeout_s)
        await self._watch_log_once()
        await self._ear.open(tasks, self._settings.canary_every_s)
        tasks.create_task(self._keep_lease())
        tasks.create_task(self._tick())
        tasks.create_task(self._watch_log())
        self._ready.set()
        while True:
            await self._term()

    async def _term(self) -> None:
        """One core's time. Returns when the next should begin."""
        pause_s = TERM_AGAIN_S
        try:
            begin = decide_start(await find(self._log, self._feed))
            self._announce(begin)
            async with asyncio.TaskGroup() as tasks:
                self._begin(begin, tasks)
                tasks.create_task(self._follow_log(begin))
                tasks.create_task(self._follow_view(begin))
                tasks.create_task(self._parts()[1].until_rebuild())
        except* RebuildError as group:
            _log.warning("projection begins anew", reason=str(first_of(group)))
        except* HistoryForkedError as group:
            _log.error("history lost or forked", reason=str(first_of(group)))
        except* HistoryTruncatedError as group:
            pause_s = TRUNCATED_AGAIN_S
            self._trouble = str(first_of(group))
            _log.error("history truncated", reason=self._trouble)
        except* LogUnavailableError as group:
            self._trouble = str(first_of(group))
            _log.warning("broker not available", reason=self._trouble)
        finally:
            self._last_core, self._core, self._hands = self._core, None, None
        await asyncio.sleep(pause_s)

    def _announce(self, begin: Begin) -> None:
        position = begin.start.position
        if begin.problem is not None:
            _log.warning("snapshot not used", reason=begin.problem)
        _log.info(
            "projection begins",
            revision=begin.fold.revision,
            log_last_revision=begin.log_end,
            epoch=None if position is None else str(position.epoch),
        )

    def _begin(self, begin: Begin, tasks: asyncio.TaskGroup) -> None:
        settings, now = self._settings, self._clock.monotonic()
        limits = Limits(
            publish_batch_max=settings.publish_batch_max,
            snapshot_every=settings.snapshot_every,
            snapshot_bytes=settings.view_max_bytes // 2,
            snapshot_age_s=settings.view_max_age_s / 2,
            head_every_s=settings.head_every_s,
            judge_every_s=settings.canary_every_s,
            canary_lost_s=settings.canary_lost_s,
        )
        core = Core(
            begin.fold,
            begin.start,
            self._book,
            limits,
            name=self.name,
            now=now,
            snapshot_at=begin.snapshot_at,
        )
        tools = Tools(
            broker=self._broker,
            log=self._log,
            feed=self._feed,
            clock=self._clock,
            metrics=self.metrics,
            name=self.name,
            resign=self._resign,
            log_fill=lambda: 0.0 if self._log_state is None else self._log_state.fill,
        )
        self._core, self._hands = core, Hands(core, tools, tasks)
        self._trouble = None
        if self._lease.holds(now):
            self._hands.do(core.won())
        if core.fold.revision >= begin.log_end:
            self._hands.do(core.reached_end(now))

    async def _follow_log(self, begin: Begin) -> None:
        core, hands = self._parts()
        batches = self._log.follow_batches(core.fold.revision, begin.start.log_id)
        async for records in batches:
            now = self._clock.monotonic()
            hands.do(core.records(records, now))
            self.metrics.records_folded.inc(len(records))
            if not core.caught_up and core.fold.revision >= begin.log_end:
                hands.do(core.reached_end(now))
            if not core.caught_up:
                await asyncio.sleep(0)

    async def _follow_view(self, begin: Begin) -> None:
        core, hands = self._parts()
        async for entries in self._feed.follow(begin.view_after):
            if entries:
                hands.do(core.view_seen(entries, self._clock.monotonic()))

    def _parts(self) -> tuple[Core, Hands]:
        if self._core is None or self._hands is None:
            raise AssertionError
        return self._core, self._hands

    # ---- time ------------------------------------------------------------------
    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            if self._core is not None and self._hands is not None:
                self._tick_once(self._core, self._hands)

    def _tick_once(self, core: Core, hands: Hands) -> None:
        now = self._clock.monotonic()
        if core.leading and not self._lease.holds(now):
            self._stand_down("the lease lapsed")
        hands.do(core.tick(now, self._broker.server_id or ""))

    async def _watch_log(self) -> None:
        while True:
            await asyncio.sleep(WATCH_LOG_S)
            try:
                await self._watch_log_once()
            except ControlPlaneError:
                continue

    async def _watch_log_once(self) -> None:
        self._log_state = state = await self._log.state()
        core, now = self._core, self._clock.monotonic()
        behind = core is not None and core.fold.revision < state.last_revision
        if not behind:
            self._behind_since = None
        elif self._behind_since is None:
            self._behind_since = now

    # ---- the lease -------------------------------------------------------------
    async def _keep_lease(self) -> None:
        while True:
            try:
                await self._lease_once()
            except ControlPlaneError as error:
                _log.debug("lease not settled", reason=str(error))
            await asyncio.sleep(self._settings.lease_s / 4)

    async def _lease_once(self) -> None:
        core, now = self._core, self._clock.monotonic()
        if self._lease.holds(now):
            if not await self._lease.renew(now):
                self._stand_down("another projector holds the lease")
            return
        warm = core is not None and core.caught_up and not core.line.outdated
        if not warm or now < self._no_lease_until or not self._broker.connected:
            return
        if await self._lease.acquire(now):
            _log.info("leading", revision=core.fold.revision if core else 0)
            if self._core is not None and self._hands is not None:
                self._hands.do(self._core.won())

    def _stand_down(self, reason: str) -> None:
        if self._core is not None and self._core.leading:
            self._core.lost()
            _log.warning("no longer leading", reason=reason)

    async def _resign(self, reason: str) -> None:
        self._stand_down(reason)
        self._no_lease_until = self._clock.monotonic() + 2 * self._settings.lease_s
        await self._lease.release()

    def _beat(self, namespace: Namespace, worker_id: WorkerId, beat: Beat) -> None:
        if self._core is not None and self._hands is not None:
            now = self._clock.monotonic()
            effects = self._core.beat(namespace, worker_id, beat, now)
            if effects:
                self._hands.do(effects)

    # ---- pages -----------------------------------------------------------------
    def routes(self) -> dict[str, Handler]:
        """The pages to serve: metrics, health, the view."""
        metrics = metrics_route(self.registry, self._sample)
        return pages.routes(metrics, lambda: self.fleet, lambda: self.health)

    @property
    def fleet(self) -> Fleet:
        """The fleet as folded here, published or not."""
        core = self._core
        if core is None:
            return Fleet(cell=self._feed.names.cell)
        return Fleet(
            core.fold.fleet_state,
            revision=core.fold.revision,
            cell=self._feed.names.cell,
            log_id=core.line.log_id,
            epoch=None if core.line.epoch is None else str(core.line.epoch),
            anomalies=core.fold.anomalies.counts,
        )

    @property
    def leading(self) -> bool:
        """Whether it publishes and expires now."""
        return self._core is not None and self._core.leading

    @property
    def health(self) -> pages.Health:
        """How it is."""
        return pages.judge_health(self._signs())

    def _signs(self) -> pages.Signs:
        core, now = self._core, self._clock.monotonic()
        state = self._log_state
        counts, _, _ = pages.group_workers(self.fleet.state)
        pending = None if core is None else core.line.pending
        behind = self._behind_since
        anomalies = self.fleet.anomalies
        return pages.Signs(
            leading=self.leading,
            revision=0 if core is None else core.fold.revision,
            log_last_revision=0 if state is None else state.last_revision,
            behind_s=0.0 if behind is None else now - behind,
            unpublished_s=now - pending[0].since if pending else 0.0,
            epoch=self.fleet.epoch,
            ordinal=0 if core is None else core.line.published,
            caught_up=core is not None and core.caught_up,
            connected=self._broker.connected,
            log_fill=0.0 if state is None else state.fill,
            workers=sum(counts.values()),
            unreadable=anomalies.unknown + anomalies.undecodable,
            quarantined=sum(
                n for group, n in counts.items() if group.state == "checksum_mismatch"
            ),
            held=0 if core is None else core.care.held,
            guard_engaged=core is not None and core.care.guard_engaged,
            trouble=self._trouble,
        )

    def _sample(self) -> None:
        """Bring the gauges up to date; called before each scrape."""
        metrics, signs, core = self.metrics, self._signs(), self._core
        metrics.revision.set(signs.revision)
        metrics.ordinal.set(signs.ordinal)
        metrics.leader.set(signs.leading)
        metrics.log_last_revision.set(signs.log_last_revision)
        metrics.log_fill_ratio.set(signs.log_fill)
        metrics.oldest_unpublished_s.set(signs.unpublished_s)
        metrics.expiries_held.set(signs.held)
        metrics.guard_engaged.set(signs.guard_engaged)
        metrics.beats_received.inc(self._ear.take_heard())
        metrics.beats_lost.inc(self._ear.take_lost())
        metrics.blind_s.inc(self._book.blind_s - self._blind_shown)
        self._blind_shown = self._book.blind_s
        if core is not None:
            metrics.lives.set(len(core.fold.lives))
            metrics.epoch.set(0 if core.line.epoch is None else core.line.epoch.count)
        counts, sets, ready = pages.group_workers(self.fleet.state)
        metrics.show_workers(counts)
        metrics.worker_sets.set(sets)
        metrics.worker_sets_ready.set(ready)
        metrics.show_anomalies(msgspec.structs.asdict(self.fleet.anomalies))

    async def _close(self) -> None:
        """Leave a snapshot and the lease behind for the next leader."""
        core = self._last_core
        if core is None or not self._lease.holds(self._clock.monotonic()):
            return
        try:
            async with asyncio.timeout(STOP_S_MAX):
                snapshot = core.final_snapshot()
                if snapshot is not None:
                    await self._feed.write_snapshot(snapshot, self._clock.now())
                await self._lease.release()
        except (ControlPlaneError, TimeoutError) as error:
            _log.warning("stopped without a last snapshot", reason=str(error))
