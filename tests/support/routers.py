"""Routers under test, in this process and in processes of their own, and writers."""

import asyncio
import json
from pathlib import Path
from typing import Any

import msgspec
from prometheus_client import CollectorRegistry

from controlplane.broker.jetstream import JetStreamBroker
from controlplane.clock import Clock
from controlplane.eventlog import EventLog, Pending
from controlplane.identifiers import new_uuid7
from controlplane.router.client import RouterView
from controlplane.settings import Settings
from controlplane.telemetry import RouterMetrics
from controlplane.viewfeed import ViewFeed
from events import (
    AnyEvent,
    ModelCard,
    Role,
    Status,
    WorkerDeregistered,
    WorkerRegistered,
    WorkerStatusChanged,
)
from projections import FoldState, step
from tests.support.cells import CLOCK, ProjectedCell
from tests.support.processes import Process, Processes
from tests.support.servers import unique

MODEL = "llama"

ROUTER = """
import asyncio, json, signal, sys, time
import controlplane as cp
import msgspec
from controlplane.settings import Settings

async def main(url, cell, name, checkpoint, settings):
    settings = msgspec.json.decode(settings, type=Settings)
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    async with cp.connect(url, cell=cell, name=name, settings=settings) as plane:
        async with plane.view(name=name, checkpoint=checkpoint or None) as view:
            last, said_at = None, 0.0
            while not stop.is_set():
                at = (view.epoch, view.revision, view.digest, view.source)
                if at != last or time.monotonic() - said_at > 0.1:
                    try:
                        picked = view.pick("llama").worker_id
                    except cp.ControlPlaneError as error:
                        picked = type(error).__name__
                    last, said_at = at, time.monotonic()
                    print(json.dumps([*at, view.stale_for_s, picked]), flush=True)
                await asyncio.sleep(0.001)

asyncio.run(main(*sys.argv[1:]))
"""

WRITER = """
import asyncio, sys
from tests.support.routers import write
asyncio.run(write(*sys.argv[1:]))
"""


class Said(msgspec.Struct, array_like=True):
    """One line of a router's process."""

    epoch: str | None
    revision: int
    digest: str
    source: str
    stale_for_s: float
    picked: str


class RouterProcess:
    """A router in a process of its own, which says where it stands."""

    def __init__(self, process: Process) -> None:
        self.process = process

    @property
    def said(self) -> list[Said]:
        lines = self.process.said.splitlines(keepends=True)
        whole = [li for li in lines if li.startswith("[") and li.endswith("]\n")]
        return [msgspec.json.decode(line, type=Said) for line in whole if _ours(line)]

    @property
    def now(self) -> Said:
        said = self.said
        return said[-1] if said else Said(None, 0, "", "none", 0.0, "")


def _ours(line: str) -> bool:
    try:
        return len(json.loads(line)) == len(Said.__struct_fields__)
    except ValueError:
        return False


def router_process(
    processes: Processes,
    url: str,
    cell: str,
    name: str,
    settings: Settings,
    checkpoint: Path | str = "",
) -> RouterProcess:
    numbers = msgspec.json.encode(settings).decode()
    arguments = (url, cell, name, str(checkpoint), numbers)
    return RouterProcess(processes.start(ROUTER, *arguments))


def writer_process(
    processes: Processes, url: str, cell: str, *, writers: int, per_s: float
) -> Process:
    """Statuses at full speed, or ``per_s`` of them a second together."""
    return processes.start(WRITER, url, cell, str(writers), str(per_s))


def view_of(
    cell: ProjectedCell, broker: JetStreamBroker | None = None, **options: Any
) -> RouterView:
    """A router in this process, not started; through ``broker`` if it has its own."""
    through = broker or cell.broker
    checkpoint = options.pop("checkpoint", None)
    feed = options.pop("feed", None) or ViewFeed(through, cell.cell)
    return RouterView(
        broker=through,
        log=EventLog(through, cell.cell, cell.settings),
        feed=feed,
        settings=options.pop("settings", cell.settings),
        clock=CLOCK,
        name=options.pop("name", None) or unique("router"),
        checkpoint=None if checkpoint is None else Path(checkpoint),
        metrics=RouterMetrics(CollectorRegistry()),
        **options,
    )


# ---- events --------------------------------------------------------------------------
class Life:
    """A worker that nobody runs: it says what the test has it say."""

    def __init__(
        self, worker_id: str, *, namespace: str = "prod", clock: Clock = CLOCK
    ) -> None:
        self.namespace, self.worker_id = namespace, worker_id
        self._clock = clock
        self.incarnation = new_uuid7()
        self.toggled = False

    @property
    def _who(self) -> dict[str, Any]:
        return {
            "event_id": new_uuid7(),
            "at": self._clock.now(),
            "by": "test",
            "namespace": self.namespace,
            "worker_id": self.worker_id,
            "incarnation": self.incarnation,
        }

    def registers(self, **fields: Any) -> WorkerRegistered:
        self.incarnation = new_uuid7()
        told = {
            "component": "backend",
            "endpoint": "generate",
            "role": Role.AGGREGATED,
            "needs": (),
            "model": MODEL,
            "card": ModelCard(),
            "address": f"http://{self.worker_id}.example:8000",
            "lease_ttl_s": 3600.0,
            "status": Status.READY,
        }
        return WorkerRegistered(**self._who, **{**told, **fields})

    def says(self, status: Status) -> WorkerStatusChanged:
        return WorkerStatusChanged(**self._who, status=status)

    def toggles(self) -> WorkerStatusChanged:
        self.toggled = not self.toggled
        return self.says(Status.DRAINING if self.toggled else Status.READY)

    def leaves(self) -> WorkerDeregistered:
        return WorkerDeregistered(**self._who)


async def append_all(log: EventLog, events: list[AnyEvent], at_once: int = 500) -> int:
    """Append all, many at a time; the last revision."""
    revision = 0
    for start in range(0, len(events), at_once):
        pending = [Pending(event) for event in events[start : start + at_once]]
        revision = (await log.append_all(pending)).revision
    return revision


def check_against(said, digests):
    """Each place that a router said it was at is the fold of the log up to there."""
    live = [line for line in said if line.source != "none"]
    assert live
    for line in live:
        assert line.digest == digests[line.revision], line
    places = [line.revision for line in live]
    assert places == sorted(places)


async def digests_of(log: EventLog) -> dict[int, str]:
    """The fleet's digest at each revision, by a replay of the whole log."""
    state, digests = FoldState(), {0: FoldState().fleet_state.digest}
    async for record in log.read():
        state = step(state, record).state
        digests[record.revision] = state.fleet_state.digest
    return digests


async def write(url: str, cell: str, writers: str, per_s: str) -> None:
    """Have each of ``writers`` append statuses of workers of its own, for ever."""
    broker = JetStreamBroker(url, name="writer")
    await broker.start()
    await broker.wait_connected(10)
    log, count, rate = EventLog(broker, cell, Settings()), int(writers), float(per_s)

    async def writer(number: int) -> None:
        lives = [Life(f"x{number}-{n}") for n in range(5)]
        for life in lives:
            await log.append(life.registers())
        turn = 0
        started = asyncio.get_running_loop().time()
        while True:
            turn += 1
            await log.append(lives[turn % len(lives)].toggles())
            if rate > 0:
                due = started + turn * count / rate
                await asyncio.sleep(max(0.0, due - asyncio.get_running_loop().time()))

    async with asyncio.TaskGroup() as tasks:
        for number in range(count):
            tasks.create_task(writer(number))
