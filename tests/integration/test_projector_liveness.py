"""Who is expired and who is not: real time, real server, real projectors."""

import asyncio
import time
from contextlib import asynccontextmanager

from controlplane.broker import Outgoing
from controlplane.identifiers import new_uuid7
from controlplane.projector.effects import Expire
from controlplane.server import EmbeddedServer
from events import (
    PortClaimed,
    PortOwner,
    PortReleased,
    WorkerExpired,
    WorkerRegistered,
    encode,
    subject_of,
)
from tests.support.cells import NAMESPACE, beat_all, next_notice, projected_cell
from tests.support.servers import frozen
from tests.support.waiting import eventually

TTL = 5.0


@asynccontextmanager
async def beating(lives):
    """``lives`` beat three times in a lease; take one out of the list to silence it."""
    beats = asyncio.create_task(_beat(lives))
    try:
        yield
    finally:
        beats.cancel()


async def _beat(lives):
    while True:
        await beat_all(list(lives))
        await asyncio.sleep(TTL / 3)


async def registered(cell, count, **options):
    lives = [cell.life(f"w{n}", **options) for n in range(count)]
    for life in lives:
        await life.register(lease_ttl_s=TTL)
    return lives


async def passed(seconds):
    """Let real time pass: what must not happen has time to happen."""
    loop = asyncio.get_running_loop()
    until = loop.time() + seconds
    await eventually(lambda: loop.time() > until, seconds + 5)


async def test_only_the_silent_one_dies_in_time_whatever_the_clocks(broker_factory):
    """S16, S19: a hundred lives, clocks wrong by an hour either way; one is silent."""
    async with (
        projected_cell(await broker_factory()) as cell,
        cell.service() as service,
    ):
        await eventually(lambda: service.leading)
        early = await registered(cell, 50, clock_off_s=-3600.0)
        lives = [*early, *[cell.life(f"x{n}", clock_off_s=3600.0) for n in range(50)]]
        for life in lives[50:]:
            await life.register(lease_ttl_s=TTL)
        silent = lives[0]
        async with beating(lives):
            await passed(1.0)
            lives.remove(silent)
            await silent.beat()
            silent_at = time.monotonic()
            await eventually(cell.expired, TTL + 2.5)
            assert TTL <= time.monotonic() - silent_at <= TTL + 2.0
            await passed(1.0)
        assert await cell.expired() == [silent.worker_id]
        assert len(service.fleet.state.workers) == 99
        (record,) = [
            r for r in await cell.records() if isinstance(r.event, WorkerExpired)
        ]
        assert record.event.observed_by == "here"
        assert TTL <= record.event.silent_for_s <= TTL + 2.0
        assert service.metrics.expiries._value.get() == 1
        await cell.published()


async def test_no_outage_of_the_server_expires_anybody(
    tmp_path, broker_factory, processes
):
    """S17: killed for three leases, stopped for two; then the dead are found again."""
    async with EmbeddedServer(tmp_path) as server:
        broker = await broker_factory(server.url)
        async with projected_cell(broker) as cell:
            processes.projector(server.url, cell.cell, "a", cell.settings)
            processes.projector(server.url, cell.cell, "b", cell.settings)
            await eventually(cell.leader, 10)
            lives = await registered(cell, 6)
            async with beating(lives):
                await server.kill()
                await passed(3 * TTL)
                await server.start()
                await broker.wait_connected(10)
                await eventually(cell.leader, 10)
                await passed(TTL + 2.0)
                assert await cell.expired() == []
                with frozen(server):
                    await passed(2 * TTL)
                await eventually(cell.leader, 10)
                await passed(TTL + 2.0)
                assert await cell.expired() == []
                dead = lives.pop(0)
                await eventually(cell.expired, TTL + 2.5)
                assert await cell.expired() == [dead.worker_id]
            await cell.published()


async def test_an_outage_of_the_projection_expires_only_who_died_in_it(
    broker_factory, processes
):
    """S18."""
    async with projected_cell(await broker_factory()) as cell:
        first = processes.projector(cell.broker.url, cell.cell, "a", cell.settings)
        await eventually(cell.leader, 10)
        lives = await registered(cell, 4)
        async with beating(lives):
            await cell.published()
            first.kill()
            dead = lives.pop()
            await passed(TTL + 1.5)
            processes.projector(cell.broker.url, cell.cell, "b", cell.settings)
            await cell.leads("b")
            led_at = time.monotonic()
            await eventually(cell.expired, TTL + 3.0)
            assert time.monotonic() - led_at > TTL - 1.0
            await passed(1.0)
        assert await cell.expired() == [dead.worker_id]


