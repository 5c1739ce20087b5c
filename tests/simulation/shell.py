"""The runner of the simulation, called as a shell does."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from contextlib import asynccontextmanager
from pathlib import Path

from tests.simulation import toy_world

ROOT = Path(__file__).parents[2]
TOY = ("--world", "tests.simulation.toy_world")
HARMLESS = ("--from", str(toy_world.HARMLESS))
RUNNER = (sys.executable, "-m", "tests.simulation")
TIMEOUT_S = 60.0


class Ended:
    def __init__(self, code, out, err):
        self.code, self.out, self.err = code, out, err

    def __repr__(self):
        return f"exit {self.code}\n{self.out}\n{self.err}"


async def spawn(*words, **environ):
    return await asyncio.create_subprocess_exec(
        *words,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, **environ},
        cwd=ROOT,
        start_new_session=True,
    )


async def ended(process):
    async with asyncio.timeout(TIMEOUT_S):
        out, err = await process.communicate()
    return Ended(process.returncode, out.decode(), err.decode())


async def simulation(*words, **environ):
    return await ended(await spawn(*RUNNER, *words, **environ))


@asynccontextmanager
async def at_work(*command, begun=b"seeds from", crew=2):
    """A command at work, and all processes that it has: a ``crew``, and who else.

    ``begun`` stands in the line of stderr that says that it is.
    """
    process = await spawn(*command)
    try:
        async with asyncio.timeout(TIMEOUT_S):
            while begun not in (line := await process.stderr.readline()):
                assert line, "it ended before it had begun"
        pids = descendants_of(process.pid)
        assert len(pids) >= crew
        yield process, pids
    finally:
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGKILL)
            await process.communicate()


def descendants_of(pid):
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    children = [int(child) for child in text.split()]
    return children + [other for child in children for other in descendants_of(child)]


def none_alive(pids):
    return not any(is_alive(pid) for pid in pids)


def is_alive(pid):
    """Whether it runs: one that only waits for init to take note does not."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return status.rpartition(")")[2].split()[0] != "Z"
