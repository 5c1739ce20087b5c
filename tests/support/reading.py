"""Reading a broker's iterators in tests, always with a deadline."""

import asyncio
from collections.abc import AsyncIterator

from controlplane.broker import CoreMessage, Message, Subscription


async def everything(batches: AsyncIterator[list[Message]]) -> list[Message]:
    """Return all messages of an iterator that ends."""
    async with asyncio.timeout(30):
        return [message async for batch in batches for message in batch]


async def take(
    batches: AsyncIterator[list[Message]], count: int, *, within_s: float = 10.0
) -> list[Message]:
    """Return the next ``count`` messages; more in the last batch is a failure."""
    taken: list[Message] = []
    async with asyncio.timeout(within_s):
        while len(taken) < count:
            batch = await anext(batches)
            assert batch, "an empty list was not expected here"
            taken += batch
    assert len(taken) == count
    return taken


async def receive(
    subscription: Subscription, count: int, *, within_s: float = 10.0
) -> list[CoreMessage]:
    """Return the next ``count`` core messages."""
    received: list[CoreMessage] = []
    messages = aiter(subscription)
    async with asyncio.timeout(within_s):
        while len(received) < count:
            received.append(await anext(messages))
    return received


def payloads(messages: list[Message] | list[CoreMessage]) -> list[bytes]:
    """Return the payloads alone."""
    return [message.payload for message in messages]


def sequences(messages: list[Message]) -> list[int]:
    """Return the sequences alone."""
    return [message.sequence for message in messages]
