"""Machines with a worker each, perhaps with ports, and with the operator."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable
from random import Random
from typing import TYPE_CHECKING, Any

from controlplane.beats import Beat
from controlplane.broker import Broker
from controlplane.identifiers import new_uuid7
from controlplane.ports.claimer import Claimer
from controlplane.ports.machine import Machine
from controlplane.worker import WorkerHandle, WorkerSpec
from controlplane.worker.beat import Beater, BeatSchedule, Kept
from events import (
    ControlPlaneError,
    LoadThresholdsSet,
    ModelCard,
    ModelForgotten,
    Status,
    TrafficWeightSet,
    WorkerHeld,
    WorkerResumed,
)
from events.identity import LABEL_BYTES_MAX
from projections import PortBlock, PortRange, Want

from .hosts import Host
from .plan import Enter, Operate, Say

if TYPE_CHECKING:
    from .world import World

START_AGAIN_S = 2.0
START_AGAIN_S_MAX = 120.0
PORTS_OF_WORKERS = PortRange(20000, 20063)
"""Few, so that workers compete for them, also with claimants; none need go without."""


class LoopBeats:
    """What `BeatThread` does, without the thread: the beater runs in the one loop."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._schedule = BeatSchedule()
        self._beater = Beater(self._schedule, None)
        self._running = False

    def keep(self, key: Hashable, subject: str, beat: Beat, ttl_s: float) -> None:
        every_s = ttl_s / self._host.world.settings.beats_per_ttl
        self._schedule.keep(key, Kept(subject, beat, every_s))
        if not self._running and self._host.process is not None:
            self._running = True
            self._host.process.spawn(self._beat())
        self._beater.wake()

    def change(self, key: Hashable, beat: Beat) -> None:
        if self._schedule.change(key, beat):
            self._beater.wake()

    def drop(self, key: Hashable) -> None:
        self._schedule.drop(key)

    async def _beat(self) -> None:
        broker = self._host.broker("beats")
        await broker.start()
        await self._beater.run(broker)


def claimer_of(host: Host, broker: Broker) -> Claimer:
    """Who claims ports for the process that runs on ``host`` now."""
    return Claimer(
        log=host.log(broker),
        broker=broker,
        clock=host.clock,
        settings=host.world.settings,
        by=host.name,
        chance=Random(f"{host.world.plan.seed}/{host.name}/{host.starts}/ports"),
        machine=Machine(is_here=lambda _: False),
    )


def claims_of(handle: WorkerHandle | None) -> tuple[str, tuple[PortBlock, ...]] | None:
    """The life that a worker is in, and the ports that it believes to hold."""
    if handle is None or not handle._beating:
        return None
    return handle.incarnation, tuple(handle.ports.values())


