"""Machines with one process each: projectors and routers of the product, whole.

A host outlives its processes: its wall clock, its network, its files and its software
version stay when a process dies and the next one starts.
"""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from controlplane.eventlog import Appended, EventLog, Pending
from controlplane.projector.service import ProjectorService
from controlplane.router.client import RouterView
from controlplane.viewfeed import ViewFeed
from events import ControlPlaneError
from projections import Change

from .broker import SimBroker, Weather
from .loop import Process, SimLoop, State
from .outcome import Violation
from .server import EPOCH

if TYPE_CHECKING:
    from .world import World

CELL = "sim"
START_AGAIN_S = 1.0
QUIET_S = 5.0


def _where(error: BaseException) -> str:
    """The place in the code where an error arose."""
    frames = traceback.extract_tb(error.__traceback__)
    return f"{Path(frames[-1].filename).name}:{frames[-1].lineno}"


class HostClock:
    """The clocks of a host: one that never steps back, and one that may be wrong."""

    def __init__(self, loop: SimLoop) -> None:
        self._loop = loop
        self.offset_s = 0.0
        self.monotonic = loop.time

    def now(self) -> datetime:
        return EPOCH + timedelta(seconds=self._loop.time() + self.offset_s)


class WatchedLog(EventLog):
    """The product's log, which tells the world what it acknowledged to whom."""

    def __init__(self, host: Host, broker: SimBroker) -> None:
        super().__init__(broker, CELL, host.world.settings)
        self._host = host

    async def append_all(self, pending: Sequence[Pending]) -> Appended:
        world, promises = self._host.world, self._host.world.watch.promises
        world.appending(pending)
        promises.began(pending)
        try:
            done = await super().append_all(pending)
        except ControlPlaneError as error:
            with world.checking():
                promises.refused(self._host.name, pending, error)
            raise
        world.acknowledged(self._host, pending, done)
        return done

    async def _append_once(self, pending: Sequence[Pending]) -> Appended:
        self._host.world.watch.promises.asked(pending)
        return await super()._append_once(pending)


class Host:
    """A machine that runs one process at a time."""

    kind_of_broker: type[SimBroker] = SimBroker

    def __init__(self, world: World, name: str) -> None:
        self.world, self.name = world, name
        self.loop = world.loop
        self.clock = HostClock(world.loop)
        self.weather = Weather()
        self.version: object = None
        self.black = self.cut = False
        self.process: Process | None = None
        self.brokers: list[SimBroker] = []
        self.starts = 0
        self.wanted = False
        """Whether a process should run here."""
        self.frozen_until = 0.0
        self.trouble_at = self.started_at = 0.0
        """When its network was last not as it should be."""

    # ---- processes -------------------------------------------------------------
    @property
    def alive(self) -> bool:
        return self.process is not None and self.process.state is not State.DEAD

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.state is State.RUNNING

    @property
    def is_old(self) -> bool:
        """Whether the process that runs here is of the old version."""
        return self.process is not None and self.process.version is not None

    def start(self) -> None:
        """Start the next process, unless one lives."""
        if self.alive or not self.wanted:
            return
        self.starts += 1
        self.started_at = self.loop.time()
        process = self.process = Process(self.name, self.loop)
        process.version = self.version
        process.at_death = self._died
        process.look = self.look
        self.brokers = []
        process.context.run(self.build)
        process.spawn(self._guarded())

    def build(self) -> None:
        """Make the objects of the process, in its context."""

    async def main(self) -> None:
        """What the process does."""
        raise NotImplementedError

    async def _guarded(self) -> None:
        try:
            await self.main()
        except Exception as error:  # noqa: BLE001 - whatever it is, it is a finding
            what = f"{self.name}: {error!r} at {_where(error)}"
            self.world.break_(Violation("crash", what))

    def look(self) -> None:
        """Look at the process after each of its callbacks."""

    def _died(self) -> None:
        for broker in self.brokers:
            broker.die()
        self.say("killed")
        self.gone()

    def gone(self) -> None:
        """The process is no more."""

    def ended(self) -> None:
        """The process ended by itself: nothing of it runs on."""
        if self.process is not None:
            self.process.at_death = None
            self.process.kill()
            for broker in self.brokers:
                broker.die()

    def broker(self, label: str, *, mailbox_limit: int | None = None) -> SimBroker:
        """A connection of the process."""
        name = f"{self.name} {label}"
        broker = self.kind_of_broker(
            self.world.server,
            Random(f"{self.world.plan.seed}/{name}/{self.starts}"),
            name=name,
            weather=self.weather,
            connect_timeout_s=self.world.settings.connect_timeout_s,
            mailbox_limit=mailbox_limit,
        )
        broker.black, broker.cut = self.black, self.cut
        self.brokers.append(broker)
        return broker

    def log(self, broker: SimBroker) -> WatchedLog:
        return WatchedLog(self, broker)

    def feed(self, broker: SimBroker) -> ViewFeed:
        chunk_bytes = self.world.plan.pace.chunk_bytes
        return ViewFeed(broker, CELL, chunk_bytes=chunk_bytes)

    @property
    def quiet_for_s(self) -> float:
        """How long nothing has been wrong with its process or its network."""
        since = max(self.trouble_at, self.started_at, self.frozen_until)
        if not self.running or self.black or self.cut:
            return 0.0
        return self.loop.time() - since

    def troubled(self) -> None:
        """Its network is not as it should be, or just became so again."""
        self.trouble_at = self.loop.time()

    def say(self, what: str) -> None:
        """A line of the trace."""
        self.world.trace.line(self.name, what)


