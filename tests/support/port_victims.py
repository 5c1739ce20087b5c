"""Processes that claim and release for as long as they live, which is not long.

``python -m tests.support.port_victims URL CELL KILLS AT_ONCE SEED``: so many are killed
with SIGKILL, each at a moment that chance chooses, from its birth on. A victim says
nothing and cleans nothing up. At the end the pids of the killed are said, as JSON.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from random import Random

import msgspec

import controlplane as cp
from controlplane.server import die_with
from tests.support.forking import be_ready_to_fork

LEASE_TTL_S = 5.0
HOST = "host-of-victims"
WITHIN = cp.PortRange(20000, 29999)
SETTINGS = cp.Settings(port_cooldown_s=1.0)
LIFE_S_MAX = 0.4
"""Connecting takes a victim the first quarter of it or so."""


async def claim_and_release(url: str, cell: str, chance: Random) -> None:
    """Claim blocks of any size, in two tasks at once; release some of them."""
    async with cp.connect(url, cell=cell, settings=SETTINGS) as plane:

        async def go_on() -> None:
            while True:
                block = await plane.ports.claim(
                    chance.choice((1, 2, 8, 32)),
                    WITHIN,
                    host=HOST,
                    lease_ttl_s=LEASE_TTL_S,
                    bind_check=False,
                )
                if chance.random() < 0.8:
                    await plane.ports.release(block)

        await asyncio.gather(go_on(), go_on())


def victim(url: str, cell: str, seed: int) -> int:
    """Begin one; its pid."""
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        die_with(parent)()
        asyncio.run(claim_and_release(url, cell, Random(seed)))
        os._exit(1)
    return pid


def main(url: str, cell: str, kills: int, at_once: int, seed: int) -> None:
    """Begin ``at_once``, and another for each that was killed."""
    be_ready_to_fork()
    chance, begun, killed = Random(seed), 0, []
    due: list[tuple[float, int]] = []
    while len(killed) < kills:
        while begun < kills and len(due) < at_once:
            pid = victim(url, cell, seed + begun)
            due.append((time.monotonic() + chance.random() * LIFE_S_MAX, pid))
            begun += 1
        due.sort()
        at, pid = due.pop(0)
        time.sleep(max(0.0, at - time.monotonic()))
        os.kill(pid, signal.SIGKILL)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL
        killed.append(pid)
    sys.stdout.write(msgspec.json.encode(killed).decode())


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], *map(int, sys.argv[3:]))
