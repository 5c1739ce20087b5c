"""A projector behind a bad network: cut off, it loses the lead and nobody's life."""

import asyncio

from controlplane.eventlog import EventLog
from controlplane.projector.service import ProjectorService
from controlplane.server import EmbeddedServer
from controlplane.viewfeed import ViewFeed
from events import Status
from tests.support.cells import CLOCK, projected_cell
from tests.support.deriving import check_view
from tests.support.proxy import Proxy
from tests.support.servers import StoreMark
from tests.support.waiting import eventually


def behind(cell, broker, name):
    """A projector of ``cell`` that knows only ``broker``."""
    return ProjectorService(
        broker=broker,
        log=EventLog(broker, cell.cell, cell.settings),
        feed=ViewFeed(broker, cell.cell),
        settings=cell.settings,
        clock=CLOCK,
        name=name,
    )


async def beat_on(lives):
    while True:
        for life in lives:
            await life.beat()
        await asyncio.sleep(1.0)


async def test_in_a_black_hole_it_loses_the_lead_and_finds_its_way_back(
    shared_nats_server, broker_factory
):
    """S29: nothing passes and nothing is refused for longer than a worker's lease."""
    async with (
        Proxy(shared_nats_server.port) as proxy,
        projected_cell(await broker_factory()) as cell,
    ):
        far = behind(cell, await broker_factory(proxy.url), "far")
        near = behind(cell, await broker_factory(), "near")
        lives = [cell.life(f"w{n}") for n in range(3)]
        for life in lives:
            await life.register()
        beats = asyncio.create_task(beat_on(lives))
        async with far:
            await cell.leads("far")
            await cell.published()
            async with near:
                await eventually(lambda: near.health.status == "ok")
                proxy.pause()
                await cell.leads("near")
                assert not far.leading
                await eventually(lambda: far.health.status == "stuck", 10)
                await cell.life("w9").register(lease_ttl_s=3600.0)
                await cell.published()
                await eventually(
                    lambda: far._book.canary_silent_s(CLOCK.monotonic()) > 6, 10
                )
                proxy.resume()
                await eventually(lambda: far.fleet.revision == 4, 10)
                await eventually(lambda: far.health.status == "ok", 10)
                assert far.health.role == "follower"
            await cell.leads("far")
            assert far._book.blind_s > 5.0
            proxy.drop()
            proxy.delay_s = 0.05
            await cell.life("w8").register(lease_ttl_s=3600.0)
            await cell.published(10)
            assert await cell.expired() == []
            assert len(check_view(await cell.records(), await cell.entries())) == 1
        beats.cancel()


async def test_a_copy_that_grew_again_is_told_by_the_record_there(broker_factory):
    """It ends above what was read; only the record at that revision is another.

    The projector reads nothing between its start and the loss: it knows that record
    from its snapshot.
    """
    async with EmbeddedServer() as server, Proxy(server.port) as proxy:
        broker = await broker_factory(server.url)
        async with projected_cell(broker) as cell:
            life = cell.life("w1")
            await life.register(lease_ttl_s=3600.0)
            mark = await StoreMark(server).take()
            await life.say(Status.DRAINING)
            async with behind(cell, broker, "first") as first:
                await eventually(lambda: first.leading)
                await cell.published()
            far = behind(cell, await broker_factory(proxy.url), "far")
            async with far:
                await eventually(lambda: far.leading)
                proxy.pause()
                proxy.drop()
                await mark.roll_back()
                await broker.wait_connected(10)
                for status in (Status.STARTING, Status.READY, Status.DRAINED):
                    await life.say(status)
                proxy.resume()
                await eventually(lambda: far.fleet.revision == 4, 10)
                worker = far.fleet.worker("prod", "w1")
                assert worker.status is Status.DRAINED
                await eventually(lambda: far.health.status == "ok", 10)
                starts = far.metrics.epoch_starts.labels(reason="log_forked")
                await eventually(lambda: starts._value.get() == 1)
                await cell.published()
