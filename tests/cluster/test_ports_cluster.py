"""Fifty processes claim on a cell with three replicas while its leader is killed."""

from __future__ import annotations

import asyncio

import pytest

import controlplane as cp
from tests.cluster.test_three_servers import created
from tests.support.clusters import running_cluster
from tests.support.port_claimants import Plan, claimants
from tests.support.port_log import check_ports, port_records
from tests.support.waiting import eventually

pytestmark = pytest.mark.timeout(150)
SETTINGS = cp.Settings(connect_timeout_s=20.0, append_timeout_s=40.0)
HOST = "host-of-others"
EACH = 4
WITHIN = cp.PortRange(20000, 20000 + 50 * EACH * 8 - 1)


async def test_a_leader_killed_amid_the_claims_costs_no_block_and_grants_none_twice(
    tmp_path,
):
    async with (
        running_cluster(tmp_path) as cluster,
        cp.connect(cluster.urls, settings=SETTINGS) as plane,
    ):
        await eventually(lambda: created(plane), within_s=30)
        plan = Plan(
            url=cluster.urls,
            cell=plane.cell,
            hosts={HOST: 50},
            size=8,
            within=(WITHIN.first, WITHIN.last),
            settings=SETTINGS,
            claims=EACH,
        )
        async with claimants(plan) as said:
            answers = await said(50, 60)
            leader = await cluster.leader_of(plane.names.log_stream)
            await cluster.kill(leader)
            answers += await said(50 * EACH - 50, 90)
            assert not [answer.error for answer in answers if answer.error]
            starts = sorted(answer.start for answer in answers)
            assert starts == list(range(WITHIN.first, WITHIN.last, 8))
            await cluster.start(leader)
            held = check_ports(await port_records(plane.log))
            assert sorted(held[HOST]) == list(range(WITHIN.first, WITHIN.last + 1))
            with pytest.raises(cp.PortsExhaustedError):
                await plane.ports.claim(1, WITHIN, host=HOST, bind_check=False)
            said.leave()
            assert await asyncio.wait_for(said.ended(), 30) == 0
        assert not check_ports(await port_records(plane.log))
