"""A cell on a real server as its projectors see it: raw lives, beats, both streams."""

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

from controlplane.beats import Beat, WireNotice, decode_notice, encode_signal
from controlplane.broker import Subscription
from controlplane.broker.jetstream import JetStreamBroker
from controlplane.clock import SystemClock
from controlplane.eventlog import EventLog
from controlplane.identifiers import new_uuid7
from controlplane.projector.leadership import holder
from controlplane.projector.service import ProjectorService
from controlplane.settings import Settings
from controlplane.topology import init, streams
from controlplane.viewfeed import ViewEntry, ViewFeed
from events import (
    AnyEvent,
    ModelCard,
    Record,
    Role,
    Status,
    WorkerExpired,
    WorkerRegistered,
    WorkerStatusChanged,
)
from tests.support.deriving import check_view
from tests.support.servers import unique
from tests.support.waiting import eventually

NAMESPACE = "prod"
CLOCK = SystemClock()


class RawLife:
    """A life without a client: it registers and beats when the test says so."""

    def __init__(
        self, cell: "ProjectedCell", worker_id: str, *, clock_off_s: float = 0.0
    ) -> None:
        self.cell, self.worker_id = cell, worker_id
        self.incarnation = new_uuid7()
        self.revision = 0
        self.log_id = ""
        self._clock_off = timedelta(seconds=clock_off_s)

    @property
    def who(self) -> dict[str, object]:
        return {
            "event_id": new_uuid7(),
            "at": datetime.now(UTC) + self._clock_off,
            "by": "test",
            "namespace": NAMESPACE,
            "worker_id": self.worker_id,
            "incarnation": self.incarnation,
        }

    async def register(self, *, lease_ttl_s: float = 5.0) -> None:
        event = WorkerRegistered(
            **self.who,
            component="backend",
            endpoint="generate",
            role=Role.AGGREGATED,
            needs=(),
            model="llama",
            card=ModelCard(),
            address="http://10.0.0.7:8000",
            lease_ttl_s=lease_ttl_s,
            status=Status.READY,
        )
        self.revision = await self.cell.append(event)
        self.log_id = (await self.cell.log.state()).log_id

    async def say(self, status: Status) -> None:
        event = WorkerStatusChanged(**self.who, status=status)
        self.revision = await self.cell.append(event)

    async def beat(self) -> None:
        beat = Beat(
            incarnation=self.incarnation,
            log_id=self.log_id,
            revision=self.revision,
            server_id=self.cell.broker.server_id or "",
        )
        subject = self.cell.names.beat(NAMESPACE, self.worker_id)
        await self.cell.broker.publish(subject, encode_signal(beat))


class ProjectedCell:
    """One cell, its log and view, and what a test asks of them."""

    def __init__(self, broker: JetStreamBroker, settings: Settings) -> None:
        self.broker, self.settings = broker, settings
        self.cell = unique("p")
        self.log = EventLog(broker, self.cell, settings)
        self.feed = ViewFeed(broker, self.cell)
        self.names = self.log.names

    async def append(self, event: AnyEvent) -> int:
        return (await self.log.append(event)).revision

    def life(self, worker_id: str, **options: float) -> RawLife:
        return RawLife(self, worker_id, **options)

    def service(self, name: str = "here") -> ProjectorService:
        """A projector in this process, not started."""
        return ProjectorService(
            broker=self.broker,
            log=self.log,
            feed=self.feed,
            settings=self.settings,
            clock=CLOCK,
            name=name,
        )

    # ---- what is there ---------------------------------------------------------
    async def records(self) -> list[Record]:
        return [record async for record in self.log.read()]

    async def entries(self) -> list[ViewEntry]:
        return [entry async for batch in self.feed.read(0) for entry in batch]

    async def expired(self) -> list[str]:
        """Ids of the workers that were expired, in order."""
        events = [record.event for record in await self.records()]
        return [e.worker_id for e in events if isinstance(e, WorkerExpired)]

    async def leader(self) -> str | None:
        return await holder(self.broker, self.names)

    async def leads(self, name: str, within_s: float = 5.0) -> None:
        async def there() -> bool:
            return await self.leader() == name

        await eventually(there, within_s)

    async def published(self, within_s: float = 5.0) -> int:
        """Wait until the view is level with the log; the ordinal of the last delta."""

        async def level() -> int | None:
            records, entries = await self.records(), await self.entries()
            try:
                check_view(records, entries)
            except (AssertionError, IndexError):
                return None
            return entries[-1].view_seq

        return await eventually(level, within_s)

    async def published_some(self, view_seq: int, within_s: float = 15.0) -> None:
        """Wait until the view stream reaches ``view_seq``."""

        async def there() -> bool:
            return (await self.feed.state()).last_sequence >= view_seq

        await eventually(there, within_s)

    async def notices(self, life: RawLife) -> Subscription:
        return await self.broker.subscribe(self.names.notice(NAMESPACE, life.worker_id))


async def next_notice(notices: Subscription) -> WireNotice:
    message = await anext(aiter(notices))
    notice = decode_notice(message.payload)
    assert notice is not None
    return notice


async def beat_all(lives: Iterable[RawLife]) -> None:
    for life in lives:
        await life.beat()


@asynccontextmanager
async def projected_cell(
    broker: JetStreamBroker, **settings: float
) -> AsyncIterator[ProjectedCell]:
    """Create a cell; delete it afterwards, if the server is there."""
    made = ProjectedCell(broker, Settings(**settings))
    await init(broker, made.cell, made.settings)
    try:
        yield made
    finally:
        if broker.connected:
            for stream in streams(made.names, made.settings, 1):
                await broker.delete_stream(stream.name)
