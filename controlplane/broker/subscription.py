"""A core subscription that outlives links, and what waits in it."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from typing import Final

from controlplane.broker import CoreMessage
from controlplane.broker.connection import Attachment
from controlplane.broker.link import Link
from controlplane.broker.wire import RawMessage, parse_headers


class CoreSubscription:
    """At most ``limit`` messages wait; then the oldest are dropped and counted."""

    def __init__(
        self,
        subject: str,
        *,
        limit: int,
        attachments: dict[int, Attachment],
    ) -> None:
        """Enter itself into ``attachments``, which every new link is given."""
        self.subject: Final = subject
        self._attachments: Final = attachments
        attachments[id(self)] = self
        self.lost = 0
        self._waiting: Final[deque[RawMessage]] = deque(maxlen=limit)
        self._arrived: Final = asyncio.Event()
        self._closed = False
        self._place: tuple[Link, int] | None = None

    def __aiter__(self) -> AsyncIterator[CoreMessage]:
        """Yield messages in order of arrival until closed."""
        return self._messages()

    async def attach(self, link: Link) -> None:
        """Subscribe on ``link``."""
        if not self._closed:
            self._place = (link, await link.listen(self.subject, self._take))

    async def close(self) -> None:
        """Unsubscribe; a pending iteration ends. Idempotent."""
        self._closed = True
        self._attachments.pop(id(self), None)
        self._arrived.set()
        if self._place is not None:
            (link, sid), self._place = self._place, None
            await link.forget(sid)

    def _take(self, raw: RawMessage) -> None:
        if len(self._waiting) == self._waiting.maxlen:
            self.lost += 1
        self._waiting.append(raw)
        self._arrived.set()

    async def _messages(self) -> AsyncIterator[CoreMessage]:
        while not self._closed:
            if not self._waiting:
                self._arrived.clear()
                await self._arrived.wait()
                continue
            raw = self._waiting.popleft()
            yield CoreMessage(
                subject=raw.subject.decode(),
                payload=raw.payload,
                headers=parse_headers(raw.headers),
            )
