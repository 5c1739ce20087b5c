"""Steps of a plan, done to the world."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec

from controlplane import topology
from controlplane.broker import Message
from controlplane.identifiers import new_uuid7
from controlplane.topology import Names
from events import (
    ControlPlaneError,
    PortReleased,
    WorkerDeregistered,
    encode,
    subject_of,
)

from .broker import SimBroker
from .hosts import CELL, Host, ProjectorHost, RouterHost
from .loop import Process
from .plan import (
    BlackHole,
    BrokerRestart,
    BrokerStall,
    Claim,
    ClockJump,
    Crash,
    Cut,
    DropConsumers,
    Enter,
    Freeze,
    Lag,
    LogRecreated,
    LoseAnswers,
    NodeStall,
    Noise,
    NoResponders,
    Operate,
    Plant,
    Say,
    Slow,
    SpoilSnapshot,
    Step,
    TrimView,
    Upgrade,
    Wait,
)
from .rules import PLANTER
from .server import EPOCH, NODES
from .stream import SimStream

if TYPE_CHECKING:
    from .world import World

NAMES = Names(CELL)
MAKE_AGAIN_S = 0.3
LOST = "answers_to_lose"
UPGRADE_S = 6.0
DIE_S_MAX = 4.0
UNKNOWN = {"type": "worker_blessed.v1", "event_id": "planted", "by": "somebody"}


class Doing:
    """Does one step after the other to ``world``."""

    def __init__(self, world: World) -> None:
        self._world = world

    def do(self, step: Step) -> None:
        """Do ``step`` now, and undo later what lasts only a while."""
        world = self._world
        world.trace.line("plan", _shown(step))
        match step:
            case Enter():
                world.worker(step.process).enter(step)
            case Say():
                world.worker(step.process).command(step)
            case Operate():
                world.operator.decide(step)
            case Claim():
                world.claimant(step.process).begin(step)
            case Wait():
                world.wait(step)
            case ClockJump(process="broker", by_s=by_s):
                world.server.offset_s += by_s
            case Crash() | Freeze() | ClockJump() | Upgrade():
                self._process_fault(step, world.host(step.process))
            case Cut() | BlackHole() | LoseAnswers() | Noise() | Slow():
                self._network_fault(step, world.host(step.process))
            case _:
                self._broker_fault(step)

    def _later(self, after_s: float, do: object, *args: object) -> None:
        self._world.loop.call_later(after_s, do, *args)

    # ---- processes -------------------------------------------------------------
    def _process_fault(
        self, step: Crash | Freeze | ClockJump | Upgrade, host: Host
    ) -> None:
        process = host.process
        match step:
            case ClockJump():
                host.clock.offset_s += step.by_s
            case Crash():
                self._crash(step, host)
            case Freeze() if process is not None and host.running:
                process.freeze()
                host.frozen_until = self._world.loop.time() + step.for_s
                self._later(step.for_s, process.thaw)
            case Upgrade():
                self._upgrade(host, None if step.version == "new" else "old")

    def _crash(self, step: Crash, host: Host) -> None:
        if host.process is not None and host.alive:
            host.process.thaw()
            if step.callbacks:
                host.process.die_in = step.callbacks
            else:
                host.process.kill()
        if step.restart_s is None:
            # An idle process takes its time: it is not spared for that.
            host.wanted = False
            self._later(DIE_S_MAX, self._kill, host.process)
        else:
            # It may not have died yet: then nothing is to be started, and it goes on.
            self._later(step.restart_s, self._restart, host)

    def _kill(self, process: Process | None) -> None:
        if process is not None:
            process.kill()

    def _upgrade(self, host: Host, version: str | None) -> None:
        """Whoever is old is upgraded in the end: an upgrade half done is a fault."""
        process, host.version = host.process, version
        if host.alive and isinstance(host, ProjectorHost | RouterHost):
            assert process is not None
            process.spawn(host.stop())
        self._later(UPGRADE_S, self._upgraded, host, process)
        left_s = self._world.plan.faults_end_s - self._world.loop.time()
        if version is not None and left_s > 0.0:
            self._later(left_s, self._end_upgrade, host)

    def _end_upgrade(self, host: Host) -> None:
        if host.version is not None:
            self._upgrade(host, None)

    def _upgraded(self, host: Host, old: Process | None) -> None:
        """Start the other version as soon as the old process has ended."""
        if host.process is old and host.alive:
            self._later(UPGRADE_S, self._upgraded, host, old)
        else:
            host.start()

    def _restart(self, host: Host) -> None:
        if host.process is not None and host.process.die_in >= 0:
            host.process.kill()
        host.start()

    # ---- network ---------------------------------------------------------------
    def _network_fault(
        self, step: Cut | BlackHole | LoseAnswers | Noise | Slow, host: Host
    ) -> None:
        match step:
            case Cut():
                host.cut = True
                host.troubled()
                for broker in host.brokers:
                    broker.cut = True
                    broker.broken(landing=step.landing)
                self._later(step.for_s, self._mend, host)
            case BlackHole():
                host.black = True
                host.troubled()
                for broker in host.brokers:
                    broker.black = True
                    broker.silent()
                self._later(step.for_s, self._refill, host, list(host.brokers))
            case LoseAnswers():
                for broker in host.brokers[:1]:
                    broker.answers_to_lose += step.count
                    ends_s = max(step.at_s, self._world.plan.faults_end_s)
                    self._world.loop.call_at(ends_s, setattr, broker, LOST, 0)
            case Noise():
                self._disturb(step, host)
                self._later(step.for_s, self._calm, host)
            case Slow():
                host.weather.least_s += step.by_s
                for broker in host.brokers:
                    broker.hurry()
                self._later(step.for_s, self._speed_up, host, step.by_s)

    def _mend(self, host: Host) -> None:
        host.cut = False
        host.troubled()
        for broker in host.brokers:
            broker.cut = False
            broker.may_connect()

    def _refill(self, host: Host, before: list[SimBroker]) -> None:
        """Let through what was held, of those too who have died since."""
        host.black = False
        host.troubled()
        for broker in dict.fromkeys([*before, *host.brokers]):
            broker.black = False
            broker.flush()
            broker.may_connect()

    def _disturb(self, step: Noise, host: Host) -> None:
        weather = host.weather
        weather.lose, weather.double = step.lose, step.double
        weather.late_s, weather.deaf_s = step.late_s, step.deaf_s
        if step.deaf_s:
            host.troubled()
            for broker in host.brokers:
                broker.broken(landing=1.0)

    def _calm(self, host: Host) -> None:
        weather = host.weather
        weather.lose = weather.double = weather.late_s = weather.deaf_s = 0.0

    def _speed_up(self, host: Host, by_s: float) -> None:
        host.weather.least_s -= by_s

    # ---- the broker ------------------------------------------------------------
    def _broker_fault(self, step: Step) -> None:  # noqa: C901 - one case each
        server = self._world.server
        match step:
            case BrokerStall():
                self._stall(NODES, step.for_s)
            case NodeStall():
                self._world.node_stalled(step.node, step.for_s)
                self._stall((step.node,), step.for_s)
            case NoResponders():
                server.lose_leader()
                self._later(step.for_s, server.elect)
            case BrokerRestart():
                self._restart_broker(step)
            case LogRecreated():
                server.delete(NAMES.log_stream)
                self._later(step.gone_s, self._make_cell)
            case TrimView():
                self._trim(step.keep)
            case SpoilSnapshot():
                self._spoil(step)
            case DropConsumers():
                log = step.stream == "log"
                server.drop_consumers(NAMES.log_stream if log else NAMES.view_stream)
            case Lag():
                server.fall_behind(step.by_s)
                self._later(step.for_s, server.catch_up)
            case Plant():
                self._plant(step.where)

    def _stall(self, nodes: tuple[str, ...], for_s: float) -> None:
        self._world.server.stall(nodes)
        self._later(for_s, self._world.server.resume, nodes)

    def _restart_broker(self, step: BrokerRestart) -> None:
        server = self._world.server
        if not server.up:
            return
        tails = {
            NAMES.log_stream: step.lose_log,
            NAMES.view_stream: step.lose_view,
            NAMES.snapshot_stream: step.lose_snapshot,
        }
        server.crash(landing=step.landing, tails=tails)
        self._later(step.down_s, server.come_back)

    def _make_cell(self) -> None:
        process = self._world.operator.process
        assert process is not None
        process.spawn(self._world.make_cell())

    def _trim(self, keep: int) -> None:
        stream = self._world.server.held(NAMES.view_stream)
        if stream is not None:
            stream.trim_to(max(1, stream.last_sequence + 1 - keep))

    def _spoil(self, step: SpoilSnapshot) -> None:
        stream = self._world.server.held(NAMES.snapshot_stream)
        if stream is None:
            return
        if step.how == "gone":
            stream.purge(up_to=None, pattern=None)
            return
        chunk = self._chunk(stream, step.chunk)
        if chunk is None:
            return
        if step.how == "missing":
            stream.purge(up_to=None, pattern=chunk.subject)
            return
        spoilt = bytearray(chunk.payload)
        spoilt[len(spoilt) // 2] ^= 1
        stream.replace(msgspec.structs.replace(chunk, payload=bytes(spoilt)))

    def _chunk(self, stream: SimStream, place: int) -> Message | None:
        """That chunk of the snapshot that was stored last, finished or not."""
        chunks = [
            message
            for message in stream.between(0, stream.last_sequence, None)
            if message.subject != NAMES.snapshot_pointer
        ]
        if not chunks:
            return None
        of_snapshot = chunks[-1].subject.rsplit(".", 1)[0] + "."
        newest = [m for m in chunks if m.subject.startswith(of_snapshot)]
        return newest[max(-len(newest), min(place, len(newest) - 1))]

    def _plant(self, where: str) -> None:
        world, server = self._world, self._world.server
        unknown = json.dumps(UNKNOWN).encode()
        match where:
            case "view":
                server.publish(NAMES.view, b'{"what": "is this"}')
            case "log":
                server.publish(NAMES.absolute("log.worker.prod.poison"), b"\x00poison")
            case "unknown_event":
                server.publish(NAMES.absolute("log.worker.prod.blessed"), unknown)
            case "beat":
                server.publish(NAMES.beat("prod", "w01"), b"nonsense")
            case "notice":
                server.publish(NAMES.notice("prod", "w01"), b'{"kind": "expired"}')
            case "head":
                server.publish(NAMES.head, b"[]")
            case "false_head" if world.watch.head:
                server.publish(NAMES.head, false_head(world.watch.head))
            case "stale":
                for event in stale_events():
                    subject = NAMES.absolute(subject_of(event))
                    server.publish(subject, encode(event))


def false_head(payload: bytes) -> bytes:
    """A leader's head with the digest of another fleet."""
    said = json.loads(payload)
    return json.dumps({**said, "digest": "0" * 32, "leader": PLANTER}).encode()


def stale_events() -> list[WorkerDeregistered | PortReleased]:
    """What a life of long ago might still say of worker w01 and a port."""
    seal = {"at": EPOCH, "by": PLANTER}
    return [
        WorkerDeregistered(
            event_id=new_uuid7(),
            namespace="prod",
            worker_id="w01",
            incarnation="00000000-0000-7000-8000-000000000000",
            reason="late",
            **seal,
        ),
        PortReleased(
            event_id=new_uuid7(),
            host="10.0.0.1",
            port=20000,
            claim_id="of long ago",
            cause="released",
            **seal,
        ),
    ]


async def make_cell(world: World) -> None:
    """Create what is missing of the cell, as soon as the broker lets it."""
    broker = world.operator.connection
    while True:
        with suppress(ControlPlaneError):
            await topology.init(broker, CELL, world.settings)
            return
        await asyncio.sleep(MAKE_AGAIN_S)


def _shown(step: Step) -> str:
    fields = msgspec.structs.asdict(step)
    kind = str(step.__struct_config__.tag)
    shown = [f"{k}={v}" for k, v in fields.items() if k != "at_s" and v not in ("", ())]
    return " ".join([kind, *shown])
