"""The projector as a process: terms, lease, beats, time and pages.

A term is the time of one core: from recovery until something makes its state of mind
doubtful (history lost, the view stream broken); then the next term begins. Leases and
beats are kept across terms.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterable
from typing import Final

from prometheus_client import CollectorRegistry

from controlplane.beats import Beat
from controlplane.broker import Broker
from controlplane.clock import Clock
from controlplane.errors import (
    HistoryForkedError,
    HistoryTruncatedError,
    LogUnavailableError,
)
from controlplane.eventlog import EventLog
from controlplane.http import Handler
from controlplane.logs import get_logger
from controlplane.runtime import Lifetime, first_of
from controlplane.settings import Settings
from controlplane.telemetry import ProjectorMetrics
from controlplane.viewfeed import ViewFeed
from controlplane.waking import Nap
from events import ControlPlaneError, Namespace, WorkerId
from projections import Fleet, Guard, LeaseBook

from . import pages
from .appearance import Appearance
from .core import Core, limits_of
from .ear import Ear
from .effects import Effect
from .finding import find
from .hands import Hands, RebuildError, Tools
from .leadership import Leadership
from .memory import Memory, announce
from .recovery import Begin, decide_start
from .watching import Watching

_log = get_logger("projector")
POLL_S: Final = 0.05
FOLD_AT_ONCE: Final = 500
"""Records folded before others get a turn: about ten milliseconds."""
LEASE_PARTS: Final = 4
"""A holder renews so often within a lease; others ask for it twice as often."""
COLD_S_MAX: Final = 5.0
"""So long may a holder have nothing to lead with before it gives the lease back."""
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
        self._memory = Memory(self.metrics)
        self._cold_since: float | None = None
        self._warmed = False
        self._no_lease_until = 0.0
        self._nap, self._rest = Nap(clock), Nap(clock)
        self._ear = Ear(
            broker, feed.names, self._book, clock, name=name, listener=self._beat
        )
        self._appearance = Appearance(
            broker=broker,
            log=log,
            book=self._book,
            ear=self._ear,
            clock=clock,
            metrics=self.metrics,
            core=lambda: self._core,
        )
        self._watching = Watching(
            log=log,
            feed=feed,
            appearance=self._appearance,
            clock=clock,
            every_s=settings.head_every_s,
            core=lambda: self._core,
            do=self._do_for,
        )

    # ---- terms -----------------------------------------------------------------
    async def _run(self, tasks: asyncio.TaskGroup) -> None:
        await self._broker.wait_connected(self._settings.connect_timeout_s)
        await self._watching.look()
        await self._feed.state()
        await self._ear.open(tasks, self._settings.canary_every_s)
        tasks.create_task(self._keep_lease())
        tasks.create_task(self._tick())
        tasks.create_task(self._watching.run())
        self._ready.set()
        stop_listening = self._broker.on_connection(self._contact)
        try:
            while True:
                await self._term()
        finally:
            stop_listening()

    def _contact(self, connected: bool) -> None:  # noqa: FBT001 - a listener's shape
        if not connected:
            return
        self._book.sighted(self._clock.monotonic())
        if self._core is not None and self._hands is not None:
            self._hands.do(self._core.contact_lost())

    async def _term(self) -> None:
        """One core's time. Returns when the next should begin."""
        pause_s = TERM_AGAIN_S
        try:
            known = self._memory.remembered
            begin = decide_start(await find(self._log, self._feed, known))
            self._memory.compare(begin)
            announce(begin)
            async with asyncio.TaskGroup() as tasks:
                self._begin(begin, tasks)
                tasks.create_task(self._follow_log(begin))
                tasks.create_task(self._follow_view(begin))
                tasks.create_task(self._parts()[1].until_rebuild())
        except* RebuildError as group:
            _log.warning("projection begins anew", reason=str(first_of(group)))
        except* HistoryForkedError as group:
            self._memory.say_lost(str(first_of(group)))
        except* HistoryTruncatedError as group:
            pause_s = TRUNCATED_AGAIN_S
            self._appearance.trouble = str(first_of(group))
            _log.error("history truncated", reason=self._appearance.trouble)
        except* LogUnavailableError as group:
            reason = str(first_of(group))
            if self._appearance.trouble != reason:
                _log.warning("broker not available", reason=reason)
            self._appearance.trouble = reason
        finally:
            self._memory.keep(self._core)
            self._last_core, self._core, self._hands = self._core, None, None
        await asyncio.sleep(pause_s)

    def _begin(self, begin: Begin, tasks: asyncio.TaskGroup) -> None:
        now = self._clock.monotonic()
        core = Core(
            begin.fold,
            begin.start,
            self._book,
            limits_of(self._settings),
            name=self.name,
            now=now,
            snapshot_at=begin.snapshot_at,
            snapshot_age_s=begin.snapshot_age_s,
        )
        tools = Tools(
            broker=self._broker,
            log=self._log,
            feed=self._feed,
            clock=self._clock,
            metrics=self.metrics,
            name=self.name,
            resign=self._resign,
            log_fill=lambda: self._appearance.log_fill,
            stir=self._stir,
        )
        self._core, self._hands = core, Hands(core, tools, tasks)
        self._appearance.trouble = None
        if self._lease.holds(now):
            self._hands.do(core.won())
        if core.fold.revision >= begin.log_end:
            self._reached_end(core, self._hands)
        self._stir()

    def _reached_end(self, core: Core, hands: Hands) -> None:
        now, last = self._clock.monotonic(), self._last_core
        if last is not None:
            self._book.come_back(last.fold.lives, core.fold.lives, now)
        hands.do(core.reached_end(now))
        self._warmed = True
        self._rest.not_after(-math.inf)

    async def _follow_log(self, begin: Begin) -> None:
        core, hands = self._parts()
        batches = self._log.follow_batches(
            core.fold.revision, begin.start.log_id, core.fold.fingerprint
        )
        async for batch in batches:
            for start in range(0, len(batch), FOLD_AT_ONCE):
                records = batch[start : start + FOLD_AT_ONCE]
                hands.do(core.records(records, self._clock.monotonic()))
                self.metrics.records_folded.inc(len(records))
                if not core.caught_up and core.fold.revision >= begin.log_end:
                    self._reached_end(core, hands)
                if len(batch) > FOLD_AT_ONCE:
                    await asyncio.sleep(0)
            while core.line.ahead:  # noqa: ASYNC110 - a core knows no events
                await asyncio.sleep(POLL_S)

    async def _follow_view(self, begin: Begin) -> None:
        core, hands = self._parts()
        try:
            async for entries in self._feed.follow(begin.view_after):
                if entries:
                    hands.do(core.view_seen(entries, self._clock.monotonic()))
                else:
                    hands.do(core.contact_lost())
                while core.line.behind:  # noqa: ASYNC110 - a core knows no events
                    await asyncio.sleep(POLL_S)
        except HistoryForkedError as error:
            reason = f"the view stream lost its tail: {error.reason}"
            raise RebuildError(reason) from error

    def _parts(self) -> tuple[Core, Hands]:
        if self._core is None or self._hands is None:
            raise AssertionError
        return self._core, self._hands

    # ---- time ------------------------------------------------------------------
    async def _tick(self) -> None:
        while True:
            await self._nap.until(self._tick_due_at())
            if self._core is not None and self._hands is not None:
                self._tick_once(self._core, self._hands)

    def _tick_due_at(self) -> float:
        core = self._core
        if core is None:
            return math.inf
        at = core.next_tick_at()
        return min(at, self._lease.until) if core.leading else at

    def _stir(self) -> None:
        self._nap.not_after(self._tick_due_at())

    def _tick_once(self, core: Core, hands: Hands) -> None:
        now = self._clock.monotonic()
        if core.leading and not self._lease.holds(now):
            self._stand_down("the lease lapsed")
        hands.do(core.tick(now, self._broker.server_id or ""))

    def _do_for(self, core: Core, effects: Iterable[Effect]) -> None:
        """Carry out ``effects``, unless another core has taken over from ``core``."""
        if core is self._core and self._hands is not None:
            self._hands.do(effects)

    # ---- the lease -------------------------------------------------------------
    async def _keep_lease(self) -> None:
        while True:
            try:
                await self._lease_once()
            except ControlPlaneError as error:
                _log.debug("lease not settled", reason=str(error))
            held = self._lease.holds(self._clock.monotonic())
            part = LEASE_PARTS if held else 2 * LEASE_PARTS
            await self._pause_lease(self._settings.lease_s / part)

    async def _pause_lease(self, pause_s: float) -> None:
        """Wait, but not longer than until this projector has something to lead with."""
        if not self._warmed:
            await self._rest.until(self._clock.monotonic() + pause_s)
        self._warmed = False

    async def _lease_once(self) -> None:
        core, now = self._core, self._clock.monotonic()
        warm = core is not None and core.caught_up and not core.line.outdated
        if warm:
            self._cold_since = None
        elif self._cold_since is None:
            self._cold_since = now
        if self._lease.holds(now):
            if self._cold_since is not None and now - self._cold_since > COLD_S_MAX:
                await self._resign("it has had nothing to lead with for too long")
            elif not await self._lease.renew(now):
                self._stand_down("another projector holds the lease")
            else:
                self._lead()  # again, if it lapsed here while it was being renewed
            return
        blind = self._book.canary_silent_s(now) > self._settings.canary_lost_s
        resting = now < self._no_lease_until
        if not warm or blind or resting or not self._broker.connected:
            return
        if await self._lease.acquire(now):
            self._lead()

    def _lead(self) -> None:
        core, hands = self._core, self._hands
        if not self._lease.holds(self._clock.monotonic()):
            return
        if core is not None and hands is not None and not core.leading:
            _log.info("leading", revision=core.fold.revision)
            hands.do(core.won())

    def _stand_down(self, reason: str) -> None:
        if self._core is not None and self._core.leading:
            self._core.lost()
            _log.warning("no longer leading", reason=reason)

    async def _resign(self, reason: str) -> None:
        self._stand_down(reason)
        self._no_lease_until = self._clock.monotonic() + 2 * self._settings.lease_s
        await self._lease.release()

    def _beat(self, namespace: Namespace, worker_id: WorkerId, beat: Beat) -> None:
        now = self._clock.monotonic()
        if self._core is None or self._hands is None or not self._core.caught_up:
            # Whose life this is will be known when the log is folded.
            key = (namespace, worker_id, beat.incarnation)
            self._book.beat(key, now, beat.server_id)
            return
        effects = self._core.beat(namespace, worker_id, beat, now)
        if effects:
            self._hands.do(effects)

    # ---- pages -----------------------------------------------------------------
    def routes(self) -> dict[str, Handler]:
        """The pages to serve: metrics, health, the view."""
        return self._appearance.routes(self.registry)

    @property
    def fleet(self) -> Fleet:
        """The fleet as folded here, published or not."""
        return self._appearance.fleet

    @property
    def leading(self) -> bool:
        """Whether it publishes and expires now."""
        return self._core is not None and self._core.leading

    @property
    def health(self) -> pages.Health:
        """How it is."""
        return self._appearance.health

    async def _close(self) -> None:
        """Leave a snapshot and the lease behind for the next leader."""
        core = self._last_core
        if core is None or not self._lease.holds(self._clock.monotonic()):
            return
        try:
            async with asyncio.timeout(STOP_S_MAX):
                # The lease first: whoever waits for it need not wait for the snapshot.
                await self._lease.release()
                snapshot = core.final_snapshot()
                if snapshot is not None:
                    await self._feed.write_snapshot(snapshot, self._clock.now())
        except (ControlPlaneError, TimeoutError) as error:
            _log.warning("stopped without a last snapshot", reason=str(error))
