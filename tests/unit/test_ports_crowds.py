"""Where others claim at the same time it is asked first whether a batch can stand."""

from __future__ import annotations

import asyncio

import pytest
from prometheus_client import CollectorRegistry

import controlplane as cp
from controlplane.telemetry import PortMetrics
from events import port_subject
from projections import Want
from tests.support.port_hosts import HOST, SMALL, Host, claim

CELLS = len(SMALL) // 8
ELSEWHERE = cp.PortRange(21000, 21007)
WIDE = cp.PortRange(30000, 39999)


@pytest.fixture
async def host():
    made = Host()
    yield made
    for broker in made.brokers:
        await broker.stop()


def refusals(registry: CollectorRegistry) -> float:
    return registry.get_sample_value("controlplane_ports_races_lost_total") or 0.0


async def test_after_one_lost_race_no_batch_is_sent_that_is_bound_to_be_refused(host):
    registry = CollectorRegistry()
    one = await host.claimer(seed=7)
    two = await host.claimer(seed=7, metrics=PortMetrics(registry))
    blocks = [await claim(two, Want("", 8, SMALL))]  # two knows the host from now on
    others = [await claim(one, Want("", 8, SMALL)) for _ in range(CELLS // 2)]
    two.watch(HOST).beside = others[0][0].start
    mine = CELLS - len(others) - len(blocks)
    blocks += [await claim(two, Want("", 8, SMALL)) for _ in range(mine)]
    # Half of what two knows as free was taken: it lost once, and asked from then on.
    assert refusals(registry) == 1
    ports = [port for (block,) in [*blocks, *others] for port in block]
    assert sorted(ports) == list(range(SMALL.first, SMALL.last + 1))


async def test_who_sees_that_others_write_asks_before_it_loses(host):
    registry = CollectorRegistry()
    one = await host.claimer(seed=7)
    two = await host.claimer(seed=7, metrics=PortMetrics(registry))
    await two.watch(HOST).look()
    for _ in range(CELLS - 1):
        await claim(one, Want("", 8, SMALL))
    await claim(two, Want("", 8, ELSEWHERE))  # its records do not follow what it read
    await claim(two, Want("", 8, SMALL))
    assert refusals(registry) == 0


async def test_who_is_alone_asks_nothing(host):
    claimer = await host.claimer()
    await claim(claimer, Want("", 8, SMALL))
    asked = host.brokers[0].lasts
    await asyncio.gather(*(claim(claimer, Want("", 8, SMALL)) for _ in range(20)))
    blocks = [await claim(claimer, Want("", 8, SMALL)) for _ in range(5)]
    assert host.brokers[0].lasts == asked
    assert blocks


async def test_who_claims_again_begins_beside_its_last_block(host):
    claimer = await host.claimer()
    blocks = [await claim(claimer, Want("", 8, WIDE)) for _ in range(5)]
    first = blocks[0][0].start
    assert [b.start for (b,) in blocks] == [first + 8 * n for n in range(5)]


async def test_who_meets_others_beside_its_last_block_goes_elsewhere(host):
    one, two = await host.claimer(seed=1), await host.claimer(seed=2)
    (block,) = await claim(one, Want("", 8, WIDE))
    beside = range(block.start + 8, block.start + 16)
    await claim(two, Want("", 8, cp.PortRange(beside[0], beside[-1])))
    (far,) = await claim(one, Want("", 8, WIDE))
    assert far.start not in range(block.start, block.start + 24)
    (beside_far,) = await claim(one, Want("", 8, WIDE))
    assert beside_far.start == far.start + 8


async def test_a_lone_port_is_tried_without_a_question(host):
    registry = CollectorRegistry()
    one = await host.claimer(seed=7)
    two = await host.claimer(seed=7, metrics=PortMetrics(registry))
    await claim(two, Want("", 8, SMALL))
    before = [await claim(one, Want("", 8, SMALL)) for _ in range(CELLS // 2)]
    await claim(two, Want("", 8, SMALL))
    asked = host.brokers[1].lasts
    after = [await claim(two, Want("", 1, SMALL)) for _ in range(20)]
    # Looks ask, too, but seldom; a question before each would be as many as claims.
    assert host.brokers[1].lasts - asked <= 20 // 2
    ports = [port for (block,) in [*before, *after] for port in block]
    assert len(ports) == len(set(ports))


NARROW = cp.PortRange(22000, 22079)
"""Ten blocks of 8."""


@pytest.mark.parametrize("seed", range(8))
async def test_who_goes_elsewhere_keeps_out_of_the_way_of_others(host, seed):
    one, two = await host.claimer(seed=1), await host.claimer(seed=seed)
    await two.watch(HOST).look()
    (theirs,) = await claim(one, Want("", 8, cp.PortRange(22024, 22031)))
    await claim(two, Want("", 8, ELSEWHERE))  # others were met
    (block,) = await claim(two, Want("", 8, NARROW))
    assert block.start not in (theirs.start + 8, theirs.start + 16)


async def test_where_nothing_else_is_free_the_way_of_others_will_do(host):
    one, two = await host.claimer(seed=1), await host.claimer(seed=2)
    await two.watch(HOST).look()
    (theirs,) = await claim(one, Want("", 8, cp.PortRange(22024, 22031)))
    await claim(two, Want("", 8, ELSEWHERE))
    last = cp.PortRange(theirs.start + 8, theirs.start + 15)
    (block,) = await claim(two, Want("", 8, last))
    assert block.start == last.first


async def test_records_that_were_removed_are_no_sign_of_others(host):
    """Else the block is chosen, asked for and left again, for as long as it is free."""
    one, two = await host.claimer(seed=1), await host.claimer(seed=2)
    only = cp.PortRange(20000, 20007)
    await claim(one, Want("", 8, WIDE))  # the host's first record stays
    (block,) = await claim(two, Want("", 8, only))
    await two.release(block)
    await two.watch(HOST).look()
    log = two._log
    for port in block:
        subject = log.names.absolute(port_subject(HOST, port))
        await host.brokers[1].purge_stream(log.names.log_stream, subject=subject)
    await claim(one, Want("", 8, NARROW))
    await claim(two, Want("", 8, ELSEWHERE))  # others were met
    async with asyncio.timeout(5.0):
        (again,) = await claim(two, Want("", 8, only))
    assert again.start == block.start
