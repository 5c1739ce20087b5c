"""The projector as a whole, when the view stream is another one after lost contact."""

import copy
from contextlib import asynccontextmanager

import msgspec
import pytest

from controlplane.broker.memory import MemoryBroker, MemoryServer
from controlplane.clock import SystemClock
from controlplane.eventlog import EventLog
from controlplane.projector.effects import Rebuild
from controlplane.projector.finding import Remembered, find
from controlplane.projector.service import ProjectorService
from controlplane.settings import Settings
from controlplane.topology import init
from controlplane.viewfeed import ViewFeed
from projections import encode_view
from tests.support.fleet_builder import forked, given, ready, registered
from tests.support.waiting import eventually

STORY = given(registered("w1"), ready("w1"))
OTHER = given(forked("other"), registered("w1"))


@asynccontextmanager
async def led(server):
    """A leader that published the delta of one record at the view's sequence 2."""
    broker, settings = MemoryBroker(server), Settings(lease_s=8.0)
    await broker.start()
    await init(broker, "c", settings)
    log, feed = EventLog(broker, "c", settings), ViewFeed(broker, "c")
    projector = ProjectorService(
        broker=broker,
        log=log,
        feed=feed,
        settings=settings,
        clock=SystemClock(),
        name="a",
    )
    async with projector:
        await eventually(lambda: projector.leading)
        await eventually(lambda: projector._core.line.level)
        await log.append(STORY[0].event)
        await eventually(lambda: projector._core.line.published == 1)
        yield projector, broker


async def another_tail(server, feed):
    """The view stream as long as before, but its last message is another one."""
    stream = server.streams[feed.names.view_stream]
    last = stream._messages[stream.last_sequence]
    message = (await feed.at(last.sequence)).message
    other = encode_view(msgspec.structs.replace(message, digest="0" * 32))
    stream._messages[last.sequence] = msgspec.structs.replace(last, payload=other)


async def test_after_a_new_connection_it_looks_before_anything_else():
    server = MemoryServer()
    async with led(server) as (projector, broker):
        core = projector._core
        server.disconnect(broker)
        assert core.line._footing.sure
        server.reconnect(broker)
        assert not core.line._footing.sure
        await eventually(lambda: core.line._footing.sure)
        assert projector._core is core


@pytest.mark.parametrize("noticed_by", ["connection", "reader"])
async def test_another_tail_of_the_same_length_is_not_published_after(noticed_by):
    """The reader notices too: behind another server a stream may be made anew."""
    server = MemoryServer()
    async with led(server) as (projector, broker):
        feed, core = ViewFeed(broker, "c"), projector._core
        name = feed.names.view_stream
        await another_tail(server, feed)
        if noticed_by == "connection":
            server.disconnect(broker)
            server.reconnect(broker)
        else:
            server.streams[name] = copy.copy(server.streams[name])
            server.wake()
        await eventually(lambda: projector._core not in (None, core))
        await EventLog(broker, "c", Settings()).append(STORY[1].event)
        await eventually(lambda: projector.leading and projector._core.line.level)
        assert projector._core.line.epoch.count == 2


async def test_a_loss_is_said_by_the_next_term_when_this_one_ended_otherwise(caplog):
    server = MemoryServer()
    async with led(server) as (projector, broker):
        core, log = projector._core, EventLog(broker, "c", Settings())
        stream = server.streams[log.names.log_stream]
        other = msgspec.json.encode(OTHER[0].event)
        record = msgspec.structs.replace(stream._messages[1], payload=other)
        stream._messages[1] = record
        projector._hands.do([Rebuild("the test says so")])
        await eventually(lambda: projector._core not in (None, core))
        losses = projector.metrics.history_losses.labels(reason="log_forked")
        assert losses._value.get() == 1
        await eventually(lambda: projector.leading and projector._core.line.level)
        assert projector._core.line.epoch.count == 2
    said = [record.getMessage() for record in caplog.records]
    assert sum("history lost or forked" in line for line in said) == 1


class Growing(EventLog):
    """A log that goes on just before it is asked where it ends."""

    async def state(self):
        for record in self.coming:
            await self.append(record.event)
        self.coming = ()
        return await super().state()


async def test_a_record_that_was_not_there_yet_is_not_taken_for_a_purged_one():
    broker, settings = MemoryBroker(MemoryServer()), Settings()
    await broker.start()
    await init(broker, "c", settings)
    log = Growing(broker, "c", settings)
    log.coming = ()
    known = Remembered(
        log_id=(await log.state()).log_id,
        revision=1,
        fingerprint="of a lost record",
        epoch=None,
    )
    log.coming = STORY[:1]
    found = await find(log, ViewFeed(broker, "c"), known)
    assert found.log.last_revision == 1
    assert found.remembered_record is not None
