"""Product processes under test: real processes, killed, stopped and continued."""

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import msgspec

from controlplane.server import die_with
from controlplane.settings import Settings

ROOT = Path(__file__).parents[2]
_STOP_S = 10.0
PROJECTOR = """
import asyncio, signal, sys
import msgspec
import controlplane as cp
from controlplane.logs import configure_logging
from controlplane.settings import Settings

async def main(url, cell, name, http, settings):
    settings = msgspec.json.decode(settings, type=Settings)
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    async with cp.connect(url, cell=cell, name=name, settings=settings) as plane:
        async with cp.Projector(plane, http=http or False, name=name) as projector:
            running = asyncio.ensure_future(projector.run())
            stopping = asyncio.ensure_future(stop.wait())
            await asyncio.wait({running, stopping}, return_when="FIRST_COMPLETED")
            running.cancel(), stopping.cancel()

configure_logging()
asyncio.run(main(*sys.argv[1:]))
"""


class Process:
    """One process of the product; it dies with the test."""

    def __init__(self, program: str, *arguments: str) -> None:
        self.log = Path(tempfile.mkstemp(prefix="process-", suffix=".log")[1])
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-c", program, *arguments],
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                preexec_fn=die_with(os.getpid()),  # noqa: PLW1509 - one syscall
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    @property
    def said(self) -> str:
        """All that it wrote so far."""
        return self.log.read_text(errors="replace")

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        self._process.kill()
        self._process.wait()

    def pause(self) -> None:
        """SIGSTOP: its sockets stay open."""
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT."""
        self._process.send_signal(signal.SIGCONT)

    async def stop(self) -> None:
        """SIGTERM, and wait until it is gone."""
        self._process.send_signal(signal.SIGTERM)
        await asyncio.to_thread(self._process.wait, _STOP_S)

    def clean_up(self) -> None:
        """End it whatever its state, and remove its log."""
        if self.running:
            self.kill()
        self.log.unlink(missing_ok=True)


class Processes:
    """Starts product processes and ends them all at the end of a test."""

    def __init__(self) -> None:
        self._started: list[Process] = []

    def start(self, program: str, *arguments: str) -> Process:
        process = Process(program, *arguments)
        self._started.append(process)
        return process

    def projector(
        self, url: str, cell: str, name: str, settings: Settings, http: str = ""
    ) -> Process:
        """A projector of ``cell``; ``http``: where its pages are."""
        numbers = msgspec.json.encode(settings).decode()
        return self.start(PROJECTOR, url, cell, name, http, numbers)

    def clean_up(self) -> None:
        for process in self._started:
            process.clean_up()
