"""Claims in the log, over a broker in memory: granted whole, or not at all."""

from __future__ import annotations

import asyncio
from random import Random

import msgspec
import pytest

import controlplane as cp
from controlplane import topology
from controlplane.broker.memory import MemoryBroker, MemoryServer
from controlplane.clock import SystemClock
from controlplane.eventlog import EventLog, Pending
from controlplane.identifiers import new_uuid7
from controlplane.ports.claimer import Claimer
from events import PortClaimed, PortOwner, PortReleased
from projections import PORTS_MAX, PortBlock, Want
from tests.support.lossy import LossyBroker

HOST = "10.0.0.9"
SMALL = cp.PortRange(20000, 20399)
NO_REST = cp.Settings(port_cooldown_s=0)


class Host:
    """Claimants of one cell; each has a log and a client of its own."""

    def __init__(self) -> None:
        self.server = MemoryServer()
        self.brokers: list[LossyBroker] = []

    async def claimer(self, settings: cp.Settings = NO_REST, seed: int = 1) -> Claimer:
        broker = LossyBroker(MemoryBroker(self.server, connect_timeout_s=1.0))
        await broker.start()
        self.brokers.append(broker)
        await topology.init(broker, "default", settings)
        log = EventLog(broker, "default", settings)
        return Claimer(
            log=log,
            broker=broker,
            clock=SystemClock(),
            settings=settings,
            by="test",
            chance=Random(seed),
        )


@pytest.fixture
async def host():
    made = Host()
    yield made
    for broker in made.brokers:
        await broker.stop()


def owner(worker_id: str = "w1") -> PortOwner:
    return PortOwner(namespace="prod", worker_id=worker_id, incarnation=new_uuid7())


async def claim(claimer: Claimer, *wants: Want, **options) -> tuple[PortBlock, ...]:
    options = {"owner": owner(), "lease_ttl_s": 30.0, "bind_check": False, **options}
    return (await claimer.claim(wants, host=HOST, **options)).blocks


async def test_a_claim_is_one_batch_of_its_ports(host):
    claimer = await host.claimer()
    me = owner()
    (one, two) = await claim(
        claimer, Want("kv", 1, SMALL), Want("nixl", 8, SMALL), owner=me
    )
    assert (one.size, two.size) == (1, 8)
    assert not set(one) & set(two)
    log = claimer._log
    records = [record async for record in log.read()]
    assert [r.event.port for r in records] == [*one, *two]
    assert [r.event.reason for r in records] == ["kv"] + ["nixl"] * 8
    assert {r.event.owner for r in records} == {me}
    assert {r.event.claim_id for r in records} == {one.claim_id, two.claim_id}


async def test_equal_claims_of_many_fill_a_range_exactly_and_no_more(host):
    claimers = [await host.claimer(seed=n) for n in range(10)]
    blocks = await asyncio.gather(
        *(claim(c, Want("", 8, SMALL)) for c in claimers for _ in range(5))
    )
    ports = sorted(port for (block,) in blocks for port in block)
    assert ports == list(range(20000, 20400))
    with pytest.raises(cp.PortsExhaustedError) as refused:
        await claim(claimers[0], Want("", 8, SMALL))
    assert (refused.value.wanted, refused.value.free) == (8, 0)