class WorkerHost(Host):
    """A machine with a worker of the product, started again when it is lost."""

    def __init__(self, world: World, name: str) -> None:
        super().__init__(world, name)
        self.entry: Enter | None = None
        self.handle: WorkerHandle | None = None
        self.left = False

    def enter(self, entry: Enter) -> None:
        """Run this worker from now on, unless one runs here already."""
        if self.alive:
            return
        self.entry, self.left, self.wanted = entry, False, True
        self.start()

    def build(self) -> None:
        self.handle = None

    def beats_for(self, incarnation: str) -> bool:
        """Whether a life that runs here now beats."""
        handle = self.handle
        return (
            self.running
            and handle is not None
            and handle._beating
            and handle.incarnation == incarnation
        )

    @property
    def claims(self) -> tuple[str, tuple[PortBlock, ...]] | None:
        """See `claims_of`."""
        return claims_of(self.handle) if self.running else None

    async def main(self) -> None:
        broker = self.broker("worker")
        await broker.start()
        beats: Any = LoopBeats(self)
        entry, pause_s = self.entry, START_AGAIN_S
        assert entry is not None
        claimer = claimer_of(self, broker) if entry.ports else None
        while not self.left:
            handle = WorkerHandle(
                spec_of(entry),
                log=self.log(broker),
                broker=broker,
                beats=beats,
                settings=self.world.settings,
                clock=self.clock,
                by=self.name,
                environ={},
                ports=ports_of(entry),
                claiming=claimer,
                host=entry.host,
                bind_check=False,
            )
            self.handle = handle
            try:
                await handle.start()
            except ControlPlaneError as error:
                self.say(f"not entered: {error}")
            else:
                self.say(f"entered as {handle.incarnation} at {handle.revision}")
                error = await handle.wait_lost()
                self.say(f"lost: {error}")
            await handle.stop()
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, START_AGAIN_S_MAX)

    def command(self, step: Say) -> None:
        """Give the worker a command, if there is one."""
        if step.verb == "leave":
            self.wanted = False
        if self.alive and self.handle is not None:
            assert self.process is not None
            self.process.spawn(self._command(step, self.handle))

    async def _command(self, step: Say, handle: WorkerHandle) -> None:
        with self.world.waiting(self, f"{step.verb} {step.value}".strip()):
            try:
                await self._obey(step, handle)
            except ControlPlaneError as error:
                self.say(f"{step.verb} failed: {type(error).__name__}")
            else:
                self.say(f"{step.verb} done")

    async def _obey(self, step: Say, handle: WorkerHandle) -> None:
        match step.verb:
            case "starting" | "ready" | "draining":
                await handle.set_status(Status(step.verb), step.value)
            case "update":
                await handle.update(address=f"http://10.0.0.7:{step.value or 9000}")
            case "load":
                await handle.load_adapter(step.value)
            case "unload":
                await handle.unload_adapter(step.value)
            case "leave":
                self.left = True
                await handle.stop()
                self.ended()


def spec_of(entry: Enter) -> WorkerSpec:
    """The worker that enters. Raises `InvalidIdentityError` where there can be none."""
    return WorkerSpec(
        model=entry.model,
        address="http://10.0.0.7:8000",
        namespace=entry.namespace,
        worker_id=entry.worker_id,
        role=entry.role,
        needs=entry.needs,
        card=ModelCard(kv_block_size=16 * entry.card),
        labels=_labels(entry.label_bytes),
        lease_ttl_s=entry.lease_ttl_s,
        status=entry.status,
    )


def ports_of(entry: Enter) -> dict[str, Want]:
    """The block of ports that a worker wants, if it wants one."""
    if not entry.ports:
        return {}
    return {"sim": Want("sim", entry.ports, PORTS_OF_WORKERS)}


def _labels(size: int) -> dict[str, str]:
    """Labels of ``size`` bytes, their names not counted."""
    starts = range(0, size, LABEL_BYTES_MAX)
    return {f"pad{at}": "x" * min(LABEL_BYTES_MAX, size - at) for at in starts}


class OperatorHost(Host):
    """The machine of whoever decides: appends settings, waits, makes the cell."""

    def __init__(self, world: World, name: str) -> None:
        super().__init__(world, name)
        self.connection: Any = None

    async def main(self) -> None:
        self.connection = self.broker("operator")
        await self.connection.start()
        await asyncio.Event().wait()

    def decide(self, step: Operate) -> None:
        """Append a decision, as soon as that is possible."""
        assert self.process is not None
        self.process.spawn(self._decide(step))

    async def _decide(self, step: Operate) -> None:
        with self.world.waiting(self, step.verb):
            try:
                event = self._event(step)
                await self.log(self.connection).append(event)
            except ControlPlaneError as error:
                self.say(f"{step.verb} failed: {type(error).__name__}")
            else:
                self.say(f"{step.verb} decided")

    def _event(self, step: Operate) -> Any:
        seal = {"event_id": new_uuid7(), "at": self.clock.now(), "by": "operator"}
        worker = {"namespace": step.namespace, "worker_id": step.worker_id}
        match step.verb:
            case "hold" | "drain":
                return WorkerHeld(**seal, **worker, drain=step.verb == "drain")
            case "resume":
                return WorkerResumed(**seal, **worker)
            case "weight":
                return TrafficWeightSet(
                    **seal,
                    namespace=step.namespace,
                    model=step.model,
                    weight=step.weight,
                )
            case "thresholds":
                return LoadThresholdsSet(**seal, model=step.model, busy_running=8)
            case "forget":
                return ModelForgotten(**seal, model=step.model)
