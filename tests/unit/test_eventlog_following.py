"""What is asked of a log before its first records are believed to be those meant."""

import pytest

from controlplane.broker.memory import MemoryBroker, MemoryServer
from controlplane.errors import HistoryForkedError, SettingsError
from controlplane.eventlog import EventLog, Pending
from controlplane.settings import Settings
from controlplane.topology import init
from tests.support.fleet_builder import draining, given, ready, registered
from tests.support.lossy import LossyBroker

STORY = given(registered("w1"), draining("w1"), ready("w1"))

NEXT = STORY[1].event


class Treacherous(MemoryBroker):
    """Once it has said how the log stands, that log is replaced by another."""

    armed = False

    async def state(self, stream):
        state = await super().state(stream)
        if self.armed:
            self.armed = False
            await self.delete_stream(stream)
            await init(self, "c", Settings())
            await filled(EventLog(self, "c", Settings()))
        return state


async def filled(log):
    for record in STORY:
        await log.append(record.event)


async def cell(broker):
    await broker.start()
    await init(broker, "c", Settings())
    return EventLog(broker, "c", Settings())


async def test_a_log_replaced_between_the_question_and_its_reader_is_not_read():
    broker = Treacherous(MemoryServer())
    log = await cell(broker)
    broker.armed = True
    with pytest.raises(HistoryForkedError, match="its id is"):
        await anext(log.follow())


@pytest.mark.parametrize("fingerprint", ["another", STORY[1].fingerprint])
async def test_a_tail_that_grew_anew_before_it_is_followed_is_not_read(fingerprint):
    """The log is the same, it is long enough, and not what was read of it before."""
    log = await cell(MemoryBroker(MemoryServer()))
    await filled(log)
    batches = log.follow_batches(2, (await log.state()).log_id, fingerprint)
    if fingerprint == "another":
        with pytest.raises(HistoryForkedError, match="another record"):
            await anext(batches)
    else:
        assert [record.revision for record in await anext(batches)] == [3]


async def test_who_follows_asks_once_and_not_for_each_batch():
    broker = LossyBroker(MemoryBroker(MemoryServer()))
    log = await cell(broker)
    batches = log.follow_batches(0, (await log.state()).log_id)
    await log.append(STORY[0].event)
    before = broker.asked
    await anext(batches)
    assert broker.asked == before + 1
    await broker.store_batch(log.names.log_stream, [log._outgoing(Pending(NEXT))])
    await anext(batches)
    assert broker.asked == before + 1


READERS = ["read", "read_batches", "read_stored", "follow", "follow_batches"]


@pytest.mark.parametrize("reader", READERS)
async def test_nothing_is_before_the_beginning(reader):
    log = await cell(MemoryBroker(MemoryServer()))
    with pytest.raises(SettingsError, match="after -1 is not valid: 0, the beginning"):
        await anext(getattr(log, reader)(-1))
