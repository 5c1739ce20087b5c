"""`controlplane run` as a process, its child, and what the log says of both."""

import asyncio
import json
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from controlplane.sidecar.asking import get
from events import PortClaimed, PortReleased, WorkerRegistered, WorkerStatusChanged
from tests.support.cells import ProjectedCell
from tests.support.commands import Ended, spawn
from tests.support.waiting import eventually

ENGINE = (sys.executable, str(Path(__file__).parent / "engine_process.py"), "{http}")
HEALTH = ("--health", "http://127.0.0.1:{http}/health")
QUICK = {
    "--health-interval": "0.05",
    "--metrics-interval": "0.05",
    "--drain-min": "0.1",
    "--stop-timeout": "1",
}
WORKER = ("--model", "m", "--namespace", "prod", "--worker-id", "w1")
END_S = 20.0


class RunningSidecar:
    """A sidecar whose engine listens."""

    def __init__(self, cell: ProjectedCell, process: asyncio.subprocess.Process):
        self.cell, self.process = cell, process

    @property
    def pid(self) -> int:
        return self.process.pid

    async def events(self) -> list[Any]:
        return [record.event for record in await self.cell.records()]

    async def address(self) -> str:
        """Where its engine answers."""

        async def answers() -> str | None:
            found = [e for e in await self.events() if isinstance(e, PortClaimed)]
            port = next((e.port for e in found if e.reason == "http"), None)
            url = f"http://127.0.0.1:{port}"
            return url if port and (await get(f"{url}/told", 1.0)).good else None

        return await eventually(answers, 10.0, but_for=(OSError,), poll_s=0.02)

    async def ask(self, path: str) -> Any:
        """What its engine answers to ``path``."""
        return await self.ask_at(await self.address(), path)

    @staticmethod
    async def ask_at(address: str, path: str) -> Any:
        """The same of an engine whose address is known."""
        answer = await get(f"{address}/{path}", 5.0)
        return json.loads(answer.body) if path == "told" else answer.body.decode()

    async def statuses(self) -> list[str]:
        """What it said in the log, the registration first."""
        return [
            event.status.value
            for event in await self.events()
            if isinstance(event, WorkerRegistered | WorkerStatusChanged)
        ]

    async def says(self, *statuses: str) -> None:
        """Wait until the log has just these, in this order."""

        async def said() -> bool:
            return await self.statuses() == list(statuses)

        await eventually(said, 10.0, poll_s=0.02)

    async def ports_held(self) -> int:
        events = await self.events()
        claimed = sum(isinstance(event, PortClaimed) for event in events)
        return claimed - sum(isinstance(event, PortReleased) for event in events)

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    async def ended(self) -> Ended:
        """What it leaves behind when it has ended by itself, or by a signal sent."""
        async with asyncio.timeout(END_S):
            out, err = await self.process.communicate()
        return Ended(self.process.returncode, out.decode(), err.decode(), 0.0)

    async def terminated(self) -> Ended:
        self.signal(signal.SIGTERM)
        return await self.ended()


@asynccontextmanager
async def sidecar(
    cell: ProjectedCell, *arguments: str, url: str | None = None, **environ: str
) -> AsyncIterator[RunningSidecar]:
    """Run ``controlplane run`` with ``arguments`` after those of a quick worker."""
    quick = {k: v for k, v in QUICK.items() if k not in arguments}
    process = await spawn(
        "run",
        *WORKER,
        *(word for pair in quick.items() for word in pair),
        *arguments,
        NATS_URL=url or cell.broker.url,
        CP_CELL=cell.cell,
        **environ,
    )
    try:
        yield RunningSidecar(cell, process)
    finally:
        if process.returncode is None:
            process.kill()
            await process.communicate()


def is_alive(pid: int) -> bool:
    """Whether a process runs; a zombie does not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"
