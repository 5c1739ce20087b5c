"""The command line as a process, as a shell runs it."""

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import controlplane as cp
from controlplane.clock import SystemClock
from controlplane.identifiers import new_uuid7

COMMAND = (sys.executable, "-m", "controlplane.cli")
ROOT = Path(__file__).parents[2]
TIMEOUT_S = 30.0
OURS = ("NATS_URL", "NATS_CREDS", "CP_CELL", "COLUMNS", "FORCE_COLOR")


class Ended:
    """What a command answered."""

    def __init__(self, code: int, out: str, err: str, seconds: float) -> None:
        self.code, self.out, self.err, self.seconds = code, out, err, seconds

    def __repr__(self) -> str:
        return f"exit {self.code} in {self.seconds:.1f} s\n{self.out}\n{self.err}"

    @property
    def document(self) -> Any:
        """Its stdout as JSON."""
        return json.loads(self.out)

    @property
    def lines(self) -> list[str]:
        """Its stdout, line by line."""
        return self.out.splitlines()


class Running:
    """A command that runs until a signal."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process, self._began = process, time.monotonic()
        self.seen = ""

    async def line_with(self, text: str) -> str:
        """The next line of stdout that has ``text``."""
        async with asyncio.timeout(TIMEOUT_S):
            while True:
                raw = await self.process.stdout.readline()
                line = raw.decode()
                self.seen += line
                if text in line:
                    return line.strip()
                assert raw, f"it ended before {text!r}: {await self._errors()}"

    async def end(self, number: int = signal.SIGINT) -> Ended:
        """Signal it; what it answered since the last line read."""
        self.process.send_signal(number)
        async with asyncio.timeout(TIMEOUT_S):
            out, err = await self.process.communicate()
        seconds = time.monotonic() - self._began
        return Ended(self.process.returncode, out.decode(), err.decode(), seconds)

    async def _errors(self) -> str:
        return (await self.process.stderr.read()).decode()


async def spawn(
    *arguments: str, stdout: int = asyncio.subprocess.PIPE, **environ: str
) -> asyncio.subprocess.Process:
    """Start ``controlplane ARGUMENTS``."""
    inherited = {k: v for k, v in os.environ.items() if k not in OURS}
    return await asyncio.create_subprocess_exec(
        *COMMAND,
        *arguments,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=stdout,
        stderr=asyncio.subprocess.PIPE,
        env={**inherited, **environ},
        cwd=ROOT,
    )


async def command(*arguments: str, **environ: str) -> Ended:
    """Run ``controlplane ARGUMENTS`` to its end."""
    began = time.monotonic()
    process = await spawn(*arguments, **environ)
    async with asyncio.timeout(TIMEOUT_S):
        out, err = await process.communicate()
    seconds = time.monotonic() - began
    return Ended(process.returncode, out.decode(), err.decode(), seconds)


@asynccontextmanager
async def running(*arguments: str, **environ: str) -> AsyncIterator[Running]:
    """Run ``controlplane ARGUMENTS``, which ends by a signal."""
    process = await spawn(*arguments, **environ)
    try:
        yield Running(process)
    finally:
        if process.returncode is None:
            process.kill()
            await process.communicate()


async def register(url: str, *names: str, cell: str | None = None) -> int:
    """Append workers with long leases and nobody behind them; the last revision."""
    revision = 0
    async with cp.connect(url, cell=cell) as plane:
        for name in names:
            revision = (await plane.log.append(registration(name))).revision
    return revision


def registration(name: str) -> cp.WorkerRegistered:
    """What a worker of namespace ``prod`` would say."""
    return cp.WorkerRegistered(
        event_id=new_uuid7(),
        at=SystemClock().now(),
        by="test",
        namespace="prod",
        worker_id=name,
        incarnation=new_uuid7(),
        component="backend",
        endpoint="generate",
        role=cp.Role.AGGREGATED,
        model="llama",
        address="http://127.0.0.1:8000",
        lease_ttl_s=3600.0,
        status=cp.Status.READY,
    )
