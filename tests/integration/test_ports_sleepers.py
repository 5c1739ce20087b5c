"""A process that was stopped for longer than its lease claims for another life."""

from __future__ import annotations

import asyncio
import signal
import sys

import pytest

import controlplane as cp
from events import PortClaimed, WorkerExpired
from tests.support.port_log import check_ports, port_records
from tests.support.port_sleeper import HOST, LEASE_TTL_S
from tests.support.servers import unique
from tests.support.waiting import eventually

LATE_S = 2.0
BUSY_S = 8.0
"""What a machine that others use too may take longer."""
pytestmark = pytest.mark.timeout(60)


async def test_an_ended_life_does_not_come_back_in_a_process_that_wakes_up(
    shared_nats_server,
):
    cell, url = unique("ports").lower(), shared_nats_server.url
    async with cp.connect(url, cell=cell) as plane:
        await plane.init()
        async with cp.Projector(plane, http=False):
            await plane.ports.claim(2, host="awake", bind_check=False)
            sleeper = await asyncio.create_subprocess_exec(
                sys.executable,
                *("-m", "tests.support.port_sleeper", url, cell),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
            )
            try:
                await claim(sleeper)
                sleeper.send_signal(signal.SIGSTOP)

                async def expired() -> bool:
                    records = await port_records(plane.log)
                    return any(isinstance(r.event, WorkerExpired) for r in records)

                await eventually(expired, LEASE_TTL_S + LATE_S + BUSY_S, poll_s=0.1)
                claiming = asyncio.create_task(claim(sleeper))
                await asyncio.sleep(0)  # it is told before it wakes up
                sleeper.send_signal(signal.SIGCONT)
                new = await claiming
                records = await port_records(plane.log)
                assert set(check_ports(records)[HOST]) == {new, new + 1}
            finally:
                sleeper.kill()
                await sleeper.wait()
    claims = [r.event for r in records if isinstance(r.event, PortClaimed)]
    lives = [claim.owner.incarnation for claim in claims if claim.host == HOST]
    assert len(lives) == 4
    assert len(set(lives)) == 2
    assert set(lives[:2]).isdisjoint(lives[2:])


async def claim(sleeper: asyncio.subprocess.Process) -> int:
    """Have it claim; the first port of its block."""
    assert sleeper.stdin is not None
    assert sleeper.stdout is not None
    sleeper.stdin.write(b"claim\n")
    return int(await sleeper.stdout.readline())
