"""What waits in a worker's handle: notices for their reader, commands for an answer."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import Final

import msgspec

from controlplane.beats import NoticeKind
from controlplane.broker import Subscription
from events import ControlPlaneError, Revision

from .patience import Patience

NOTICES_MAX: Final = 64
"""So many notices wait for their reader; then the oldest go."""

HANG_UP_S: Final = 0.5


class Notice(msgspec.Struct, frozen=True):
    """What the leader told this worker."""

    kind: NoticeKind
    reason: str
    revision: Revision


class NoticeBox:
    """Notices that nobody has read yet."""

    def __init__(self) -> None:
        """Begin empty and closed."""
        self._waiting: Final[deque[Notice]] = deque(maxlen=NOTICES_MAX)
        self._news: Final = asyncio.Event()
        self._closed = True

    def open(self) -> None:
        """Begin anew."""
        self._waiting.clear()
        self._closed = False

    def put(self, notice: Notice) -> None:
        """Add one; when full the oldest goes."""
        self._waiting.append(notice)
        self._news.set()

    def close(self) -> None:
        """No more will come: readers end when they have read the rest."""
        self._closed = True
        self._news.set()

    async def read(self) -> AsyncIterator[Notice]:
        """Yield each notice to one reader, until closed."""
        while True:
            while self._waiting:
                yield self._waiting.popleft()
            if self._closed:
                return
            self._news.clear()
            await self._news.wait()


class Answers:
    """Commands that wait until the log says what they wanted."""

    def __init__(self) -> None:
        """Nobody waits."""
        # A dict, for its order: who asked first is answered first.
        self._waiting: Final[dict[asyncio.Future[Revision], None]] = {}

    async def ask(self, send: Callable[[], None], patience: Patience) -> Revision:
        """Call ``send`` and wait for the answer. Raises it, or `TimeoutError`."""
        answer: asyncio.Future[Revision] = asyncio.get_running_loop().create_future()
        self._waiting[answer] = None
        try:
            send()
            return await patience.wait(answer)
        finally:
            self._waiting.pop(answer, None)

    def give(self, revision: Revision) -> None:
        """What all wanted is in the log."""
        for answer in self._waiting:
            if not answer.done():
                answer.set_result(revision)

    def refuse(self, error: ControlPlaneError) -> None:
        """It is not, and waiting does not help."""
        for answer in self._waiting:
            if not answer.done():
                answer.set_exception(error)


async def hang_up(subscription: Subscription) -> None:
    """Listen no more, if the broker lets that be said soon."""
    with suppress(TimeoutError, ControlPlaneError):
        async with asyncio.timeout(HANG_UP_S):
            await subscription.close()
