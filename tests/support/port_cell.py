"""A log in memory with a story of ports, and snapshots of it as a projector takes."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import msgspec

import controlplane as cp
from controlplane.broker import Outgoing
from controlplane.broker.memory import MemoryBroker, MemoryServer
from controlplane.eventlog import EventLog
from controlplane.ports.watching import HostWatch
from controlplane.viewfeed import ViewFeed
from projections import (
    Epoch,
    FoldState,
    HostPorts,
    Position,
    step,
    take,
)
from tests.support.dating import dated
from tests.support.fleet_builder import (
    claimed,
    given,
    poison,
    registered,
    released,
)

HOST, OTHER = "10.0.0.1", "other"
PORT = "log.port.10%2E0%2E0%2E1.{}"
SETTINGS = cp.Settings(connect_timeout_s=60.0)
"""A machine that others use too may be slow: nothing here is given up for that."""
BRIEF = cp.Settings(connect_timeout_s=0.3)
STORY = given(
    claimed("w1", 20000, 3),
    claimed("w2", 20000, host=OTHER),
    released(20001),
    registered("w1"),
    claimed("w3", 20000, claim="too late"),
    poison(PORT.format(20000), b"[]"),
    poison(PORT.format(20007), b"[]"),
    released(20002, claim="not its holder's"),
    released(20000),
    claimed("w4", 20000),
    claimed("w5", 20000, host=OTHER),
    claimed("w6", 20009),
)
"""Fourteen records, the last one of `HOST`."""
END = len(STORY)


def told(records) -> HostPorts:
    """What the records say of the host, read from the beginning."""
    known = HostPorts(host=HOST)
    for record in records:
        known = known.after(record)
    return known


class Reads:
    """A broker's client that notes where readings of the log began."""

    def __init__(self, broker: MemoryBroker) -> None:
        self._broker = broker
        self.afters: list[int] = []
        self.fails: dict[str, Exception] = {}
        self.hangs: set[str] = set()
        self.hung = 0
        self.first_batch = None

    def __getattr__(self, name: str):
        return getattr(self._broker, name)

    async def last(self, stream: str, subject: str):
        if stream in self.hangs:
            self.hung += 1
            await asyncio.Event().wait()
        if stream in self.fails:
            raise self.fails[stream]
        return await self._broker.last(stream, subject)

    async def read(self, stream, *, after=0, **options):
        if stream.endswith("_LOG"):
            self.afters.append(after)
        async for batch in self._broker.read(stream, after=after, **options):
            for message in batch:
                yield [message]
                if self.first_batch is not None:
                    work, self.first_batch = self.first_batch, None
                    await work()


class Cell:
    """A log in memory that holds a story, and a look at a host there."""

    def __init__(self) -> None:
        self.server = MemoryServer()
        self.broker = Reads(MemoryBroker(self.server, connect_timeout_s=0.3))
        self.log = EventLog(self.broker, "default", SETTINGS)
        self.feed = ViewFeed(self.broker, "default")
        self.watch = self.another()

    def another(self, settings: cp.Settings = SETTINGS) -> HostWatch:
        self.broker.afters.clear()
        return HostWatch(self.log, self.broker, settings, HOST)

    async def tell(self, story) -> None:
        last = (await self.log.state()).last_revision
        told = zip(story, story.payloads, strict=True)
        for place, (record, payload) in enumerate(told, last + 1):
            subject = self.log.names.absolute(record.subject)
            headers = dated(record.recorded_at, place)
            message = Outgoing(subject=subject, payload=payload, headers=headers)
            await self.broker.store(self.log.names.log_stream, message)

    async def lose(self, story) -> None:
        """The log is this ``story`` now, by the same id."""
        name = self.log.names.log_stream
        spec = self.server.streams[name].spec
        await self.broker.delete_stream(name)
        await self.broker.create_stream(spec)
        await self.tell(story)

    async def snapshot(self, at: int, records=STORY, **changes) -> None:
        """The projector's snapshot of revision ``at``, as it is or with ``changes``."""
        log_id = changes.get("log_id") or (await self.log.state()).log_id
        epoch = Epoch(count=1, fold_version=1, log_id=log_id, revision=0)
        place = Position(epoch=epoch, base=1, ordinal=at, delta_revision=at)
        state = FoldState()
        for record in records[:at]:
            state = step(state, record).state
        pointing = changes.pop("pointer", {})
        snapshot = msgspec.structs.replace(take(state, place), **changes)
        assert await self.feed.write_snapshot(snapshot, datetime.now(UTC))
        pointer = await self.feed.snapshot_pointer()
        assert pointer is not None
        if "base" in pointing:
            position = msgspec.structs.replace(pointer.position, **pointing)
            pointing = {"position": position}
        said = msgspec.json.encode(msgspec.structs.replace(pointer, **pointing))
        subject = self.log.names.snapshot_pointer
        message = Outgoing(subject=subject, payload=said)
        await self.broker.store(self.log.names.snapshot_stream, message)

    async def purge(self, up_to: int) -> None:
        await self.broker.purge_stream(self.log.names.log_stream, up_to=up_to)

    async def purge_port(self, number: int) -> None:
        names = self.log.names
        subject = names.absolute(PORT.format(number))
        await self.broker.purge_stream(names.log_stream, subject=subject)
