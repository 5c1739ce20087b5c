"""A broker's client whose acknowledgements get lost: the sender never knows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from controlplane.broker import Broker, Message, Outgoing, Stored, StreamState
from controlplane.errors import AppendOutcomeUnknownError


class LossyBroker:
    """Passes everything on to ``broker``; loses what it is told to lose.

    ``lose_acks``: so many stores happen and their answers vanish. ``lose_sends``: so
    many never arrive, which looks the same to the sender.
    """

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.lose_acks = 0
        self.lose_sends = 0
        self.stores = 0
        self.asked = 0
        """How often a stream's state was asked for."""
        self.lasts = 0
        """How often the last message of a subject was asked for."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._broker, name)

    async def state(self, stream: str) -> StreamState:
        self.asked += 1
        return await self._broker.state(stream)

    async def last(self, stream: str, subject: str) -> Message | None:
        self.lasts += 1
        return await self._broker.last(stream, subject)

    async def store(self, stream: str, message: Outgoing, **options: Any) -> Stored:
        return await self._deliver(stream, [message], options)

    async def store_batch(
        self, stream: str, messages: Sequence[Outgoing], **options: Any
    ) -> Stored:
        return await self._deliver(stream, messages, options)

    async def _deliver(
        self, stream: str, messages: Sequence[Outgoing], options: dict[str, Any]
    ) -> Stored:
        self.stores += 1
        subject = messages[0].subject
        if self.lose_sends:
            self.lose_sends -= 1
            raise AppendOutcomeUnknownError(subject=subject, reason="lost on the way")
        stored = await self._broker.store_batch(stream, messages, **options)
        if self.lose_acks:
            self.lose_acks -= 1
            raise AppendOutcomeUnknownError(subject=subject, reason="ack lost")
        return stored
