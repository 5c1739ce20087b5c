"""The demo's processes, seen from the one that starts them.

None of them outlives it: the kernel ends them with their parent, however that dies.
What they write goes to files.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec

from controlplane.server import die_with

from .process import Announcement

ROOT: Final = Path(__file__).parents[2]
POLL_S: Final = 0.02
UP_S_MAX: Final = 20.0
LAST_LINES: Final = 8
_OTHERS: Final = ("NATS_CREDS", "CP_", "DYN_")
"""Variables of the spectator's own environment that the demo must not obey."""


class DemoFailedError(Exception):
    """The story did not go on as it should; says in plain words where."""

    def __init__(self, problem: str) -> None:
        """Say the ``problem``."""
        self.problem = problem
        super().__init__(problem)


class Child:
    """A process of the demo; it may be started again after it ended."""

    def __init__(
        self, name: str, arguments: list[str], *, directory: Path, url: str
    ) -> None:
        """Run ``python -m`` with ``arguments``; the broker is at ``url``."""
        self.name = name
        self._arguments = arguments
        self._output = directory / f"{name}.out"
        self._log = directory / f"{name}.log"
        self._environment = {
            **{k: v for k, v in os.environ.items() if not k.startswith(_OTHERS)},
            "NATS_URL": url,
            "CP_CELL": "default",
        }
        self._process: subprocess.Popen[bytes] | None = None
        self._announced: Announcement | None = None
        self._may_end = False

    # ---- starting --------------------------------------------------------------
    def start(self) -> None:
        """Start the process; see `up`."""
        self._announced, self._may_end = None, False
        with self._output.open("wb") as output, self._log.open("ab") as log:
            self._process = subprocess.Popen(  # noqa: S603 - our own modules
                [sys.executable, "-m", *self._arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=log,
                env=self._environment,
                cwd=ROOT,  # so that it runs the very code that we are
                start_new_session=True,  # ctrl-c is the parent's to handle
                preexec_fn=die_with(os.getpid()),  # noqa: PLW1509 - one syscall
            )

    async def up(self) -> Announcement:
        """What it says once it is up. Raises `DemoFailedError`."""
        await until(self._read, within_s=UP_S_MAX, what=f"{self.name} came up")
        self._announced = self._read()
        return self.announced

    @property
    def announced(self) -> Announcement:
        """What it said when it came up last."""
        if self._announced is None:
            problem = f"{self.name} is not up"
            raise DemoFailedError(problem)
        return self._announced

    @property
    def url(self) -> str | None:
        """Where it answers over HTTP; None: it is not up."""
        return None if self._announced is None else self._announced.url

    def _read(self) -> Announcement | None:
        line, complete, _ = self._output.read_bytes().partition(b"\n")
        return msgspec.json.decode(line, type=Announcement) if complete else None

    # ---- ending ----------------------------------------------------------------
    @property
    def running(self) -> bool:
        """Whether it runs now."""
        return self._process is not None and self._process.poll() is None

    @property
    def failed(self) -> bool:
        """Whether it ended though nobody asked it to, or not as it was asked."""
        if self._process is None or self.running:
            return False
        return not self._may_end or self._process.returncode > 0

    def ask_to_end(self) -> None:
        """Send SIGTERM."""
        self._may_end = True
        if self._process is not None:
            self._process.terminate()

    async def ended(self, within_s: float) -> None:
        """Wait until it has ended. Raises `DemoFailedError`."""
        await until(
            lambda: not self.running, within_s=within_s, what=f"{self.name} ended"
        )

    def kill(self) -> None:
        """Send SIGKILL, and wait: that cannot take long."""
        self._may_end = True
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def last_lines(self) -> list[str]:
        """The last that it wrote to its log."""
        if not self._log.exists():
            return []
        return self._log.read_text(errors="replace").splitlines()[-LAST_LINES:]


class Children:
    """All processes of a demo, each by its name."""

    def __init__(self, *, directory: Path, url: str) -> None:
        """Their output goes to ``directory``; their broker is at ``url``."""
        self._directory, self._url = directory, url
        self._all: dict[str, Child] = {}

    def __iter__(self) -> Iterator[Child]:
        """In the order in which they were first started."""
        return iter(self._all.values())

    def start(self, name: str, *arguments: str) -> Child:
        """Start a process that there was not yet."""
        child = Child(name, list(arguments), directory=self._directory, url=self._url)
        self._all[name] = child
        child.start()
        return child

    async def watch(self) -> None:
        """Watch for ever that nobody fails. Raises `DemoFailedError`."""
        await until(lambda: any(child.failed for child in self), within_s=None, what="")
        names = ", ".join(child.name for child in self if child.failed)
        problem = f"{names} ended unexpectedly"
        raise DemoFailedError(problem)

    @contextmanager
    def to_the_end(self) -> Iterator[None]:
        """Leave no process behind."""
        try:
            yield
        finally:
            for child in self:
                child.kill()


async def until(
    condition: Callable[[], object],
    *,
    within_s: float | None,
    what: str,
    every_s: float = POLL_S,
) -> None:
    """Return when ``condition``, which may be awaited, gives a true answer.

    Raises `DemoFailedError` that ``what`` did not happen ``within_s``.
    """
    loop = asyncio.get_running_loop()
    deadline = None if within_s is None else loop.time() + within_s
    while True:
        answer = condition()
        if inspect.isawaitable(answer):
            answer = await answer
        if answer:
            return
        if deadline is not None and loop.time() > deadline:
            problem = f"it did not happen within {within_s:.0f} s that {what}"
            raise DemoFailedError(problem)
        await asyncio.sleep(every_s)
