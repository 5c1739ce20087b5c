"""Synced means: level with the log as it is, not with a history that was lost."""

import asyncio

import msgspec
import pytest

from controlplane.broker import Outgoing
from controlplane.broker.memory import MemoryBroker
from controlplane.broker.memory_server import MemoryServer
from controlplane.broker.memory_stream import MemoryStream
from controlplane.eventlog import EventLog
from controlplane.router.core import Found
from controlplane.router.movement import Movement
from controlplane.router.replica import from_snapshot
from controlplane.router.syncing import Syncing
from controlplane.settings import Settings
from controlplane.topology import init
from tests.support.routers import Life
from tests.support.view_line import Shell, ViewLine, begun

SOON_S = 2.0
"""For what needs no waiting at all."""
LONG_ENOUGH_S = 0.1
"""For what must not happen: it would happen at once."""


class Cell:
    """A log in memory that can lose its tail, and a view that goes on beside it."""

    def __init__(self, server, broker):
        self.server = server
        self.log = EventLog(broker, "default", Settings())
        self.stream = self.log.names.log_stream
        self.movement = Movement("memory")
        self.movement.begin()
        self.syncing = Syncing(self.log, self.movement, lambda: self.shell.core)

    async def append(self, count=1):
        for _ in range(count):
            await self.log.append(Life("w").registers())

    async def line(self):
        """A view line of all that the log holds."""
        line = ViewLine(log_id=(await self.log.state()).log_id)
        line.publish([record async for record in self.log.read()])
        return line

    async def view(self):
        """Have a router that is live at the end of the log."""
        self.shell = begun(line=await self.line())

    async def new_epoch(self):
        """The leader numbers anew what the log holds, and the router learns it."""
        line = await self.line()
        old = self.shell.core.replica.position.epoch
        replica = line.replica()
        epoch = msgspec.structs.replace(old, count=old.count + 1)
        position = msgspec.structs.replace(replica.position, epoch=epoch)
        self.show(msgspec.structs.replace(replica, position=position))

    def show(self, replica):
        core = self.shell.core
        core.caught_up(Found(replica=replica, changes=None), "epoch", self.shell.now)
        self.movement.wake()

    def lose_after(self, revision):
        """Put the log back to where it was at ``revision``: it is still that log."""
        old = self.server.streams[self.stream]
        made = MemoryStream(old.spec, self.server._clock)
        for message in old.between(0, revision, None):
            made.store(Outgoing(subject=message.subject, payload=message.payload))
        self.server.delete(self.stream)  # or it stores into the old one
        self.server.streams[self.stream] = made

    async def is_level(self):
        async with asyncio.timeout(SOON_S):
            await self.syncing.synced()

    async def is_not_level(self):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(LONG_ENOUGH_S):
                await self.syncing.synced()


@pytest.fixture
async def cell():
    server = MemoryServer()
    broker = MemoryBroker(server)
    await broker.start()
    await init(broker, "default", Settings())
    made = Cell(server, broker)
    await made.append(5)
    await made.view()
    yield made
    await broker.stop()


async def test_level_with_the_log_is_synced(cell):
    await cell.is_level()
    await cell.append()
    await cell.is_not_level()


@pytest.mark.parametrize("appended", [0, 1, 2])
async def test_a_view_of_lost_history_is_not_synced_until_the_next_epoch(
    cell, appended
):
    """Shorter than before the loss, or as long: either way it is another history."""
    cell.lose_after(3)
    await cell.append(appended)
    assert cell.shell.core.revision == 5
    await cell.is_not_level()
    waiting = asyncio.ensure_future(cell.is_level())
    await asyncio.sleep(0)
    await cell.new_epoch()
    await waiting
    assert cell.shell.core.revision == 3 + appended


class GrowingLog(EventLog):
    """A record is appended right after each look at one."""

    async def at(self, revision):
        found = await super().at(revision)
        await self.append(Life("w").registers())
        return found


async def test_a_record_that_comes_while_it_looks_does_not_vouch_for_a_lost_one(cell):
    cell.lose_after(3)
    await cell.append()
    log = GrowingLog(cell.log._broker, "default", Settings())
    cell.syncing = Syncing(log, cell.movement, lambda: cell.shell.core)
    await cell.is_not_level()


async def test_a_router_that_begins_with_lost_history_is_not_synced_either(cell):
    lost = cell.shell.core.replica
    cell.lose_after(3)
    await cell.append()
    await cell.new_epoch()
    await cell.is_level()
    epoch = msgspec.structs.replace(lost.position.epoch, count=9)
    position = msgspec.structs.replace(lost.position, epoch=epoch)
    cell.show(msgspec.structs.replace(lost, position=position))
    await cell.is_not_level()


async def test_an_end_that_was_lost_while_waiting_is_waited_for_no_more(cell):
    await cell.append()
    waiting = asyncio.ensure_future(cell.is_level())
    done, _ = await asyncio.wait({waiting}, timeout=LONG_ENOUGH_S)
    assert not done
    cell.lose_after(3)
    await cell.append()
    await cell.new_epoch()
    await waiting
    assert cell.shell.core.revision == 4


async def test_lost_records_that_only_a_head_told_of_are_lost_too(cell):
    """They changed nothing in the view, so every delta of it is still true."""
    await cell.log.append(Life("nobody").leaves())
    line = await cell.line()
    assert line.fold.revision == 6 > line.delta_revision
    cell.shell.do(cell.shell.core.head(line.head(), cell.shell.now))
    await cell.is_level()
    cell.lose_after(5)
    await cell.append()
    await cell.is_not_level()


async def test_a_checkpoint_is_not_synced_though_it_is_level(cell):
    """Nobody has confirmed it: the epoch that it is of may have ended."""
    replica = cell.shell.core.replica
    cell.shell = Shell(cell.shell.line)
    cell.shell.begin(replica)
    assert cell.shell.core.source == "checkpoint"
    assert cell.shell.core.revision == (await cell.log.state()).last_revision
    await cell.is_not_level()
    waiting = asyncio.ensure_future(cell.is_level())
    cell.shell.settle()
    cell.movement.wake()
    await waiting


async def test_a_purged_record_is_no_lost_one(cell):
    stream = cell.server.streams[cell.stream]
    subject = stream.get(5).subject
    await cell.log._broker.purge_stream(cell.stream, subject=subject)
    assert await cell.log.at(5) is None
    await cell.is_level()


async def test_a_snapshot_stands_at_its_own_revision(cell):
    """Which may be beyond the last delta before it."""
    await cell.log.append(Life("nobody").leaves())
    line = await cell.line()
    line.take_snapshot()
    replica = from_snapshot(line.snapshot)
    assert replica.fingerprint_at == replica.revision == 6
    cell.show(replica)
    await cell.is_level()
