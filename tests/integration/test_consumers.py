"""S46. What the server keeps for readers goes with them, however they end.

Routers hear core NATS and ask for what they lack, so the server keeps nothing for them
between two readings. A projector that follows the log, and whoever reads a long one,
has a consumer of a name of its own; nobody deletes one that he did not make.
"""

from __future__ import annotations

import asyncio

import pytest

import controlplane as cp
from controlplane.broker import Outgoing, StreamSpec, consumer
from tests.support.servers import consumers_of, unique
from tests.support.waiting import eventually

DEAD = 100


@pytest.fixture
def _soon_forgotten(monkeypatch):
    monkeypatch.setattr(consumer, "_FORGET_S", 1.0)


@pytest.fixture
async def stream(broker):
    name = unique("log").replace("-", "_")
    await broker.create_stream(StreamSpec(name=name, subjects=(f"{name}.>",)))
    yield name
    await broker.delete_stream(name)


async def following(broker, stream, seen):
    async for batch in broker.follow(stream, after=0):
        seen += [message.sequence for message in batch]


@pytest.mark.usefixtures("_soon_forgotten")
async def test_readers_that_are_killed_leave_nothing_behind(
    broker_factory, shared_nats_server, broker, stream
):
    seen: dict[int, list[int]] = {}
    await broker.store(stream, Outgoing(subject=f"{stream}.a", payload=b"1"))
    async with asyncio.TaskGroup() as tasks:
        brokers = [await broker_factory() for _ in range(DEAD + 2)]
        running = [
            tasks.create_task(following(one, stream, seen.setdefault(number, [])))
            for number, one in enumerate(brokers)
        ]
        # All began at once, with nobody there: and none is in another's way.
        await eventually(lambda: all(seen[number] == [1] for number in seen))
        url = shared_nats_server.url
        assert len(await consumers_of(url, stream)) == DEAD + 2
        for one, task in zip(brokers[:DEAD], running, strict=False):
            one._connection._link._transport._io_writer.transport.abort()
            task.cancel()
        await broker.store(stream, Outgoing(subject=f"{stream}.a", payload=b"2"))

        async def only_the_living() -> bool:
            return len(await consumers_of(url, stream)) == len(brokers) - DEAD

        await eventually(only_the_living)
        await eventually(lambda: seen[DEAD] == seen[DEAD + 1] == [1, 2])
        for task in running[DEAD:]:
            task.cancel()


async def test_routers_keep_no_consumers(shared_nats_server):
    url = shared_nats_server.url
    async with cp.connect(url, cell=unique("cell")) as plane:
        await plane.init()
        streams = (plane.names.log_stream, plane.names.view_stream)

        async def kept() -> int:
            return sum([len(await consumers_of(url, stream)) for stream in streams])

        async with cp.Projector(plane, http=None), plane.view() as first:
            await first.synced(20)
            before = await kept()
            views = [plane.view(name=f"router-{n}") for n in range(10)]
            for view in views:
                await view.start()
            for view in views:
                await view.synced(20)

            async def as_many_as_before() -> bool:
                return await kept() <= before

            await eventually(as_many_as_before)
            for view in views:
                await view.stop()
