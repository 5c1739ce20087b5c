"""What a router tells of itself, and what it keeps: best effort, bounded, not twice."""

import asyncio

import pytest

from controlplane.broker.memory import MemoryBroker
from controlplane.broker.memory_server import MemoryServer
from controlplane.clock import SystemClock
from controlplane.presence import Presence, reports, routers
from controlplane.router import telling
from controlplane.router.keeping import REFRESH_S, Keeper
from controlplane.router.telling import (
    REPORT_EVERY_S,
    REPORTS_WAITING_MAX,
    Teller,
)
from controlplane.settings import Settings
from controlplane.topology import Names, init
from tests.support.fleet_builder import given, registered
from tests.support.view_line import ViewLine
from tests.support.waiting import eventually

NAMES = Names("default")


@pytest.fixture
async def server():
    made = MemoryServer()
    broker = MemoryBroker(made)
    await broker.start()
    await init(broker, "default", Settings())
    yield made
    await broker.stop()


@pytest.fixture
async def broker(server):
    made = MemoryBroker(server, connect_timeout_s=0.05)
    await made.start()
    yield made
    await made.stop()


def presence():
    return Presence(
        name="r1",
        epoch=None,
        revision=0,
        digest="0" * 32,
        source="none",
        stale_for_s=0.0,
    )


def teller_of(broker, **options):
    ejected = ((("prod", "w1"), 2.5),)
    return Teller(broker, NAMES, SystemClock(), presence, lambda: ejected, **options)


async def told(broker):
    return [r.reason for r in await reports(broker, NAMES, "r1")]


class Speaking:
    """A teller at work for as long as the block lasts."""

    def __init__(self, teller):
        self._teller = teller

    async def __aenter__(self):
        self._running = asyncio.ensure_future(self._run())
        return self._teller

    async def __aexit__(self, *_):
        self._running.cancel()
        await asyncio.wait({self._running})

    async def _run(self):
        moved = asyncio.Event()
        async with asyncio.TaskGroup() as tasks:
            self._teller.start(tasks, 1.0, lambda: moved)
            await asyncio.Event().wait()


async def test_a_report_of_lost_contact_is_sent_when_there_is_contact_again(
    server, broker
):
    async with Speaking(teller_of(broker)) as teller:
        teller.report("resync: start")
        await eventually(lambda: told(broker), 2)
        server.disconnect(broker)
        teller.report("contact lost")
        server.reconnect(broker)

        async def both():
            return await told(broker) == ["resync: start", "contact lost"]

        await eventually(both, 3)


async def test_no_more_reports_wait_than_a_few(server, broker):
    server.disconnect(broker)
    async with Speaking(teller_of(broker)) as teller:
        for number in range(1000):
            teller.report(f"resync: {number}")
        assert len(teller._waiting) == REPORTS_WAITING_MAX
        server.reconnect(broker)

        async def all_sent():
            return len(await told(broker)) >= REPORTS_WAITING_MAX

        await eventually(all_sent, 3)
    assert (await told(broker))[-1] == "resync: 999"


async def test_that_contact_was_lost_is_told_however_many_were_ejected_since(
    server, broker
):
    """Without it nobody could tell later how old the router's picture was."""
    server.disconnect(broker)
    async with Speaking(teller_of(broker)) as teller:
        teller.report("contact lost")
        for _ in range(100):
            teller.report("ejected")
        server.reconnect(broker)

        async def all_sent():
            return len(await told(broker)) == REPORTS_WAITING_MAX

        await eventually(all_sent, 3)
    assert (await told(broker))[0] == "contact lost"


async def test_who_has_nothing_to_tell_reports_regularly(broker, monkeypatch):
    monkeypatch.setattr(telling, "REPORT_EVERY_S", 0.05)
    assert REPORT_EVERY_S == 10.0
    async with Speaking(teller_of(broker)):

        async def two():
            return len(await told(broker)) >= 2

        await eventually(two, 3)
    assert set(await told(broker)) == {"regular"}


async def test_a_report_says_who_is_kept_away_from_and_for_how_long(broker):
    async with Speaking(teller_of(broker)) as teller:
        teller.report("ejected")
        await eventually(lambda: told(broker), 2)
    (report,) = await reports(broker, NAMES, "r1")
    assert (report.ejected, report.ejected_for_s) == (("prod/w1",), (2.5,))


async def test_a_passer_by_says_nothing(server, broker):
    teller = teller_of(broker, silent=True)
    async with Speaking(teller):
        teller.report("resync: start")
    await teller.goodbye()
    assert await told(broker) == []
    assert await routers(broker, NAMES, Settings()) == ()


async def is_present(broker):
    return [r.live for r in await routers(broker, NAMES, Settings())] == [True]


async def test_the_goodbye_of_one_leaves_another_of_its_name_alone(broker):
    """Two with one name: whoever spoke last is there."""
    one, other = teller_of(broker), teller_of(broker)
    await one._say()
    await other._say()
    await one.goodbye()
    assert await is_present(broker)
    await other.goodbye()
    assert not await routers(broker, NAMES, Settings())
    assert await told(broker) == ["stopped", "stopped"]


async def test_a_goodbye_knows_the_presence_that_was_on_its_way(server, broker):
    """Stopped while it speaks, a router is not taken for one that is missing."""
    for turns in range(20):
        teller = teller_of(broker)
        async with Speaking(teller):
            for _ in range(turns):
                await asyncio.sleep(0)
        await teller.goodbye()
        assert await routers(broker, NAMES, Settings()) == ()


async def test_who_never_said_anything_takes_nobody_s_leave(broker):
    async with Speaking(teller_of(broker)):
        await eventually(lambda: is_present(broker), 2)
        await teller_of(broker).goodbye()
        assert await is_present(broker)


async def test_a_goodbye_without_a_broker_takes_no_longer_than_it_may(server, broker):
    server.disconnect(broker)
    async with asyncio.timeout(2):
        await teller_of(broker).goodbye()


# ---- checkpoints -------------------------------------------------------------------
class HandClock(SystemClock):
    """The system's clock, moved ahead by hand."""

    ahead_s = 0.0

    def monotonic(self):
        return super().monotonic() + self.ahead_s


@pytest.fixture
def replica():
    line = ViewLine()
    line.publish(given(registered("a")))
    return line.replica()


async def test_an_unchanged_replica_is_written_again_only_after_a_while(
    tmp_path, replica
):
    clock, writes = HandClock(), []
    keeper = Keeper(
        tmp_path / "c",
        "default",
        clock,
        lambda: (replica, 0.5),
        lambda: writes.append(1),
    )
    assert keeper.load() is None
    assert keeper._has_news()
    await keeper.save()
    assert not keeper._has_news()
    clock.ahead_s = REFRESH_S
    assert keeper._has_news()
    found, age_s = keeper.load()
    assert found == replica
    assert 0.5 <= age_s < 5
    assert writes == [1]


async def test_nothing_confirmed_is_never_written(tmp_path):
    keeper = Keeper(tmp_path / "c", "default", HandClock(), lambda: None, lambda: None)
    await keeper.save()
    assert not keeper._has_news()
    assert list(tmp_path.iterdir()) == []


async def test_a_directory_that_is_not_there_is_no_end(tmp_path, replica):
    path = tmp_path / "no" / "c"
    writes = []
    keeper = Keeper(
        path, "default", HandClock(), lambda: (replica, 0.0), lambda: writes.append(1)
    )
    await keeper.save()
    assert not writes
    assert keeper.load() is None