async def test_the_guard_holds_a_mass_shows_it_and_lets_go(broker_factory):
    """S18b."""
    broker = await broker_factory()
    async with (
        projected_cell(broker, guard_hold_s=2.0) as cell,
        cell.service() as service,
    ):
        await eventually(lambda: service.leading)
        lives = await registered(cell, 20)
        async with beating(lives):
            await passed(0.5)
            dead = {life.worker_id for life in lives[:12]}
            del lives[:12]
            await eventually(lambda: service.health.status == "degraded", TTL + 2.0)
            assert "mass-expiry guard holds" in service.health.reasons[0]
            service._appearance.sample()
            assert service.metrics.guard_engaged._value.get() == 1
            assert await cell.expired() == []

            async def gone():
                return len(await cell.expired()) == 12

            await eventually(gone, 2.0 + 2.0)
        assert set(await cell.expired()) == dead
        await eventually(lambda: service.health.status == "ok")


def claim(life, port, **fields):
    owner = PortOwner(
        namespace=NAMESPACE, worker_id=life.worker_id, incarnation=life.incarnation
    )
    return PortClaimed(
        event_id=new_uuid7(),
        at=life.who["at"],
        by="test",
        host="h1",
        port=port,
        claim_id=new_uuid7(),
        block_start=port,
        block_size=1,
        owner=owner,
        reason="test",
        pid=1,
        lease_ttl_s=TTL,
        **fields,
    )


async def test_lives_with_ports_end_with_them(broker_factory):
    """A life that never registered ends by name too; of an ended one only its ports.

    The subject's purge makes what the fold expects wrong: then the log is asked.
    """
    async with (
        projected_cell(await broker_factory()) as cell,
        cell.service() as service,
    ):
        await eventually(lambda: service.leading)
        unborn, old, new = cell.life("w1"), cell.life("w2"), cell.life("w2")
        purged = cell.life("w3")
        await cell.append(claim(unborn, 20000))
        for life in (old, new):
            await cell.append(claim(life, 20001 + (life is new)))
            await life.register(lease_ttl_s=TTL)
        await purged.register(lease_ttl_s=TTL)
        subject = cell.names.absolute("log.worker.prod.w3")
        await cell.broker.purge_stream(cell.names.log_stream, subject=subject)
        notices = await cell.notices(old)
        async with beating([old, new]):
            assert (await next_notice(notices)).kind == "superseded"

            async def ended():
                ends = [
                    r.event
                    for r in await cell.records()
                    if isinstance(r.event, WorkerExpired | PortReleased)
                ]
                return ends if len(ends) == 4 else None

            ends = await eventually(ended, TTL + 3.0)
        expired = {e.worker_id for e in ends if isinstance(e, WorkerExpired)}
        assert expired == {"w1", "w3"}
        assert {e.port for e in ends if isinstance(e, PortReleased)} == {20000, 20001}
        await eventually(lambda: len(service._core.fold.lives) == 1)


async def test_a_racing_registration_beats_expiry(broker_factory):
    """The expiry expects what the decision knew; what came after it stands."""
    async with (
        projected_cell(await broker_factory()) as cell,
        cell.service() as service,
    ):
        await eventually(lambda: service.leading)
        life = cell.life("w1")
        await life.register(lease_ttl_s=TTL)
        await eventually(lambda: service.fleet.revision == 1)
        core, hands = service._core, service._hands
        before = core.fold.lives[(NAMESPACE, "w1", life.incarnation)]
        core.lost()
        await hands._expire_in_turn(Expire(before, 9.0))
        core.won()
        assert await cell.expired() == []
        event = next(r.event for r in await cell.records())
        assert isinstance(event, WorkerRegistered)
        again = Outgoing(
            subject=cell.names.absolute(subject_of(event)), payload=encode(event)
        )
        await cell.broker.store(cell.names.log_stream, again)
        await hands._expire(Expire(before, 9.0))
        await eventually(lambda: service.fleet.revision == 2)
        assert await cell.expired() == []
