"""Snapshots in the snapshot stream: in pieces, the last two kept, whoever writes."""

import asyncio
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import pytest

from controlplane.broker import Outgoing
from controlplane.broker.memory import MemoryBroker, MemoryServer
from controlplane.settings import Settings
from controlplane.topology import init
from controlplane.viewfeed import CHUNKS_AT_ONCE, ViewFeed
from projections import Epoch, Position, SnapshotUnusableError, take
from tests.support.fleet_builder import registered, state_after

NOW = datetime(2026, 1, 1, tzinfo=UTC)
STATE = state_after(*(registered(f"w{number}") for number in range(20)))
EPOCH = Epoch(count=1, fold_version=1, log_id="log-a", revision=0)
PIECE = 40


def snapshot(ordinal):
    place = Position(epoch=EPOCH, base=1, ordinal=ordinal, delta_revision=ordinal)
    return take(STATE, place)


class Stopped(ViewFeed):
    """A writer that is stopped when its snapshot is there, before it cleans up."""

    def __init__(self, *args, **named):
        super().__init__(*args, **named)
        self.arrived, self.go_on = asyncio.Event(), asyncio.Event()

    async def _drop_snapshots(self, kept, **named):
        self.arrived.set()
        await self.go_on.wait()
        await super()._drop_snapshots(kept, **named)


@asynccontextmanager
async def cell(kind=ViewFeed):
    """Two writers of one cell; the first is of this kind."""
    server = MemoryServer()
    brokers = [MemoryBroker(server), MemoryBroker(server)]
    for broker in brokers:
        await broker.start()
    await init(brokers[0], "c", Settings())
    yield (
        kind(brokers[0], "c", chunk_bytes=PIECE),
        ViewFeed(brokers[1], "c", chunk_bytes=3 * PIECE),
    )
    for broker in brokers:
        await broker.stop()


async def held(feed):
    """The pieces that are there of each snapshot."""
    found = {}
    stream, broker = feed.names.snapshot_stream, feed._broker
    async for batch in broker.read(stream, last_per_subject=True):
        for message in batch:
            if message.subject != feed.names.snapshot_pointer:
                snapshot_id = message.subject.split(".")[3]
                found[snapshot_id] = found.get(snapshot_id, 0) + 1
    return found


async def test_a_snapshot_in_more_pieces_than_are_read_at_once_comes_back_whole():
    async with cell() as (one, other):
        assert await one.write_snapshot(snapshot(1), NOW)
        pointer = await other.snapshot_pointer()
        assert pointer.chunks > CHUNKS_AT_ONCE
        assert await held(other) == {pointer.snapshot_id: pointer.chunks}
        assert await other.read_snapshot(pointer) == snapshot(1)


async def test_the_last_snapshot_and_the_one_before_are_kept():
    async with cell() as (one, other):
        pointers = []
        for ordinal in range(1, 5):
            await (one, other)[ordinal % 2].write_snapshot(snapshot(ordinal), NOW)
            pointers.append(await one.snapshot_pointer())
        assert await held(one) == {p.snapshot_id: p.chunks for p in pointers[-2:]}


async def test_what_a_writer_left_unfinished_goes_with_the_next_snapshot():
    async with cell() as (one, other):
        subject = one.names.snapshot_chunk("unfinished", 0)
        piece = Outgoing(subject=subject, payload=b"a piece")
        await one._broker.store(one.names.snapshot_stream, piece)
        assert "unfinished" in await held(one)
        await other.write_snapshot(snapshot(1), NOW)
        assert "unfinished" not in await held(one)


async def test_who_was_stopped_before_cleaning_up_spares_what_others_wrote_since():
    async with cell(Stopped) as (late, other), asyncio.TaskGroup() as tasks:
        writing = tasks.create_task(late.write_snapshot(snapshot(1), NOW))
        await asyncio.wait_for(late.arrived.wait(), 5.0)
        pointers = []
        for ordinal in (2, 3):
            await other.write_snapshot(snapshot(ordinal), NOW)
            pointers.append(await other.snapshot_pointer())
        late.go_on.set()
        assert await writing
        assert await held(other) == {p.snapshot_id: p.chunks for p in pointers[-2:]}
        assert await other.standing_snapshot() == snapshot(3).position


async def test_a_snapshot_without_one_of_its_pieces_cannot_be_used():
    async with cell() as (one, other):
        await one.write_snapshot(snapshot(1), NOW)
        pointer = await other.snapshot_pointer()
        middle = one.names.snapshot_chunk(pointer.snapshot_id, 3)
        await one._broker.purge_stream(one.names.snapshot_stream, subject=middle)
        with pytest.raises(SnapshotUnusableError, match="chunk 3 of"):
            await other.read_snapshot(pointer)
        assert await other.standing_snapshot() is None
