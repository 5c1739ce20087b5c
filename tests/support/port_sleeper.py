"""``python -m tests.support.port_sleeper URL CELL`` claims a block for each line.

Each block's first port is said in a line of its own.
"""

from __future__ import annotations

import asyncio
import sys

import controlplane as cp

HOST = "host-of-sleepers"
LEASE_TTL_S = 5.0


async def main(url: str, cell: str) -> None:
    """Claim until the lines end."""
    async with cp.connect(url, cell=cell) as plane:
        while await asyncio.to_thread(sys.stdin.readline):
            block = await plane.ports.claim(
                2, host=HOST, lease_ttl_s=LEASE_TTL_S, bind_check=False
            )
            sys.stdout.write(f"{block.start}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
