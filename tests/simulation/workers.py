"""Machines with a worker each, with a claimant of ports, and with the operator."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable
from typing import TYPE_CHECKING, Any

from controlplane.beats import Beat
from controlplane.broker import Broker
from controlplane.errors import AppendConflictError
from controlplane.eventlog import EventLog, Pending
from controlplane.identifiers import new_uuid7
from controlplane.topology import Names
from controlplane.worker import WorkerHandle, WorkerSpec
from controlplane.worker.beat import Beater, BeatSchedule, Kept
from events import (
    ControlPlaneError,
    LoadThresholdsSet,
    ModelCard,
    ModelForgotten,
    PortClaimed,
    PortOwner,
    PortReleased,
    Role,
    Status,
    TrafficWeightSet,
    WorkerDeregistered,
    WorkerHeld,
    WorkerRegistered,
    WorkerResumed,
    port_subject,
    worker_subject,
)
from events.identity import LABEL_BYTES_MAX

from .hosts import CELL, Host
from .plan import Claim, Enter, Operate, Say

if TYPE_CHECKING:
    from .world import World

START_AGAIN_S = 2.0
START_AGAIN_S_MAX = 120.0
NAMES = Names(CELL)


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

    async def main(self) -> None:
        broker = self.broker("worker")
        await broker.start()
        beats: Any = LoopBeats(self)
        entry, pause_s = self.entry, START_AGAIN_S
        assert entry is not None
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


def _labels(size: int) -> dict[str, str]:
    """Labels of ``size`` bytes, their names not counted."""
    starts = range(0, size, LABEL_BYTES_MAX)
    return {f"pad{at}": "x" * min(LABEL_BYTES_MAX, size - at) for at in starts}


class ClaimantHost(Host):
    """A machine that claims ports, may register, and gives them back: raw events."""

    def __init__(self, world: World, name: str) -> None:
        super().__init__(world, name)
        self.claim: Claim | None = None
        self.beating = ""
        """The incarnation that beats here."""

    def build(self) -> None:
        self.beating = ""

    def beats_for(self, incarnation: str) -> bool:
        """Whether a life that runs here now beats."""
        return self.running and self.beating == incarnation

    def begin(self, claim: Claim) -> None:
        if not self.alive:
            self.claim, self.wanted = claim, True
            self.start()

    async def main(self) -> None:
        with self.world.waiting(self, "claim"):
            claim = self.claim
            assert claim is not None
            broker = self.broker("claimant")
            await broker.start()
            life = _Life(self, self.log(broker), broker, claim)
            try:
                await broker.wait_connected(30.0)
                await life.live()
            except AppendConflictError as error:
                self.say(f"claim lost at {error.subject}")
            except ControlPlaneError as error:
                self.say(f"claimant gave up: {type(error).__name__}")
        self.wanted = False
        self.ended()


class _Life:
    """One life with ports: claimed before it registers, released with its farewell."""

    def __init__(
        self, host: ClaimantHost, log: EventLog, broker: Broker, claim: Claim
    ) -> None:
        self._host, self._log, self._broker, self._claim = host, log, broker, claim
        self._beats = LoopBeats(host)
        self._incarnation = new_uuid7()
        self._claim_id = new_uuid7()
        self._ttl_s = 5.0 * host.world.plan.pace.factor
        self._subject = worker_subject("ports", host.name)

    async def live(self) -> None:
        state = await self._log.state()
        last = await self._log.last(self._subject)
        before = 0 if last is None else last.revision
        claimed = await self._claim_block()
        self._host.say(f"claimed up to revision {claimed}")
        self._beat(state.log_id, claimed)
        revision = claimed
        if self._claim.register:
            registered = await self._log.append(
                self._registration(), expected_revision=before
            )
            revision = before = registered.revision
            self._beat(state.log_id, revision)
        await asyncio.sleep(self._claim.hold_s)
        await self._release(before, claimed)

    async def _claim_block(self) -> int:
        pending = []
        for port in self._ports:
            subject = port_subject(self._claim.host, port)
            last = await self._log.last(subject)
            if last is not None and not isinstance(last.event, PortReleased):
                raise AppendConflictError(
                    subject=subject, expected=0, last=last.revision, code=0
                )
            event = PortClaimed(
                **self._seal,
                host=self._claim.host,
                port=port,
                claim_id=self._claim_id,
                block_start=self._claim.port,
                block_size=self._claim.size,
                owner=PortOwner(
                    namespace="ports",
                    worker_id=self._host.name,
                    incarnation=self._incarnation,
                ),
                reason="sim",
                lease_ttl_s=self._ttl_s,
            )
            pending.append(Pending(event, 0 if last is None else last.revision))
        return (await self._log.append_all(pending)).revision

    async def _release(self, registered: int, claimed: int) -> None:
        size = self._claim.size
        pending = [
            Pending(
                PortReleased(
                    **self._seal,
                    host=self._claim.host,
                    port=port,
                    claim_id=self._claim_id,
                    cause="released",
                ),
                claimed - size + 1 + index,
            )
            for index, port in enumerate(self._ports)
        ]
        if self._claim.register:
            farewell = WorkerDeregistered(
                **self._seal,
                namespace="ports",
                worker_id=self._host.name,
                incarnation=self._incarnation,
                reason="done",
            )
            pending.insert(0, Pending(farewell, registered))
        self._beats.drop(self._host.name)
        self._host.beating = ""
        await self._log.append_all(pending)
        self._host.say("released")

    def _registration(self) -> WorkerRegistered:
        return WorkerRegistered(
            **self._seal,
            namespace="ports",
            worker_id=self._host.name,
            incarnation=self._incarnation,
            component="backend",
            endpoint="generate",
            role=Role.AGGREGATED,
            needs=(),
            model="ported",
            card=ModelCard(),
            address="http://10.0.0.8:8000",
            lease_ttl_s=self._ttl_s,
            status=Status.READY,
        )

    def _beat(self, log_id: str, revision: int) -> None:
        beat = Beat(incarnation=self._incarnation, log_id=log_id, revision=revision)
        subject = NAMES.beat("ports", self._host.name)
        self._host.beating = self._incarnation
        self._beats.keep(self._host.name, subject, beat, self._ttl_s)

    @property
    def _ports(self) -> range:
        return range(self._claim.port, self._claim.port + self._claim.size)

    @property
    def _seal(self) -> dict[str, Any]:
        return {
            "event_id": new_uuid7(),
            "at": self._host.clock.now(),
            "by": self._host.name,
        }


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
            case "hold":
                return WorkerHeld(**seal, **worker)
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
