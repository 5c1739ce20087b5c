"""What a claim comes to when answers are lost, processes die and ports are busy."""

from __future__ import annotations

import asyncio
import socket
from contextlib import ExitStack, asynccontextmanager

import pytest

import controlplane as cp
from controlplane.eventlog import Pending
from controlplane.identifiers import new_uuid7
from controlplane.ports.host import host_name
from events import PortReleased
from tests.support.nats_proxy import NatsProxy
from tests.support.port_log import check_ports, port_records
from tests.support.servers import unique
from tests.support.waiting import eventually

WITHIN = cp.PortRange(20000, 20079)
HERE = host_name()
FOREIGN = {"host": "host-of-others", "bind_check": False}
pytestmark = pytest.mark.timeout(120)


@asynccontextmanager
async def cell_at(url: str, **settings):
    """A plane in a cell of its own."""
    cell = unique("ports").lower()
    settings = cp.Settings(**settings)
    async with cp.connect(url, cell=cell, settings=settings) as plane:
        await plane.init()
        yield plane


@pytest.fixture
async def plane(shared_nats_server):
    async with cell_at(shared_nats_server.url, port_cooldown_s=0) as made:
        yield made


@pytest.mark.parametrize("size", [1, 8])
async def test_a_lost_acknowledgement_leaks_nothing_and_the_claim_is_returned(
    shared_nats_server, plane, size
):
    """S22, for a plain append and for a batch."""
    async with NatsProxy(shared_nats_server.port) as proxy:
        far = cp.connect(proxy.url, cell=plane.cell)
        async with far:
            await far.ports.claim(1, WITHIN, **FOREIGN)
            proxy.lose_answers(1, plane.names.log_stream, breaking=True)
            block = await far.ports.claim(size, WITHIN, **FOREIGN)
            assert proxy.lost == 1
            held = check_ports(await port_records(plane.log))["host-of-others"]
            assert [p for p in held if held[p] == block.claim_id] == list(block)
            assert len(held) == 1 + size
            proxy.lose_answers(1, plane.names.log_stream, breaking=True)
            await far.ports.release(block)
            held = check_ports(await port_records(plane.log))["host-of-others"]
            assert len(held) == 1


async def test_a_claim_that_is_given_up_is_settled_and_released(
    shared_nats_server, plane
):
    """The acknowledgement is lost, and whoever waited for it is cancelled."""
    async with (
        NatsProxy(shared_nats_server.port) as proxy,
        cp.connect(proxy.url, cell=plane.cell) as far,
    ):
        await far.ports.claim(1, WITHIN, **FOREIGN)
        proxy.lose_answers(1, plane.names.log_stream)
        claiming = asyncio.create_task(far.ports.claim(8, WITHIN, **FOREIGN))
        await eventually(lambda: proxy.lost)
        assert await holds(plane, 9)
        claiming.cancel()
        with pytest.raises(asyncio.CancelledError):
            await claiming
        await eventually(lambda: holds(plane, 1), 10)
    await eventually(lambda: holds(plane, 0), 5)


async def holds(plane: cp.Plane, ports: int) -> bool:
    """Whether so many ports are held at the log's end, and none was held in between."""
    held = check_ports(await port_records(plane.log))
    return sum(map(len, held.values())) == ports


async def test_a_port_in_use_outside_the_log_is_skipped_told_and_tried_again(plane):
    """S23: another program listens inside every block but one, then it goes."""
    block = await plane.ports.claim(8, WITHIN)
    await plane.ports.release(block)
    with ExitStack() as listening:
        for start in range(WITHIN.first, WITHIN.last - 8, 8):
            listening.enter_context(socket.create_server(("127.0.0.1", start + 3)))
        only = await plane.ports.claim(8, WITHIN)
        assert only.start == WITHIN.last - 7
        with pytest.raises(cp.PortsExhaustedError):
            await plane.ports.claim(8, WITHIN)
    unusable = [
        record.event.port
        for record in await port_records(plane.log)
        if isinstance(record.event, PortReleased) and record.event.cause == "unusable"
    ]
    assert set(unusable) == {start + 3 for start in range(20000, 20072, 8)}
    again = await plane.ports.claim(8, WITHIN)
    assert again.start != only.start
    await plane.ports.release(again)


async def test_what_a_claim_holds_can_be_bound_at_once_by_an_engine(plane):
    block = await plane.ports.claim(8, WITHIN)
    for port in block:
        for family, address in ((socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::")):  # noqa: S104
            if family == socket.AF_INET6 and not socket.has_dualstack_ipv6():
                continue
            with socket.socket(family) as engine:
                engine.bind((address, port))
                engine.listen()


async def test_a_stray_release_does_not_make_a_held_port_grantable(plane):
    """The fold says who holds a port, and not the last record on its subject."""
    small = cp.PortRange(20000, 20007)
    block = await plane.ports.claim(8, small, **FOREIGN)
    for port in block:
        stray = PortReleased(
            event_id=new_uuid7(),
            at=(await plane.log.state()).now,
            by="somebody",
            host=block.host,
            port=port,
            claim_id=new_uuid7(),
            cause="released",
        )
        await plane.log.append_all([Pending(stray)])
    async with cp.connect(plane.url, cell=plane.cell, settings=plane.settings) as other:
        for one in (plane, other):
            with pytest.raises(cp.PortsExhaustedError):
                await one.ports.claim(8, small, **FOREIGN)
            table = await one.ports.table(block.host)
            assert {row.claim_id for row in table.values()} == {block.claim_id}
    await plane.ports.release(block)
    assert (await plane.ports.claim(8, small, **FOREIGN)).start == 20000


async def test_leaving_the_plane_releases_its_claims_in_time(shared_nats_server, plane):
    loop = asyncio.get_running_loop()
    async with cp.connect(shared_nats_server.url, cell=plane.cell) as leaving:
        for size in (1, 8, 400, 800):
            await leaving.ports.claim(size, cp.PortRange(20000, 29999), **FOREIGN)
        assert await holds(plane, 1209)
        began = loop.time()
    assert loop.time() - began < 5.0
    assert await holds(plane, 0)


async def test_a_host_with_two_thousand_port_subjects_works(plane):
    wide = cp.PortRange(20000, 29999)
    blocks = [await plane.ports.claim(500, wide, **FOREIGN) for _ in range(4)]
    await plane.ports.release(blocks[0])
    async with cp.connect(plane.url, cell=plane.cell, settings=plane.settings) as other:
        table = await other.ports.table("host-of-others")
        assert sorted(table) == sorted(port for b in blocks[1:] for port in b)
        block = await other.ports.claim(8, wide, **FOREIGN)
        assert not set(block) & set(table)


async def test_a_released_port_rests_for_the_cool_down_by_the_broker_s_clock(
    shared_nats_server,
):
    small = cp.PortRange(20000, 20001)
    async with cell_at(shared_nats_server.url, port_cooldown_s=1.0) as plane:
        block = await plane.ports.claim(2, small, **FOREIGN)
        await plane.ports.release(block)
        with pytest.raises(cp.PortsExhaustedError) as refused:
            await plane.ports.claim(2, small, **FOREIGN)
        assert (refused.value.free, refused.value.resting) == (0, 2)
        table = await plane.ports.table("host-of-others")
        assert {row.state for row in table.values()} == {"resting"}

        async def claimed():
            return await plane.ports.claim(2, small, **FOREIGN)

        await eventually(claimed, 5, but_for=(cp.PortsExhaustedError,))
        released, claim = (await port_records(plane.log))[-3:-1]
        assert (claim.recorded_at - released.recorded_at).total_seconds() >= 1.0
