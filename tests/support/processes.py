"""Product processes under test: real processes, killed, stopped and continued."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import msgspec

from controlplane.server import die_with
from controlplane.settings import Settings

ROOT = Path(__file__).parents[2]
_STOP_S = 10.0
_SIGNAL_S = 5.0
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
    """One process of the product; it dies with the test.

    ``channel``: a socket that it inherits, as the file descriptor that its last
    argument names.
    """

    def __init__(
        self, program: str, *arguments: str, channel: socket.socket | None = None
    ) -> None:
        handle, path = tempfile.mkstemp(prefix="process-", suffix=".log")
        self.log = Path(path)
        inherited = () if channel is None else (channel.fileno(),)
        with os.fdopen(handle, "wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-c", program, *arguments, *map(str, inherited)],
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=inherited,
                preexec_fn=die_with(os.getpid()),  # noqa: PLW1509 - one syscall
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether it has not ended; a frozen one runs, too."""
        return self._process.poll() is None

    @property
    def frozen(self) -> bool:
        """Whether all of its threads are stopped."""
        return self.running and is_stopped(self.pid)

    @property
    def said(self) -> str:
        """All that it wrote so far."""
        return self.log.read_text(errors="replace")

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        self._process.kill()
        self._process.wait()

    def freeze(self) -> None:
        """SIGSTOP, and wait until it has stopped: its sockets stay open."""
        stop_process(self.pid)

    def thaw(self) -> None:
        """SIGCONT: it goes on where it was."""
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


def is_stopped(pid: int) -> bool:
    """Whether every thread of a process is stopped; a signal takes a while."""
    states = [
        task.read_text().rpartition(")")[2].split()[0]
        for task in Path(f"/proc/{pid}/task").glob("*/stat")
    ]
    return set(states) == {"T"}


def stop_process(pid: int) -> None:
    """SIGSTOP a process; return when every thread of it is stopped."""
    os.kill(pid, signal.SIGSTOP)
    deadline = time.monotonic() + _SIGNAL_S
    while not is_stopped(pid):  # the signal reaches one thread after another
        assert time.monotonic() < deadline, f"process {pid} does not stop"
        os.sched_yield()


class Processes:
    """Starts product processes and ends them all at the end of a test."""

    def __init__(self) -> None:
        self._started: list[Process] = []

    def start(
        self, program: str, *arguments: str, channel: socket.socket | None = None
    ) -> Process:
        process = Process(program, *arguments, channel=channel)
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
