"""The lease between projectors: won, kept, lost and given back, on one clock."""

from datetime import timedelta

import pytest

from controlplane.broker.memory import MemoryBroker, MemoryServer
from controlplane.projector.leadership import Leadership, holder
from controlplane.settings import Settings
from controlplane.topology import Names, init
from tests.support.fleet_builder import START

TTL = 2.0
NAMES = Names("c")


class Clocked:
    """A server whose time the test sets, and projectors that want to lead."""

    def __init__(self):
        self.now = 0.0
        self.server = MemoryServer(lambda: START + timedelta(seconds=self.now))

    async def projector(self, name):
        broker = MemoryBroker(self.server, name, connect_timeout_s=0.01)
        await broker.start()
        await init(broker, "c", Settings(lease_s=TTL))
        return broker, Leadership(broker, NAMES, name=name, ttl_s=TTL)


@pytest.fixture
async def two():
    clocked = Clocked()
    (_, first), (_, second) = [await clocked.projector(name) for name in "ab"]
    return clocked, first, second


async def test_one_wins_and_keeps_it(two):
    clocked, first, second = two
    assert await first.acquire(0.0)
    assert not await second.acquire(0.0)
    for _ in range(10):
        clocked.now += 0.5
        assert await first.renew(clocked.now)
        assert not await second.acquire(clocked.now)
    assert first.holds(clocked.now + 1.9)
    assert not first.holds(clocked.now + 2.0)


async def test_a_lapsed_lease_is_anybodys(two):
    clocked, first, second = two
    await first.acquire(0.0)
    clocked.now = 2.5
    assert await second.acquire(2.5)
    assert not await first.renew(2.5)
    assert not await first.acquire(2.5)


async def test_given_back_it_is_free_at_once(two):
    _, first, second = two
    await first.acquire(0.0)
    await first.release()
    assert not first.holds(0.1)
    assert await second.acquire(0.1)


async def test_an_update_whose_answer_was_lost_is_no_loss():
    clocked = Clocked()
    broker, lease = await clocked.projector("a")
    await lease.acquire(0.0)
    broker.answers_to_lose = 1
    assert await lease.renew(0.5)
    assert await lease.renew(1.0)
    assert lease.holds(2.9)


async def test_a_win_whose_answer_was_lost_is_found_at_the_next_try():
    clocked = Clocked()
    broker, lease = await clocked.projector("a")
    broker.answers_to_lose = 1
    assert not await lease.acquire(0.0)
    assert await lease.acquire(0.5)


async def test_silence_of_the_broker_is_no_loss_until_it_lapses():
    clocked = Clocked()
    broker, lease = await clocked.projector("a")
    await lease.acquire(0.0)
    clocked.server.disconnect(broker)
    assert await lease.renew(1.0)
    assert not lease.holds(2.0)
    assert not await lease.renew(2.0)
    await lease.release()


async def test_the_holder_can_be_named():
    clocked = Clocked()
    broker, lease = await clocked.projector("a")
    assert await holder(broker, NAMES) is None
    await lease.acquire(0.0)
    assert await holder(broker, NAMES) == "a"
    await lease.release()
    assert await holder(broker, NAMES) is None
