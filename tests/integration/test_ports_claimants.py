"""Fifty processes on one host and fifty on another claim at once. S21."""

from __future__ import annotations

import time

import pytest

import controlplane as cp
from controlplane.ports.host import host_name
from tests.support.port_claimants import Plan, claimants
from tests.support.port_log import check_ports, port_records
from tests.support.servers import unique
from tests.support.waiting import eventually

HERE, THERE = host_name(), "host-of-others"
WITHIN = cp.PortRange(20000, 20399)
START_S = 30.0
"""A hundred processes start and connect, on two cores that others use too."""
pytestmark = pytest.mark.timeout(120)


@pytest.fixture
async def plane(shared_nats_server):
    cell = unique("ports").lower()
    async with cp.connect(shared_nats_server.url, cell=cell) as made:
        await made.init()
        yield made


async def test_fifty_processes_on_each_of_two_hosts_fill_the_range_exactly(plane):
    plan = Plan(
        url=plane.url,
        cell=plane.cell,
        hosts={HERE: 51, THERE: 50},
        size=8,
        within=(WITHIN.first, WITHIN.last),
        this_host=HERE,
    )
    async with claimants(plan) as said:
        answers = await said(101, START_S)
        granted = [answer for answer in answers if answer.start]
        (refused,) = [answer for answer in answers if not answer.start]
        assert refused.host == HERE
        assert refused.error.startswith("PortsExhaustedError: ")
        for host in (HERE, THERE):
            starts = sorted(answer.start for answer in granted if answer.host == host)
            assert starts == list(range(WITHIN.first, WITHIN.last, 8))
        held = check_ports(await port_records(plane.log))
        every = list(range(WITHIN.first, WITHIN.last + 1))
        assert {host: sorted(ports) for host, ports in held.items()} == {
            HERE: every,
            THERE: every,
        }
        began = time.monotonic()
        with pytest.raises(cp.PortsExhaustedError) as exhausted:
            await plane.ports.claim(1, WITHIN, host=HERE)
        # An answer, and no timeout, though a hundred processes share the machine.
        assert time.monotonic() - began < 4.0
        assert (exhausted.value.free, exhausted.value.resting) == (0, 0)
        said.leave()
        await eventually(lambda: all_rest(plane), 20)


async def all_rest(plane: cp.Plane) -> bool:
    """Everybody left, and released what he held."""
    return not check_ports(await port_records(plane.log))