class ProjectorHost(Host):
    """A machine with a projector."""

    def __init__(self, world: World, name: str) -> None:
        super().__init__(world, name)
        self.service: ProjectorService | None = None
        self._seen_fold: object = None
        self._led = False

    def build(self) -> None:
        self.service = None
        self._seen_fold, self._led = None, False

    async def main(self) -> None:
        broker = self.broker("projector")
        await broker.start()
        while True:
            service = ProjectorService(
                broker=broker,
                log=self.log(broker),
                feed=self.feed(broker),
                settings=self.world.settings,
                clock=self.clock,
                name=self.name,
            )
            self.service = service
            try:
                await service.start()
                self.say("started")
                await service.join()
            except ControlPlaneError as error:
                self.say(f"ended: {error}")
            await service.stop()
            await asyncio.sleep(START_AGAIN_S)

    @property
    def judges_well(self) -> bool:
        """Whether it leads, and nothing has kept it from hearing lately."""
        service = self.service
        leads = service is not None and service.leading
        return leads and self.quiet_for_s > QUIET_S and not self.weather.late_s

    async def stop(self) -> None:
        """A clean stop: SIGTERM."""
        if self.service is not None:
            await self.service.stop()
        self.say("stopped")
        self.ended()

    def look(self) -> None:
        service = self.service
        if service is None:
            return
        core = service._core
        if core is None:
            return
        if core.leading is not self._led:
            self._led = core.leading
            self.say("leads" if core.leading else "leads no more")
        if core.fold is not self._seen_fold:
            self._seen_fold = core.fold
            self.world.folded(self, core)


class Order:
    """A reader of changes is told removals first, then changes, then additions."""

    KINDS = ("removed", "changed", "added")

    def __init__(self, who: str) -> None:
        self._who, self._last = who, (0.0, 0, "removed")

    def look(self, change: Change, now: float) -> None:
        """The next change of the same moment must not come too late."""
        at, revision, kind = self._last
        self._last = now, change.revision, change.kind
        same = (at, revision) == (now, change.revision)
        if same and self.KINDS.index(change.kind) < self.KINDS.index(kind):
            what = f"{self._who} is told {change.kind} after {kind} at {revision}"
            raise Violation("order", what)


class RouterHost(Host):
    """A machine with a router."""

    def __init__(
        self,
        world: World,
        name: str,
        *,
        checkpoint: Path | None = None,
        mailbox_limit: int | None = None,
    ) -> None:
        super().__init__(world, name)
        self.view: RouterView | None = None
        self._checkpoint, self._limit = checkpoint, mailbox_limit
        self._seen: object = None
        self.order = Order(name)
        self.mirror: dict[tuple[str, str], object] = {}
        """The workers as the changes say, beginning with nothing."""

    def build(self) -> None:
        self.view, self._seen = None, None
        self.world.router_began(self)

    async def main(self) -> None:
        broker = self.broker("router", mailbox_limit=self._limit)
        await broker.start()
        self.view = RouterView(
            broker=broker,
            log=self.log(broker),
            feed=self.feed(broker),
            settings=self.world.settings,
            clock=self.clock,
            name=self.name,
            checkpoint=self._checkpoint,
        )
        await self.view.start()
        self.mirror = {}
        async for change in self.view.changes():
            with self.world.checking():
                self.order.look(change, self.loop.time())
            worker = change.worker or change.before
            assert worker is not None
            key = (worker.namespace, worker.worker_id)
            if change.worker is None:
                del self.mirror[key]
            else:
                self.mirror[key] = change.worker
        if self.view.failure is not None:
            raise self.view.failure

    async def stop(self) -> None:
        """A clean stop: SIGTERM."""
        if self.view is not None:
            await self.view.stop()
        self.say("stopped")
        self.ended()

    def look(self) -> None:
        view = self.view
        if view is None:
            return
        replica = view._core.replica
        if replica is not self._seen and replica is not None:
            self._seen = replica
            self.world.moved(self, replica)
