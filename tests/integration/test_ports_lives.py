"""Claims that no worker owns: they live as long as their plane is heard."""

from __future__ import annotations

import asyncio

import pytest

import controlplane as cp
from tests.support.port_log import check_ports, port_records
from tests.support.proxy import Proxy
from tests.support.servers import unique
from tests.support.waiting import eventually

TTL_S = 5.0
LATE_S = 2.0
BUSY_S = 5.0
"""What a machine that others use too may take longer."""
SMALL = cp.PortRange(20000, 20007)
WIDE = cp.PortRange(20100, 20199)
FAR = {"host": "host-of-others", "bind_check": False, "lease_ttl_s": TTL_S}
SETTINGS = cp.Settings(port_cooldown_s=0.5, append_timeout_s=1.0)
pytestmark = pytest.mark.timeout(120)


async def test_a_zombie_s_ports_go_to_another_who_keeps_them(
    shared_nats_server, caplog
):
    """S13: silent past its lease, expired, its block given to another; it wakes up."""
    cell, url = unique("ports").lower(), shared_nats_server.url
    options = {"cell": cell, "settings": SETTINGS}
    async with (
        Proxy(shared_nats_server.port) as proxy,
        cp.connect(url, **options) as plane,
    ):
        await plane.init()
        async with (
            cp.Projector(plane, http=False),
            cp.connect(proxy.url, **options) as zombie,
        ):
            living = await plane.ports.claim(8, WIDE, **FAR)
            old = await zombie.ports.claim(8, SMALL, **FAR)
            proxy.pause()
            with pytest.raises(cp.PortsExhaustedError):
                await plane.ports.claim(8, SMALL, **FAR)

            async def taken() -> cp.PortBlock:
                return await plane.ports.claim(8, SMALL, **FAR)

            within_s = TTL_S + LATE_S + SETTINGS.port_cooldown_s + BUSY_S
            new = await eventually(
                taken, within_s, but_for=(cp.PortsExhaustedError,), poll_s=0.1
            )
            proxy.resume()
            with pytest.raises(cp.AppendConflictError):
                await eventually(
                    lambda: zombie.ports.release(old),
                    10,
                    but_for=(cp.LogUnavailableError,),
                )
            table = await zombie.ports.table("host-of-others")
            owners = {row.port: row.claim_id for row in table.values()}
            expected = {p: b.claim_id for b in (living, new) for p in b}
            assert owners == expected
            again = await zombie.ports.claim(8, WIDE, **FAR)
            assert not set(again) & set(living)
        records = await port_records(plane.log)
        assert check_ports(records)["host-of-others"] == expected


async def test_a_life_that_the_leader_calls_over_gets_no_more_ports(
    shared_nats_server, caplog
):
    cell, url = unique("ports").lower(), shared_nats_server.url
    options = {"cell": cell, "settings": SETTINGS}
    async with (
        Proxy(shared_nats_server.port) as proxy,
        cp.connect(url, **options) as plane,
    ):
        await plane.init()
        async with (
            cp.Projector(plane, http=False),
            cp.connect(proxy.url, **options) as zombie,
        ):
            old = await zombie.ports.claim(8, SMALL, **FAR)
            owner = (await plane.ports.table("host-of-others"))[old.start].owner
            proxy.pause()

            async def expired() -> bool:
                events = [record.event async for record in plane.log.read()]
                return any(isinstance(event, cp.WorkerExpired) for event in events)

            await eventually(expired, TTL_S + LATE_S + BUSY_S, poll_s=0.1)
            proxy.resume()
            await eventually(lambda: "claims without a worker" in caplog.text, 15)
            new = await zombie.ports.claim(8, WIDE, **FAR)
            table = await plane.ports.table("host-of-others")
            assert table[new.start].owner.incarnation != owner.incarnation


async def test_a_block_that_is_held_in_a_context_is_let_go_at_its_end(
    shared_nats_server,
):
    cell = unique("ports").lower()
    async with cp.connect(shared_nats_server.url, cell=cell) as plane:
        await plane.init()
        hold = plane.ports.hold(8, SMALL, reason="nixl", **FAR)
        block = await hold.__aenter__()
        table = await plane.ports.table("host-of-others")
        assert sorted(table) == list(block)
        assert {row.reason for row in table.values()} == {"nixl"}
        assert {row.state for row in table.values()} == {"held"}
        await hold.__aexit__(None, None, None)
        table = await plane.ports.table("host-of-others")
        assert {row.state for row in table.values()} == {"resting"}


async def test_leaving_cancelled_or_without_a_broker_takes_no_longer(
    shared_nats_server,
):
    loop = asyncio.get_running_loop()
    cell, url = unique("ports").lower(), shared_nats_server.url
    async with (
        Proxy(shared_nats_server.port) as proxy,
        cp.connect(url, cell=cell) as plane,
    ):
        await plane.init()
        cut_off = await cp.connect(proxy.url, cell=cell).start()
        await cut_off.ports.claim(8, SMALL, **FAR)
        proxy.pause()
        began = loop.time()
        leaving = asyncio.create_task(cut_off.stop())
        await asyncio.sleep(0)
        leaving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await leaving
        assert loop.time() - began < 8.0  # 5 s, and closing two dead connections
