"""Turns at holding sockets: never too many at once, and everybody has his."""

from __future__ import annotations

import asyncio
import resource
import threading
from contextlib import AsyncExitStack

import pytest

import controlplane as cp
from controlplane import topology
from controlplane.broker.memory import MemoryBroker, MemoryServer
from controlplane.clock import SystemClock
from controlplane.eventlog import EventLog
from controlplane.identifiers import new_uuid7
from controlplane.ports.claimer import Claimer
from controlplane.ports.turns import SHARE, SOCKET_TURNS, Turns, sockets_max
from events import PortOwner


async def begun(*tasks: asyncio.Task) -> None:
    """Let tasks run as far as they come."""
    for _ in range(5):
        await asyncio.sleep(0)
    assert tasks


async def hold(turns: Turns, count: int, until: asyncio.Event) -> None:
    async with turns.taking(count):
        await until.wait()


async def test_as_many_as_fit_hold_at_once_and_the_next_takes_over():
    turns, ends = Turns(lambda: 10), [asyncio.Event() for _ in range(4)]
    tasks = [asyncio.create_task(hold(turns, 4, end)) for end in ends]
    await begun(*tasks)
    assert turns.held == 8
    ends[0].set()
    ends[2].set()
    await begun(*tasks)
    assert turns.held == 8
    for end in ends:
        end.set()
    await asyncio.gather(*tasks)
    assert turns.held == 0


async def test_one_that_is_larger_than_the_limit_has_its_turn_alone():
    turns = Turns(lambda: 10)
    small, large, last = (asyncio.Event() for _ in range(3))
    tasks = [
        asyncio.create_task(hold(turns, count, end))
        for count, end in ((1, small), (100, large), (1, last))
    ]
    await begun(*tasks)
    assert turns.held == 1, "nobody passes the large one by, or it waits for ever"
    small.set()
    await begun(*tasks)
    assert turns.held == 100
    large.set()
    await begun(*tasks)
    assert turns.held == 1
    last.set()
    await asyncio.gather(*tasks)


async def test_who_gives_up_waiting_leaves_his_place_to_the_next():
    turns, end = Turns(lambda: 10), asyncio.Event()
    holding = asyncio.create_task(hold(turns, 6, end))
    await begun(holding)
    giving_up = asyncio.create_task(hold(turns, 10, end))
    behind = asyncio.create_task(hold(turns, 4, end))
    await begun(giving_up, behind)
    giving_up.cancel()
    await begun(behind)
    assert turns.held == 10
    end.set()
    await asyncio.gather(holding, behind)
    assert turns.held == 0


async def test_who_is_cancelled_in_the_moment_of_his_turn_does_not_keep_it():
    turns = Turns(lambda: 1)
    async with AsyncExitStack() as first:
        await first.enter_async_context(turns.taking(1))
        waiting = asyncio.create_task(hold(turns, 1, asyncio.Event()))
        await begun(waiting)
    waiting.cancel()
    await asyncio.wait([waiting])
    assert turns.held == 0


async def test_a_loop_in_another_thread_takes_turns_too():
    turns, end = Turns(lambda: 1), asyncio.Event()
    holding = asyncio.create_task(hold(turns, 1, end))
    await begun(holding)

    async def one_more() -> None:
        async with turns.taking(1):
            pass

    other = threading.Thread(target=lambda: asyncio.run(one_more()))
    other.start()
    end.set()
    await holding
    await asyncio.to_thread(other.join, 5)
    assert not other.is_alive()
    assert turns.held == 0


def test_a_share_of_the_open_files_is_for_claims():
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert sockets_max() == files // SHARE


@pytest.fixture
def few_files():
    """So many that a claim fits easily, and thirty do not."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


class Slow:
    """A broker's client that takes so long to store that everybody else begins."""

    def __init__(self, broker: MemoryBroker) -> None:
        self._broker = broker

    def __getattr__(self, name: str):
        return getattr(self._broker, name)

    async def store_batch(self, *args, **options):
        for _ in range(100):
            await asyncio.sleep(0)
        return await self._broker.store_batch(*args, **options)


async def test_claims_that_each_fit_have_room_all_at_once(few_files):
    settings = cp.Settings(port_cooldown_s=0)
    broker = Slow(MemoryBroker(MemoryServer()))
    await broker.start()
    await topology.init(broker, "default", settings)
    claimer = Claimer(
        log=EventLog(broker, "default", settings),
        broker=broker,
        clock=SystemClock(),
        settings=settings,
        by="test",
    )
    owner = PortOwner(namespace="n", worker_id="w", incarnation=new_uuid7())
    claims = await asyncio.gather(
        *(
            claimer.claim([cp.Want("", 8)], owner=owner, lease_ttl_s=30.0)
            for _ in range(30)
        )
    )
    assert len({port for claim in claims for port in claim.blocks[0]}) == 240
    assert SOCKET_TURNS.held == 0
    await claimer.close(1)
    await broker.stop()
