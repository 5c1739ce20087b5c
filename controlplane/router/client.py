"""`RouterView`: the fleet in a router's memory, followed, picked from, checkpointed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Final, Self
from weakref import WeakKeyDictionary

from controlplane.broker import Broker, Subscription
from controlplane.clock import Clock
from controlplane.eventlog import EventLog
from controlplane.logs import get_logger
from controlplane.presence import Presence
from controlplane.runtime import Lifetime
from controlplane.settings import Settings
from controlplane.telemetry import PickTally, RouterMetrics
from controlplane.viewfeed import ViewFeed, decode_head, live_entry
from controlplane.waking import Nap
from events import ControlPlaneError, Namespace, Revision
from projections import (
    Change,
    DivergenceError,
    Fleet,
    SequenceGapError,
)

from .catching import NotYetError, catch_up
from .changes import ChangeReader
from .checking import check_seconds
from .choosing import Choosing
from .core import CatchUp, Core, Diverged, Effect, Moved, Source
from .counting import Counting
from .keeping import Keeper
from .loads import Loads
from .movement import Movement, in_time
from .picker import Picker
from .replica import Replica
from .showing import Showing
from .syncing import Syncing
from .telling import Teller

_log = get_logger("router")
AGAIN_AFTER_S: Final = 0.05
AGAIN_AFTER_S_MAX: Final = 0.5
SHOW_EVERY_S: Final = 1.0
"""How old the gauges of a router may be."""
SLICE_S: Final = 0.02
"""So long may a backlog of live messages keep the event loop from others."""
LIVE_MAX: Final = 8192
LOADS_MAX: Final = 32_768
"""So many load reports wait; then the oldest go, which are the least worth."""


class RouterView(Lifetime, Choosing):
    """A router's view. Entering never needs the broker; see ``source`` and `synced`."""

    def __init__(  # noqa: PLR0913 - keyword-only, one for each part
        self,
        *,
        broker: Broker,
        log: EventLog,
        feed: ViewFeed,
        settings: Settings,
        clock: Clock,
        name: str,
        visible: Callable[[Namespace], bool] | None = None,
        checkpoint: Path | None = None,
        max_stale_s: float | None = None,
        metrics: RouterMetrics | None = None,
        announce: bool = True,
    ) -> None:
        """Follow the view as router ``name``; show the ``visible`` namespaces.

        Without ``announce`` no other knows of it: nobody waits for a passer-by.
        Raises `SettingsError` for a ``checkpoint`` that can be no file, and a
        ``max_stale_s`` that nothing can keep.
        """
        super().__init__()
        if max_stale_s is not None:
            max_stale_s = check_seconds("max_stale_s", max_stale_s, above=True)
        self.name = name
        self.tally = PickTally() if metrics is None else metrics.tally
        self._counting = Counting(metrics)
        self._broker, self._feed = broker, feed
        self._settings, self._clock = settings, clock
        cell = feed.names.cell
        self._keeper: Keeper | None = None
        if checkpoint is not None:
            told = self._counting.saved
            self._keeper = Keeper(checkpoint, cell, clock, self._confirmed, told)
        self._max_stale_s = max_stale_s
        self._core = self._new_core()
        self._showing = Showing(cell, visible)
        # For its order: who began to read first is told first.
        self._readers: WeakKeyDictionary[ChangeReader, None] = WeakKeyDictionary()
        self._movement = Movement(broker.url)
        self._syncing = Syncing(log, self._movement, lambda: self._core)
        self._wanted: asyncio.Queue[CatchUp] = asyncio.Queue(maxsize=1)
        self._loads = Loads(
            clock,
            self.tally,
            fresh_s=settings.load_fresh_s,
            forget_s=settings.load_forget_s,
        )
        self._picker = Picker(clock, self.tally, self._loads)
        self._teller = Teller(
            broker,
            feed.names,
            clock,
            lambda: self.presence,
            lambda: self._picker.ejections,
            silent=not announce,
        )
        self._trouble = ""
        self._nap = Nap(clock)

    def _new_core(self) -> Core:
        now = self._clock.monotonic()
        return Core(behind_max_s=self._settings.behind_max_s, now=now)

    # ---- where it stands -------------------------------------------------------
    @property
    def fleet(self) -> Fleet:
        """The fleet as it is known here, through the namespace filter. Immutable."""
        return self._showing.fleet(self._core.replica)

    @property
    def revision(self) -> Revision:
        """How far the log is reflected; 0 before the first sync."""
        return self._core.revision

    @property
    def epoch(self) -> str | None:
        """The numbering it follows; positions compare within one only."""
        replica = self._core.replica
        return None if replica is None else str(replica.position.epoch)

    @property
    def digest(self) -> str:
        """The digest of the whole cell's fleet, whatever the filter."""
        replica = self._core.replica
        return self._showing.empty.digest if replica is None else replica.digest

    @property
    def stale_for_s(self) -> float:
        """Seconds since it was last known to have all there is."""
        return self._core.stale_for_s(self._clock.monotonic())

    @property
    def source(self) -> Source:
        """``none``, ``checkpoint`` (served, not confirmed yet) or ``live``."""
        return self._core.source

    async def synced(self, timeout_s: float | None = None) -> None:
        """Wait until the view includes all that was acknowledged before this call.

        What the log lost since does not count: see `Syncing`.
        Raises TimeoutError; `SettingsError` if the broker refuses to say what that is;
        `LogUnavailableError` when the view does not run.
        """
        async with in_time(timeout_s, self._whereabouts):
            await self._syncing.synced()

    async def wait_for(self, revision: Revision, timeout_s: float | None = 5.0) -> None:
        """Wait until the view includes ``revision``, whoever's.

        Raises TimeoutError; `LogUnavailableError` when the view does not run.
        """
        async with in_time(timeout_s, self._whereabouts):
            await self._movement.until(lambda: self._core.revision >= revision)

    def _whereabouts(self) -> str:
        away = "" if self._broker.connected else f"; no broker at {self._broker.url}"
        return f"the view is at revision {self.revision} ({self.source}){away}"

    # ---- changes ---------------------------------------------------------------
    def changes(self, *, initial: bool = True) -> AsyncIterator[Change]:
        """What changes for workers from now on, coalesced per worker, for ever.

        ``initial``: begin with an ``added`` for each worker that is there. It ends
        when the view is stopped, at once if it does not run.
        """
        fleet = self.fleet
        seen = self._showing.empty if initial else fleet
        reader = ChangeReader(seen, fleet, lambda: self._movement.ended)
        self._readers[reader] = None
        return reader.read()

    # ---- running ---------------------------------------------------------------
    async def start(self) -> Self:
        """Begin; returns when the view may be used, with or without a broker."""
        await super().start()
        if self._runner is not None:
            self._runner.add_done_callback(self._end)
        return self

    async def _run(self, tasks: asyncio.TaskGroup) -> None:
        self._movement.begin()
        self._core, self._wanted = self._new_core(), asyncio.Queue(maxsize=1)
        live = await self._feed.subscribe_live(limit=LIVE_MAX)
        heads = await self._feed.subscribe_heads()
        stop_listening = self._broker.on_connection(self._connection_changed)
        try:
            self._serve_checkpoint()
            tasks.create_task(self._follow_live(live))
            tasks.create_task(self._follow_heads(heads))
            tasks.create_task(self._follow_loads())
            tasks.create_task(self._catch_up_when_wanted())
            tasks.create_task(self._tick())
            if self._counting.is_on:
                tasks.create_task(self._keep_showing())
            present_s = self._settings.presence_ttl_s / 3
            self._teller.start(tasks, present_s, lambda: self._movement.next)
            if self._keeper is not None:
                every_s = self._settings.checkpoint_every_s
                tasks.create_task(self._keeper.keep(every_s))
            self._ready.set()
            await asyncio.Event().wait()
        finally:
            stop_listening()
            await live.close()
            await heads.close()

    def _serve_checkpoint(self) -> None:
        checkpoint = None if self._keeper is None else self._keeper.load()
        self._do(self._core.begin(checkpoint, self._clock.monotonic()))

    def _confirmed(self) -> tuple[Replica, float] | None:
        """What a checkpoint may say: only what the view stream has confirmed."""
        replica = self._core.replica
        if replica is None or self.source != "live":
            return None
        return replica, self.stale_for_s

    def _do(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case CatchUp():
                    self._wanted.put_nowait(effect)
                case Moved():
                    self._tell(effect)
                case Diverged(error):
                    _log.error("divergence", reason=str(error))
                    self._counting.diverged()
                    self._teller.report("divergence")  # the evidence
        self._nap.not_after(self._core.next_tick_at())

    def _tell(self, moved: Moved) -> None:
        self._counting.moved(moved)
        if moved.caught_up is not None:
            reason = moved.caught_up
            say = _log.warning if reason == "history" else _log.info
            say("view caught up", reason=reason, revision=self._core.revision)
            self._teller.report(f"resync: {reason}")
        if moved.changes is None or moved.changes:
            for reader in self._readers:
                reader.moved(moved.changes, self.fleet)
        self._movement.wake()

    def _end(self, runner: asyncio.Task[None]) -> None:
        """It runs no more: say why, if nobody stopped it, and let nobody wait on."""
        del runner
        if self.failure is not None:
            _log.error("view ended", reason=repr(self.failure))
        self._movement.end(self.failure)
        for reader in self._readers:
            reader.wake()

    def _connection_changed(self, connected: bool) -> None:  # noqa: FBT001
        if connected:
            self._do(self._core.reconnected())
        else:
            self._core.disconnected()
            _log.warning("contact lost", revision=self._core.revision)
            self._teller.report("contact lost")

    async def _follow_live(self, live: Subscription) -> None:
        lost, pause_at = 0, self._clock.monotonic() + SLICE_S
        async for message in live:
            if live.lost != lost:
                lost = live.lost
                self._do(self._core.dropped())
            entry = live_entry(message)
            if entry is not None:
                self._do(self._core.live(entry))
            if self._clock.monotonic() >= pause_at:
                await asyncio.sleep(0)
                pause_at = self._clock.monotonic() + SLICE_S

    async def _follow_heads(self, heads: Subscription) -> None:
        async for message in heads:
            head = decode_head(message.payload)
            if head is not None:
                self._do(self._core.head(head, self._clock.monotonic()))

    async def _follow_loads(self) -> None:
        """Hear of loads, if that is allowed: picks are made without them too."""
        names, pause_at = self._feed.names, self._clock.monotonic() + SLICE_S
        try:
            loads = await self._broker.subscribe(names.all_loads, limit=LOADS_MAX)
        except ControlPlaneError as error:
            _log.warning("loads not heard", reason=str(error))
            return
        try:
            async for message in loads:
                subject = names.relative(message.subject)
                self._loads.hear(subject, message.payload, self.fleet)
                if self._clock.monotonic() >= pause_at:
                    await asyncio.sleep(0)
                    pause_at = self._clock.monotonic() + SLICE_S
        finally:
            await loads.close()

    async def _catch_up_when_wanted(self) -> None:
        while True:
            request = await self._wanted.get()
            await self._catch_up(request)

    async def _catch_up(self, request: CatchUp) -> None:
        anew, pause_s = request.anew, AGAIN_AFTER_S
        while True:
            self._core.looking()
            try:
                found = await catch_up(self._core, self._feed, anew=anew)
            except (SequenceGapError, DivergenceError) as error:
                anew = True
                self._note_trouble(error)
            except NotYetError as error:
                _log.debug("waiting for a view", reason=str(error))
            except ControlPlaneError as error:
                self._note_trouble(error)
            else:
                self._trouble = ""
                now = self._clock.monotonic()
                self._do(self._core.caught_up(found, request.reason, now))
                return
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, AGAIN_AFTER_S_MAX)

    def _note_trouble(self, error: ControlPlaneError) -> None:
        """Log it once: it is tried again until it works."""
        if str(error) != self._trouble:
            self._trouble = str(error)
            _log.warning("not caught up yet", reason=self._trouble)

    async def _tick(self) -> None:
        while True:
            await self._nap.until(self._core.next_tick_at())
            self._do(self._core.tick(self._clock.monotonic()))

    async def _keep_showing(self) -> None:
        while True:
            self._loads.forget()
            self._counting.show(self._core, self.stale_for_s)
            await asyncio.sleep(SHOW_EVERY_S)

    @property
    def presence(self) -> Presence:
        """What this router says of itself."""
        replica = self._core.replica
        return Presence(
            name=self.name,
            epoch=self.epoch,
            revision=self.revision,
            digest=self.digest,
            source=self.source,
            stale_for_s=round(self.stale_for_s, 3),
            fingerprint="" if replica is None else replica.fingerprint,
            fingerprint_at=0 if replica is None else replica.fingerprint_at,
        )

    async def _close(self) -> None:
        self._counting.show(self._core, self.stale_for_s)
        if self._keeper is not None:
            await self._keeper.save()
        await self._teller.goodbye()
