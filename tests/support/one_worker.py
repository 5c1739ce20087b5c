"""A worker as a process of its own: ``python -m tests.support.one_worker ID [block]``.

It registers as ready with the shortest lease and stays. When its standard input says
``block``, its event loop does nothing for so many seconds.
"""

from __future__ import annotations

import asyncio
import sys
import time

import controlplane as cp


async def main(worker_id: str) -> None:
    """Serve nothing, but be there."""
    spec = cp.WorkerSpec(
        model="llama",
        address="http://127.0.0.1:8000",
        namespace="prod",
        worker_id=worker_id,
        lease_ttl_s=5.0,
        status=cp.Status.READY,
    )
    async with cp.connect() as plane, plane.worker(spec) as worker:
        print(worker.incarnation, flush=True)  # noqa: T201 - the test reads it
        while True:
            line = await asyncio.to_thread(sys.stdin.readline)
            if not line:
                return
            word, seconds = line.split()
            if word == "block":
                _block(float(seconds))


def _block(seconds: float) -> None:
    """Hold the event loop, as a model that loads does."""
    time.sleep(seconds)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
