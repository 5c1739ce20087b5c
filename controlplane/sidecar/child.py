"""The child as a process: started, signalled, waited for, and its kin with it.

It begins a session of its own, so a terminal's Ctrl-C reaches the sidecar only, which
passes it on. On Linux the kernel kills it when the sidecar dies, however that happens:
without beats its worker expires, and its ports go to others. What the child itself
started is spared by that, and has to watch its own parent, as vLLM's and SGLang's
workers do.

Processes whose parents died before them are the sidecar's on Linux (it is their
*subreaper*, and in a container often process 1): it waits for them, so none stays a
zombie, and nothing that the child started escapes its end.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from controlplane.server import die_with

_PR_SET_CHILD_SUBREAPER: Final = 36
POLL_S: Final = 0.02
POLL_S_MAX: Final = 0.5
"""Looking through all processes of a large machine costs some time."""


class Child:
    """One process, from its start to its end. Start it from the main thread.

    The kernel ties its life to the thread that started it. Whoever has one waits for
    no other process: the child's thread waits for all.
    """

    def __init__(self) -> None:
        """Nothing runs yet."""
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()
        self._running = False
        self._ended: asyncio.Future[int] | None = None

    @property
    def pid(self) -> int:
        """The process id; 0: it was never started."""
        return 0 if self._process is None else self._process.pid

    @property
    def running(self) -> bool:
        """Whether it has not ended."""
        return self._running

    def start(self, command: Sequence[str], environ: Mapping[str, str]) -> None:
        """Run ``command``. Raises `OSError` or `ValueError` when it cannot be run."""
        loop = asyncio.get_running_loop()
        _adopt_orphans()
        self._process = subprocess.Popen(  # noqa: S603 - what the user asked to run
            list(command),
            env=dict(environ),
            start_new_session=True,
            preexec_fn=die_with(os.getpid()),  # noqa: PLW1509 - one syscall
        )
        self._running = True
        self._ended = loop.create_future()
        threading.Thread(
            target=self._reap, args=(loop, self._ended), name="reaper", daemon=True
        ).start()

    async def ended(self) -> int:
        """Wait for its end; a negative code is the signal that killed it."""
        assert self._ended is not None  # noqa: S101 - it was started
        return await asyncio.shield(self._ended)

    def signal(self, number: int) -> None:
        """Send it a signal, if it runs."""
        # What changed its user is not ours to signal; it ends when it ends.
        with self._lock, suppress(ProcessLookupError, PermissionError):
            if self._running:
                os.kill(self.pid, number)

    def kill_kin(self) -> None:
        """Kill it and all that it started."""
        self._signal_kin(signal.SIGKILL)

    async def end_kin(self, within_s: float) -> None:
        """End what it left behind: SIGTERM, and ``within_s`` later SIGKILL."""
        loop = asyncio.get_running_loop()
        deadline, poll_s = loop.time() + within_s, POLL_S
        if self._kin():
            self._signal_kin(signal.SIGTERM)
        while self._kin():
            if loop.time() >= deadline:
                self._signal_kin(signal.SIGKILL)
            await asyncio.sleep(poll_s)
            poll_s = min(poll_s * 2, POLL_S_MAX)

    def _signal_kin(self, number: int) -> None:
        self.signal(number)
        for pid in self._kin():
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, number)

    def _kin(self) -> list[int]:
        """What runs of the child's kin; elsewhere than on Linux, its session."""
        if sys.platform == "linux":
            return _descendants(os.getpid())
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, 0)
            return [-self.pid]
        return []

    # ---- in a thread of its own ------------------------------------------------
    def _reap(
        self, loop: asyncio.AbstractEventLoop, ended: asyncio.Future[int]
    ) -> None:
        while True:
            try:
                pid, status = os.wait()
            except ChildProcessError:
                return  # nobody is left
            if pid != self.pid:
                continue
            code = os.waitstatus_to_exitcode(status)
            with self._lock:
                self._running = False
            if self._process is not None:
                self._process.returncode = code  # nobody else will be told
            with suppress(RuntimeError):  # the loop is gone: nobody waits
                loop.call_soon_threadsafe(_settle, ended, code)


def _settle(ended: asyncio.Future[int], code: int) -> None:
    if not ended.done():
        ended.set_result(code)


def _adopt_orphans() -> None:
    """Be the parent of whichever descendant loses its own."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _descendants(ancestor: int) -> list[int]:
    """Every living process below ``ancestor``; zombies live no more."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal():
            continue
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has just ended
        if fields[0] not in "ZX":
            children.setdefault(int(fields[1]), []).append(int(entry.name))
    found: list[int] = []
    waiting = [ancestor]
    while waiting:
        below = children.get(waiting.pop(), [])
        found += below
        waiting += below
    return found
