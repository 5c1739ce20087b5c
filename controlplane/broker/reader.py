"""Reading a stream: a bounded `read` and a `follow` that heals itself.

Both use a `Consumer`. It numbers what it delivers, so that a lost delivery shows at
the next one; a consumer that is gone shows as a status, as a missed heartbeat or as a
lost link. All of them mean the same to `follow`: resume, with a new consumer, after
the last sequence seen, and say so.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Final

from msgspec.structs import replace

from controlplane.broker import Message
from controlplane.broker.api import JetStreamApi, error_of
from controlplane.broker.connection import Connection
from controlplane.broker.consumer import (
    Consumer,
    ConsumerLostError,
    StreamMissingError,
    Wanted,
)
from controlplane.broker.link import Link, LinkLostError
from controlplane.broker.streams import Streams, stream_state
from controlplane.broker.translate import STREAM_NOT_FOUND
from controlplane.errors import HistoryForkedError, LogUnavailableError

_RETRY_S: Final = 0.05


class Reader:
    """The reading verbs of `Broker`."""

    def __init__(
        self, connection: Connection, api: JetStreamApi, streams: Streams
    ) -> None:
        self._connection: Final = connection
        self._api: Final = api
        self._streams: Final = streams

    async def read(
        self, wanted: Wanted, until: int | None
    ) -> AsyncIterator[list[Message]]:
        """See `Broker.read`.

        ``last_per_subject`` without ``until`` ends when nothing is left instead of at
        the last sequence when called. A subject written meanwhile, whose older message
        was replaced by that, would be missed otherwise; so it may appear twice.
        """
        if until is None and not wanted.last_per_subject:
            until = (await self._streams.state(wanted.stream)).last_sequence
        if until is not None and until <= wanted.after:
            return
        doing = f"reading {wanted.stream}"
        limit_s = self._connection.connect_timeout_s
        deadline = asyncio.get_running_loop().time() + limit_s
        begun = False
        while True:
            link = await self._connection.require(doing)
            consumer = Consumer(self._api, link, wanted, progress_s=limit_s)
            try:
                await consumer.open(timeout_s=limit_s)
                ended = False
                while not (ended or consumer.exhausted):
                    batch, ended = _within(await consumer.take(), wanted, until)
                    if batch:
                        begun = True
                        yield batch
            except StreamMissingError as error:
                raise self._connection.unavailable(doing, "no such stream") from error
            except (TimeoutError, LinkLostError, ConsumerLostError) as error:
                # Before its first message nothing is lost with a consumer.
                if begun or asyncio.get_running_loop().time() >= deadline:
                    reason = str(error) or "connection lost"
                    raise self._connection.unavailable(doing, reason) from error
                await asyncio.sleep(_RETRY_S)
            else:
                return
            finally:
                await consumer.close()

    async def follow(self, wanted: Wanted) -> AsyncIterator[list[Message]]:
        """See `Broker.follow`."""
        resumed = False
        while True:
            link = await self._connection.next_link(f"following {wanted.stream}")
            consumer = Consumer(self._api, link, wanted)
            try:
                await self._attach(consumer, link, wanted)
                if resumed:
                    yield []
                resumed = True
                while True:
                    batch = await consumer.take()
                    wanted = replace(wanted, after=batch[-1].sequence)
                    yield batch
            except (
                TimeoutError,
                LinkLostError,
                ConsumerLostError,
                LogUnavailableError,
            ):
                await asyncio.sleep(_RETRY_S)
            finally:
                await consumer.close()

    async def _attach(self, consumer: Consumer, link: Link, wanted: Wanted) -> None:
        """Open the consumer, then see that the stream still holds what was seen.

        In this order: a consumer asked to start beyond the end of a shortened stream
        waits there, so nothing wrong is delivered before the second answer.
        """
        limit_s = self._connection.connect_timeout_s
        doing = f"following {wanted.stream}"
        try:
            await consumer.open(timeout_s=limit_s)
        except StreamMissingError as missing:
            raise _forked(wanted, f"stream {wanted.stream} is missing") from missing
        question = (f"STREAM.INFO.{wanted.stream}", dict[str, object]())
        answer = await self._api.query_on(
            link, lambda: question, doing=doing, timeout_s=limit_s
        )
        error = error_of(answer)
        if error is not None and error.err_code == STREAM_NOT_FOUND:
            raise _forked(wanted, f"stream {wanted.stream} is missing")
        last = stream_state(self._api.checked(answer, doing=doing)).last_sequence
        if last < wanted.after:
            raise _forked(wanted, f"it ends at {last} now")


def _within(
    batch: list[Message], wanted: Wanted, until: int | None
) -> tuple[list[Message], bool]:
    """What of a delivery was asked for, and whether that is the last of it."""
    ended = until is not None and batch[-1].sequence >= until
    if not (ended or wanted.last_per_subject):
        return batch, ended
    within = [
        message
        for message in batch
        if message.sequence > wanted.after
        and (until is None or message.sequence <= until)
    ]
    return within, ended


def _forked(wanted: Wanted, reason: str) -> HistoryForkedError:
    return HistoryForkedError(reason=reason, revision=wanted.after)
