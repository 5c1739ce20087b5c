"""`RouterView`: the fleet in a router's memory, followed, picked from, checkpointed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection
from pathlib import Path
from typing import Final

import structlog

from controlplane.broker import Broker, Subscription
from controlplane.clock import Clock
from controlplane.errors import LogUnavailableError
from controlplane.eventlog import EventLog
from controlplane.presence import Presence, say_goodbye, say_presence
from controlplane.runtime import Lifetime
from controlplane.settings import Settings
from controlplane.telemetry import PickTally, RouterMetrics
from controlplane.viewfeed import ViewFeed, decode_head, live_entry
from events import ControlPlaneError, ModelName, Namespace, Revision, Role, check_role
from projections import (
    Change,
    DivergenceError,
    Fleet,
    FleetChange,
    ModelUnavailableError,
    Policy,
    RandomNumbers,
    SequenceGapError,
    SnapshotUnusableError,
    Wanted,
    Worker,
)

from .catching import NotYetError, catch_up
from .changes import ChangeReader
from .checkpoint import read_checkpoint, write_checkpoint
from .core import CatchUp, Core, Diverged, Effect, Moved, Reason, Source
from .picker import Picker, PolicyName
from .replica import Replica

_log = structlog.get_logger()
AGAIN_AFTER_S: Final = 0.1
AGAIN_AFTER_S_MAX: Final = 1.0
TICK_S: Final = 0.1
PRESENCE_PAUSE_S: Final = 0.25
SYNC_PAUSE_S: Final = 0.05
GOODBYE_S_MAX: Final = 1.0


class RouterView(Lifetime):
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
        """
        super().__init__()
        self.name, self._announce = name, announce
        self.tally = PickTally() if metrics is None else metrics.tally
        self._metrics = metrics
        self._broker, self._log, self._feed = broker, log, feed
        self._settings, self._clock = settings, clock
        self._visible, self._checkpoint = visible, checkpoint
        self._max_stale_s = max_stale_s
        now = clock.monotonic()
        self._core = Core(behind_max_s=settings.behind_max_s, now=now)
        self._fleet = Fleet(cell=feed.names.cell, visible=visible)
        self._fleet_of: Replica | None = None
        self._readers: set[ChangeReader] = set()
        self._moved = asyncio.Event()
        self._wanted: asyncio.Queue[CatchUp] = asyncio.Queue(maxsize=1)
        self._saved: Replica | None = None
        self._picker = Picker(clock, self.tally)

    # ---- where it stands -------------------------------------------------------
    @property
    def fleet(self) -> Fleet:
        """The fleet as it is known here, through the namespace filter. Immutable."""
        replica = self._core.replica
        if replica is not None and replica is not self._fleet_of:
            before = self._fleet
            self._fleet = Fleet(
                replica.fleet,
                revision=replica.revision,
                cell=self._feed.names.cell,
                log_id=replica.position.epoch.log_id,
                epoch=str(replica.position.epoch),
                anomalies=replica.anomalies,
                visible=self._visible,
            )
            if before.state is replica.fleet:
                self._fleet.memo = before.memo
            self._fleet_of = replica
        return self._fleet

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
        return self.fleet.digest

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

        Raises TimeoutError.
        """
        async with asyncio.timeout(timeout_s):
            end = await self._log_end()
            await self._until(
                lambda: self.source == "live" and self._core.revision >= end
            )

    async def wait_for(self, revision: Revision, timeout_s: float | None = 5.0) -> None:
        """Wait until the view includes ``revision``, whoever's. Raises TimeoutError."""
        async with asyncio.timeout(timeout_s):
            await self._until(lambda: self._core.revision >= revision)

    async def _log_end(self) -> Revision:
        while True:
            try:
                return (await self._log.state()).last_revision
            except ControlPlaneError:
                await asyncio.sleep(SYNC_PAUSE_S)

    async def _until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            moved = self._moved
            await moved.wait()

    # ---- picking ---------------------------------------------------------------
    def pick(
        self,
        model: ModelName,
        *,
        role: Role | str | None = None,
        capability: str | None = None,
        adapter: ModelName | None = None,
        namespace: Namespace | None = None,
        policy: PolicyName | Policy = "weighted_random",
        key: str | None = None,
        rng: RandomNumbers | None = None,
        exclude: Collection[Worker] = (),
    ) -> Worker:
        """A worker for one request. Never waits; takes microseconds.

        Raises `ModelNotFoundError` for a name never served, `ModelUnavailableError`
        when nobody can take it (``reasons`` counts why), or the view is staler than
        ``max_stale_s``.
        """
        self._check_stale(model)
        wanted = Wanted(
            model=model,
            role=None if role is None else check_role(role),
            capability=capability,
            adapter=adapter,
            namespace=namespace,
        )
        del key
        return self._picker.pick(self.fleet, wanted, policy, rng, exclude)

    def eject(self, worker: Worker, for_s: float = 5.0) -> None:
        """Do not pick ``worker`` for a while: a connection to it failed here."""
        self._picker.eject(worker, for_s)

    def _check_stale(self, model: ModelName) -> None:
        if self._max_stale_s is not None and self.stale_for_s > self._max_stale_s:
            self.tally.fail("stale")
            raise ModelUnavailableError(model=model, reasons={"stale": 1})

    # ---- changes ---------------------------------------------------------------
    async def changes(self, *, initial: bool = True) -> AsyncIterator[Change]:
        """Yield what changes for workers, coalesced per worker, for ever.

        ``initial``: begin with an ``added`` for each worker that is there.
        """
        seen = Fleet(visible=self._visible) if initial else self.fleet
        reader = ChangeReader(seen)
        self._readers.add(reader)
        if initial and self._core.replica is not None:
            reader.everything(self.fleet)
        try:
            async for change in reader.read():
                yield change
        finally:
            self._readers.discard(reader)

    # ---- running ---------------------------------------------------------------
    async def _run(self, tasks: asyncio.TaskGroup) -> None:
        live = await self._feed.subscribe_live()
        heads = await self._feed.subscribe_heads()
        stop_listening = self._broker.on_connection(self._connection_changed)
        try:
            self._begin()
            tasks.create_task(self._follow_live(live))
            tasks.create_task(self._follow_heads(heads))
            tasks.create_task(self._catch_up_when_wanted())
            tasks.create_task(self._tick())
            if self._announce:
                tasks.create_task(self._say_presence())
            if self._checkpoint is not None:
                tasks.create_task(self._save_checkpoints(self._checkpoint))
            self._ready.set()
            await asyncio.Event().wait()
        finally:
            stop_listening()
            await live.close()
            await heads.close()

    def _begin(self) -> None:
        checkpoint, age_s = None, 0.0
        if self._checkpoint is not None and self._checkpoint.exists():
            try:
                checkpoint, saved_at = read_checkpoint(self._checkpoint)
                age_s = max(0.0, (self._clock.now() - saved_at).total_seconds())
            except SnapshotUnusableError as error:
                _log.warning("checkpoint not used", reason=error.reason)
        self._do(self._core.begin(checkpoint, age_s))

    def _do(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case CatchUp():
                    self._wanted.put_nowait(effect)
                case Moved(changes, reason):
                    self._tell(changes, reason)
                case Diverged(error):
                    _log.error("divergence", reason=str(error))
                    if self._metrics is not None:
                        self._metrics.divergences.inc()

    def _tell(self, changes: Collection[FleetChange], reason: Reason | None) -> None:
        if reason is not None:
            _log.info("view resynced", reason=reason, revision=self._core.revision)
            if self._metrics is not None:
                self._metrics.resyncs.labels(reason=reason).inc()
        elif changes and self._metrics is not None:
            self._metrics.deltas_applied.inc()
        if changes:
            for reader in self._readers:
                reader.moved(changes, self.fleet)
        moved, self._moved = self._moved, asyncio.Event()
        moved.set()

    def _connection_changed(self, connected: bool) -> None:  # noqa: FBT001
        if connected:
            self._do(self._core.reconnected())
        else:
            _log.warning("contact lost", revision=self._core.revision)

    async def _follow_live(self, live: Subscription) -> None:
        async for message in live:
            entry = live_entry(message)
            if entry is not None:
                self._do(self._core.live(entry))

    async def _follow_heads(self, heads: Subscription) -> None:
        async for message in heads:
            head = decode_head(message.payload)
            if head is not None:
                self._do(self._core.head(head, self._clock.monotonic()))

    async def _catch_up_when_wanted(self) -> None:
        while True:
            request = await self._wanted.get()
            await self._catch_up(request)

    async def _catch_up(self, request: CatchUp) -> None:
        anew, pause_s = request.anew, AGAIN_AFTER_S
        while True:
            try:
                replica, changes = await catch_up(self._core, self._feed, anew=anew)
                self._do(self._core.caught_up(replica, request.reason, changes))
                last = await self._feed.last_head()
            except (SequenceGapError, DivergenceError) as error:
                _log.warning("view read anew", reason=str(error))
                anew = True
            except (NotYetError, SnapshotUnusableError, LogUnavailableError) as error:
                _log.debug("not caught up yet", reason=str(error))
            else:
                if last is not None:
                    head, age_s = last
                    now = self._clock.monotonic()
                    self._do(self._core.head(head, now, age_s))
                return
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, AGAIN_AFTER_S_MAX)

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            self._do(self._core.tick(self._clock.monotonic()))

    # ---- presence and checkpoints ----------------------------------------------
    async def _say_presence(self) -> None:
        every_s = self._settings.presence_ttl_s / 3
        while True:
            moved = self._moved
            try:
                await say_presence(self._broker, self._feed.names, self.presence)
            except ControlPlaneError as error:
                _log.debug("presence not stored", reason=str(error))
            await asyncio.sleep(PRESENCE_PAUSE_S)
            try:
                async with asyncio.timeout(every_s - PRESENCE_PAUSE_S):
                    await moved.wait()
            except TimeoutError:
                continue

    @property
    def presence(self) -> Presence:
        """What this router says of itself."""
        return Presence(
            name=self.name,
            epoch=self.epoch,
            revision=self.revision,
            digest=self.digest,
            source=self.source,
            stale_for_s=round(self.stale_for_s, 3),
        )

    async def _save_checkpoints(self, path: Path) -> None:
        while True:
            await asyncio.sleep(self._settings.checkpoint_every_s)
            await self._save_checkpoint(path)

    async def _save_checkpoint(self, path: Path) -> None:
        replica = self._core.replica
        if replica is None or replica is self._saved:
            return
        try:
            now = self._clock.now()
            await asyncio.to_thread(write_checkpoint, path, replica, now)
        except OSError as error:
            _log.warning("checkpoint not written", path=str(path), reason=str(error))
            return
        self._saved = replica
        if self._metrics is not None:
            self._metrics.checkpoints_written.inc()

    async def _close(self) -> None:
        if self._checkpoint is not None and self.source == "live":
            await self._save_checkpoint(self._checkpoint)
        if not self._announce:
            return
        try:
            async with asyncio.timeout(GOODBYE_S_MAX):
                await say_goodbye(self._broker, self._feed.names, self.name)
        except (ControlPlaneError, TimeoutError):
            return
