"""Turns at holding sockets: so many at once in this process, and the others wait.

Each claim alone may have enough open files, and sixty at once not. Who comes first is
served first, and a claim larger than the limit has its turn alone.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

SHARE: Final = 4
"""Claims hold one of so many of the files that this process may have open."""
WITHOUT_LIMIT: Final = 2**16


def files_max() -> int | None:
    """How many files this process may have open now; None: the system sets no limit."""
    if sys.platform == "win32":
        return None
    import resource  # noqa: PLC0415 - not every system has it

    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return None if files == resource.RLIM_INFINITY else files


def sockets_max() -> int:
    """How many sockets claims may hold at once, by what the system allows now."""
    files = files_max()
    return WITHOUT_LIMIT if files is None else files // SHARE


class _Waiting:
    """Somebody whose turn it is not yet; ``future`` is of the loop he waits on."""

    __slots__ = ("count", "future", "granted", "loop")

    def __init__(self, count: int) -> None:
        self.count, self.granted = count, False
        self.loop = asyncio.get_running_loop()
        self.future: asyncio.Future[None] = self.loop.create_future()


class Turns:
    """A number of things that may be held at once, by tasks of any loop or thread."""

    def __init__(self, most: Callable[[], int] = sockets_max) -> None:
        """Nothing is held; ``most`` is asked each time."""
        self._most = most
        self._lock: Final = threading.Lock()
        self._waiting: Final[deque[_Waiting]] = deque()
        self.held = 0

    @asynccontextmanager
    async def taking(self, count: int) -> AsyncIterator[None]:
        """Hold ``count`` meanwhile, once it is one's turn."""
        await self._take(count)
        try:
            yield
        finally:
            with self._lock:
                self.held -= count
                self._serve()

    async def _take(self, count: int) -> None:
        with self._lock:
            if not self._waiting and self._fits(count):
                self.held += count
                return
            waiting = _Waiting(count)
            self._waiting.append(waiting)
        try:
            await waiting.future
        except BaseException:
            with self._lock:
                if waiting.granted:
                    self.held -= count
                else:
                    self._waiting.remove(waiting)
                self._serve()
            raise

    def _fits(self, count: int) -> bool:
        return not self.held or self.held + count <= self._most()

    def _serve(self) -> None:
        while self._waiting and self._fits(self._waiting[0].count):
            first = self._waiting.popleft()
            try:
                first.loop.call_soon_threadsafe(_wake, first.future)
            except RuntimeError:
                continue  # its loop is closed: nobody waits there any more
            self.held += first.count
            first.granted = True


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


SOCKET_TURNS: Final = Turns()
"""Of this process: its files are counted together, whatever planes it has."""
