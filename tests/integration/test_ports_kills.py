"""Claimants are killed at any moment: what they held is free after a lease and a rest.

Two hundred times; ``PORT_KILLS=2000`` by hand.
"""

from __future__ import annotations

import asyncio
import os
import sys

import msgspec
import pytest

import controlplane as cp
from events import PortClaimed
from tests.support.port_log import check_ports, port_records
from tests.support.port_victims import HOST, LEASE_TTL_S, SETTINGS, WITHIN
from tests.support.servers import unique
from tests.support.waiting import eventually

KILLS = int(os.environ.get("PORT_KILLS", "200"))
AT_ONCE = 8
LATE_S = 2.0
"""The promise: a dead life is over that long after its lease."""
BUSY_S = 5.0
"""What a machine that others use too may take longer."""
BRAKE_OFF = msgspec.structs.replace(SETTINGS, guard_hold_s=0.1)
"""The projector would wait for more than half of all lives to come back."""
pytestmark = pytest.mark.timeout(300)


async def killed(url: str, cell: str, seed: int) -> list[int]:
    """Have so many victims killed; their pids."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "tests.support.port_victims", url, cell),
        *(str(KILLS), str(AT_ONCE), str(seed)),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    said, _ = await process.communicate()
    assert process.returncode == 0
    return msgspec.json.decode(said, type=list[int])


async def test_after_a_lease_and_a_rest_the_table_holds_exactly_the_living(
    shared_nats_server, processes
):
    cell, url = unique("ports").lower(), shared_nats_server.url
    async with cp.connect(url, cell=cell, settings=SETTINGS) as plane:
        await plane.init()
        projector = processes.projector(url, cell, "judge", BRAKE_OFF)
        living = [
            await plane.ports.claim(
                size, WITHIN, host=HOST, lease_ttl_s=LEASE_TTL_S, bind_check=False
            )
            for size in (1, 8, 32)
        ]
        pids = await killed(url, cell, seed=1)
        within_s = LEASE_TTL_S + LATE_S + SETTINGS.port_cooldown_s + BUSY_S
        theirs = {port: block.claim_id for block in living for port in block}

        async def only_the_living() -> bool:
            table = await plane.ports.table(HOST)
            return {port: row.claim_id for port, row in table.items()} == theirs

        await eventually(only_the_living, within_s, poll_s=0.05)
        assert projector.running
        records = await port_records(plane.log)
        assert check_ports(records) == {HOST: theirs}
        claims = [r.event for r in records if isinstance(r.event, PortClaimed)]
        dead = {claim.pid for claim in claims} & set(pids)
        assert len(dead) > KILLS // 20, "too few lived long enough to claim"
