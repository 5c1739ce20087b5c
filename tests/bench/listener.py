"""The ceiling of hearing beats: subscribe, count, do nothing else."""

from __future__ import annotations

import sys

import uvloop

import controlplane as cp


async def main() -> None:
    """Count until ended."""
    async with cp.connect() as plane:
        await plane.connected()
        beats = await plane.broker.subscribe(plane.names.all_beats, limit=1 << 18)
        sys.stdout.write("listening\n")
        sys.stdout.flush()
        heard = 0
        async for _ in beats:
            heard += 1


if __name__ == "__main__":
    uvloop.run(main())
