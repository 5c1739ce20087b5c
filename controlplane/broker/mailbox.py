"""What waits for the reader of a core subscription, up to a limit."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from typing import Final

from controlplane.broker import CoreMessage


class Mailbox:
    """At most ``limit`` messages wait; then the oldest are dropped and counted."""

    def __init__(self, *, limit: int) -> None:
        self.lost = 0
        self.closed = False
        self._waiting: Final[deque[CoreMessage]] = deque(maxlen=limit)
        self._arrived: Final = asyncio.Event()

    def __aiter__(self) -> AsyncIterator[CoreMessage]:
        """Yield messages in order of arrival until closed."""
        return self._messages()

    def put(self, message: CoreMessage) -> None:
        """Add one, dropping the oldest when full."""
        if len(self._waiting) == self._waiting.maxlen:
            self.lost += 1
        self._waiting.append(message)
        self._arrived.set()

    def shut(self) -> None:
        """End the iteration."""
        self.closed = True
        self._arrived.set()

    async def _messages(self) -> AsyncIterator[CoreMessage]:
        while not self.closed:
            if self._waiting:
                yield self._waiting.popleft()
                continue
            self._arrived.clear()
            await self._arrived.wait()
