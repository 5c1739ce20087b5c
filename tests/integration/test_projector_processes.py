"""Real projector processes, killed and stopped: the view stream is the log's still."""

import asyncio
import random
import time
from contextlib import asynccontextmanager

import pytest

from events import Status
from tests.support.cells import projected_cell
from tests.support.deriving import check_view
from tests.support.routers import check_against, digests_of, router_process
from tests.support.waiting import eventually

KILLS = 50
SEED = 7


@pytest.fixture
async def cell(broker_factory):
    broker = await broker_factory()
    async with projected_cell(broker, lease_s=0.4, snapshot_every=40) as made:
        yield made


@asynccontextmanager
async def load(cell, *, pause_s=0.002):
    """Workers come, change and say more, as fast as appends are answered."""
    lives = [cell.life(f"w{n}") for n in range(5)]
    stop = asyncio.Event()

    async def work(life):
        await life.register(lease_ttl_s=3600.0)
        while not stop.is_set():
            for status in (Status.DRAINING, Status.READY):
                await life.say(status)
                await asyncio.sleep(pause_s)

    async with asyncio.TaskGroup() as tasks:
        for life in lives:
            tasks.create_task(work(life))
        try:
            yield
        finally:
            stop.set()


def start(processes, cell, name, **settings):
    numbers = {n: getattr(cell.settings, n) for n in cell.settings.__struct_fields__}
    changed = type(cell.settings)(**{**numbers, **settings})
    return processes.projector(cell.broker.url, cell.cell, name, changed)


async def led_by_one_of(cell, running):
    leader = await cell.leader()
    return leader if leader in running else None


async def test_killed_at_fifty_points_under_load_every_ordinal_stands_once(
    cell, processes
):
    """Prints the seed; three projectors, so that one is always about to lead."""
    dice = random.Random(SEED)
    running = {}
    for number in range(3):
        running[f"p{number}"] = start(processes, cell, f"p{number}")
    await eventually(cell.leader, 10)
    url = cell.broker.url
    routers = [
        router_process(processes, url, cell.cell, name, cell.settings)
        for name in ("router-a", "router-b")
    ]
    leaders_killed = 0
    async with load(cell, pause_s=0.01):
        for number in range(3, KILLS + 3):
            leader = None
            if number % 2:
                leader = await eventually(lambda: led_by_one_of(cell, running), 15)
            await asyncio.sleep(dice.uniform(0.0, 0.2))
            name = leader or dice.choice(list(running))
            leaders_killed += leader is not None
            running.pop(name).kill()
            running[f"p{number}"] = start(processes, cell, f"p{number}")
    await cell.published(20)
    entries = await cell.entries()
    epochs = check_view(await cell.records(), entries)
    assert leaders_killed == KILLS / 2
    assert len(epochs) == 1, f"seed {SEED}"
    assert len(entries) > 500
    end = (await cell.log.state()).last_revision
    await eventually(lambda: all(r.now.revision >= end for r in routers), 10)
    digests = await digests_of(cell.log)
    for router in routers:
        check_against(router.said, digests)
        assert len(router.said) > 100


async def test_a_stopped_leader_that_goes_on_stands_down_and_doubles_nothing(
    cell, processes
):
    old = start(processes, cell, "old")
    await cell.leads("old")
    start(processes, cell, "new")
    async with load(cell):
        await cell.published_some(200)
        old.freeze()
        await cell.leads("new")
        before = (await cell.feed.state()).last_sequence
        await cell.published_some(before + 200)
        old.thaw()
        await eventually(lambda: "no longer leading" in old.said)
        await cell.published_some(before + 400)
    await cell.published(10)
    assert len(check_view(await cell.records(), await cell.entries())) == 1
    assert await cell.leader() == "new"
    assert "divergence" not in old.said


async def test_a_killed_leader_is_followed_within_its_lease_and_a_second(
    broker_factory, processes
):
    async with projected_cell(await broker_factory()) as cell:
        old = start(processes, cell, "old")
        await cell.leads("old")
        new = start(processes, cell, "new")
        await eventually(lambda: "projection begins" in new.said)
        old.kill()
        killed_at = time.monotonic()
        life = cell.life("w1")
        await life.register()
        await cell.published(10)
        assert time.monotonic() - killed_at < cell.settings.lease_s + 1.0
        assert await cell.leader() == "new"


async def test_a_leader_that_stops_hands_over_at_once(broker_factory, processes):
    """Well under the lease: waiting for it to lapse would take 5 s here."""
    async with projected_cell(await broker_factory(), lease_s=5.0) as cell:
        old = start(processes, cell, "old")
        await cell.leads("old")
        new = start(processes, cell, "new")
        await eventually(lambda: "projection begins" in new.said)
        await cell.life("w1").register()
        await cell.published()
        asked_at = time.monotonic()
        stopping = asyncio.ensure_future(old.stop())
        await cell.leads("new")
        assert time.monotonic() - asked_at < 2.0
        await stopping
        pointer = await cell.feed.snapshot_pointer()
        assert pointer.revision == 1
