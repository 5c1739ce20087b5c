"""Measured processes: started by name, their processor time read from the kernel."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")


@asynccontextmanager
async def running(
    *arguments: str, url: str
) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run ``python -m arguments`` against the broker at ``url``; ended on leaving."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        *arguments,
        env={**os.environ, "NATS_URL": url},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


def processor_s(pid: int) -> float:
    """Seconds of processor time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS
