"""Following a stream over a simulated connection: the client's side of a consumer."""

from __future__ import annotations

import asyncio
from typing import Any

from controlplane.broker import Message
from controlplane.broker.memory import CHUNK

from .server import Consumer


class LinkLostError(Exception):
    """The connection broke before an answer came."""


class Box:
    """The client's side of one `follow`."""

    def __init__(
        self, broker: Any, stream: str, pattern: str | None, after: int
    ) -> None:
        self.stream = stream
        self.consumer = Consumer(broker, None, pattern, after, self.put, self.lose)
        self._broker = broker
        self._waiting: list[list[Message]] = []
        self._lost = False
        self.closed = False
        self._news = asyncio.Event()

    def open(self) -> None:
        self._broker.open_box(self)

    def put(self, messages: list[Message]) -> None:
        self._waiting.append(messages)
        self._news.set()

    def lose(self) -> None:
        """The server says that the consumer is gone, or the connection is."""
        self._lost = True
        self._news.set()

    async def take(self) -> list[Message]:
        """What came next. Raises `LinkLostError` when no more will come."""
        while not self._waiting:
            if self._lost:
                raise LinkLostError
            self._news.clear()
            await self._news.wait()
        batch = self._waiting.pop(0)
        while self._waiting and len(batch) < CHUNK:
            batch = batch + self._waiting.pop(0)
        return batch

    def close(self) -> None:
        self._broker.close_box(self)
