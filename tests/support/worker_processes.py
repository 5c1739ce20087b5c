"""Workers as processes of their own, to be killed, stopped and blocked."""

from __future__ import annotations

import asyncio
import os
import sys
from contextlib import asynccontextmanager

TTL_S = 5.0
"""The lease of `one_worker`: the shortest that there is."""


@asynccontextmanager
async def worker_process(url: str, worker_id: str):
    """Run a worker process; its first life's incarnation is read."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "tests.support.one_worker", worker_id),
        env={**os.environ, "NATS_URL": url},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        line = await asyncio.wait_for(process.stdout.readline(), 20)
        yield process, line.decode().strip()
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
