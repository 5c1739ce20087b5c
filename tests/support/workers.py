"""A cell with workers in it. Everything is closed at the end."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from controlplane.beats import NoticeKind, WireNotice, encode_signal
from controlplane.broker import Broker
from controlplane.broker.jetstream import JetStreamBroker
from controlplane.broker.memory import MemoryBroker, MemoryServer
from controlplane.clock import SystemClock
from controlplane.eventlog import EventLog, Pending
from controlplane.identifiers import new_uuid7
from controlplane.ports.claimer import Claimer
from controlplane.settings import Settings
from controlplane.telemetry import WorkerMetrics
from controlplane.topology import init, streams
from controlplane.worker import BeatThread, WorkerHandle, WorkerSpec
from events import (
    AnyEvent,
    PortClaimed,
    PortOwner,
    PortReleased,
    Record,
    WorkerExpired,
    worker_subject,
)
from projections import FoldState, Held, PortBlock, Want, fold_all
from tests.support.servers import unique

MODEL = "meta-llama/Llama-3.1-70B-Instruct"
ADDRESS = "http://10.0.0.7:8000"
HOST = "10.9.0.1"


def spec(**fields: Any) -> WorkerSpec:
    """A worker that a test need not describe."""
    return WorkerSpec(**{"model": MODEL, "address": ADDRESS, **fields})


class WorkerCell:
    """A cell of one's own: its log, and handles of workers in it."""

    def __init__(self, broker: Broker, settings: Settings) -> None:
        self.broker, self.settings = broker, settings
        self.metrics: WorkerMetrics | None = None
        self.cell = unique("w")
        self.log = EventLog(broker, self.cell, settings)
        self.names = self.log.names
        self.beats = BeatThread(self._beat_broker, settings)
        self.claimer = Claimer(
            log=self.log,
            broker=broker,
            clock=SystemClock(),
            settings=settings,
            by="test",
        )

    def _beat_broker(self) -> Broker:
        if isinstance(self.broker, JetStreamBroker):
            return JetStreamBroker(self.broker.url, name=unique("beats"))
        return MemoryBroker(MemoryServer())  # it is not for two threads: beat elsewhere

    async def create(self) -> None:
        await init(self.broker, self.cell, self.settings)

    async def delete(self) -> None:
        """Give back the room that its streams reserve, if the server is there."""
        if self.broker.connected:
            for stream in streams(self.names, self.settings, 1):
                await self.broker.delete_stream(stream.name)

    def worker(
        self, ports: Mapping[str, int | Want] | None = None, **fields: Any
    ) -> WorkerHandle:
        """A handle of a worker in namespace ``prod``; not started.

        Its ``ports`` are of `HOST`, which is no machine: nobody tries them.
        """
        return WorkerHandle(
            spec(**{"namespace": "prod", **fields}),
            log=self.log,
            broker=self.broker,
            beats=self.beats,
            settings=self.settings,
            clock=SystemClock(),
            by="test",
            environ={},
            ports=ports,
            claiming=self.claimer if ports else None,
            host=HOST,
            bind_check=False,
            metrics=self.metrics,
        )

    # ---- what others do --------------------------------------------------------
    async def notify(
        self, worker: WorkerHandle, kind: NoticeKind, revision: int | None = None
    ) -> None:
        """Tell the worker something, as a leader would."""
        notice = WireNotice(
            incarnation=worker.incarnation,
            kind=kind,
            reason="the test says so",
            revision=worker.revision if revision is None else revision,
        )
        subject = self.names.notice(worker.namespace, worker.worker_id)
        await self.broker.publish(subject, encode_signal(notice))

    async def expire(self, worker: WorkerHandle) -> int:
        """Append the worker's expiry, as a leader would."""
        event = WorkerExpired(
            event_id=new_uuid7(),
            at=SystemClock().now(),
            by="test",
            namespace=worker.namespace,
            worker_id=worker.worker_id,
            incarnation=worker.incarnation,
            silent_for_s=12.0,
            observed_by="projector-a",
        )
        return (await self.log.append(event)).revision

    async def expire_with_ports(self, worker: WorkerHandle) -> None:
        """As `expire`, with the releases of its ports in the same batch."""
        pending = []
        for block in worker.ports.values():
            releases = await self.claimer.releases([block])
            pending += [
                msgspec.structs.replace(
                    item, event=msgspec.structs.replace(item.event, cause="expired")
                )
                for item in releases
            ]
        subject = worker_subject(worker.namespace, worker.worker_id)
        last = await self.log.last(subject)
        expiry = WorkerExpired(
            **self.seal(),
            namespace=worker.namespace,
            worker_id=worker.worker_id,
            incarnation=worker.incarnation,
            silent_for_s=12.0,
            observed_by="projector-a",
        )
        expected = 0 if last is None else last.revision
        await self.log.append_all([Pending(expiry, expected), *pending])

    async def take(self, block: PortBlock, incarnation: str = "another") -> None:
        """Claim the first port of a block for another life."""
        owner = PortOwner(namespace="x", worker_id="x", incarnation=incarnation)
        claim = PortClaimed(
            **self.seal(),
            host=block.host,
            port=block.start,
            claim_id="of another",
            block_start=block.start,
            block_size=1,
            owner=owner,
            reason="test",
            lease_ttl_s=60.0,
        )
        await self.log.append(claim)

    async def let_go(self, block: PortBlock) -> None:
        """Release what `take` claimed."""
        release = PortReleased(
            **self.seal(),
            host=block.host,
            port=block.start,
            claim_id="of another",
            cause="released",
        )
        await self.log.append(release)

    def seal(self) -> dict[str, Any]:
        """What every event has."""
        return {"event_id": new_uuid7(), "at": SystemClock().now(), "by": "test"}

    # ---- what the log says -----------------------------------------------------
    async def holders(self) -> dict[int, str]:
        """Held port: the incarnation that holds it, by the fold."""
        records = [record async for record in self.log.read()]
        table = fold_all(FoldState(), records).ports.ports
        return {
            port: state.owner.incarnation
            for (_, port), state in sorted(table.items())
            if isinstance(state, Held)
        }

    async def last(self, worker: WorkerHandle) -> Record:
        """The last record on the worker's subject."""
        subject = worker_subject(worker.namespace, worker.worker_id)
        record = await self.log.last(subject)
        assert record is not None
        return record

    async def events(self) -> list[AnyEvent]:
        """All events of the cell, in order."""
        return [record.event async for record in self.log.read()]

    async def kinds(self) -> list[str]:
        """Their names, in order."""
        return [type(event).__name__ for event in await self.events()]


@asynccontextmanager
async def worker_cell(
    broker: Broker, *, create: bool = True, **settings: Any
) -> AsyncIterator[WorkerCell]:
    """Create a cell through ``broker``; end its beats and delete it afterwards."""
    made = WorkerCell(broker, Settings(**settings))
    if create:
        await made.create()
    try:
        yield made
    finally:
        await made.beats.stop()
        await made.delete()
