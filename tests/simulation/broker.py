"""The product's `Broker` over a simulated connection.

A question travels to the server, is answered there as the product's broker in memory
answers, and the answer travels back.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from typing import Any, Final, TypeVar

from controlplane.broker import (
    Message,
    Outgoing,
    Stored,
    StreamSpec,
    StreamState,
    Subscription,
)
from controlplane.broker.memory import CHUNK
from controlplane.broker.memory_answers import check_batch_size
from controlplane.broker.translate import named
from controlplane.errors import AppendOutcomeUnknownError, LogUnavailableError
from events import ControlPlaneError

from .following import Box, LinkLostError
from .link import Link, NoAnswerError, SimSubscription, Weather

__all__ = ["SimBroker", "Weather"]

T = TypeVar("T")
FOLLOW_AGAIN_S: Final = 0.05
SLOW_S: Final = 0.1
"""With ways that take longer an answer may come too late."""


class SimBroker(Link):
    """One connection of one process, as the product knows it."""

    # ---- questions -------------------------------------------------------------
    async def _require(self, doing: str, timeout_s: float | None = None) -> None:
        limit_s = self._connect_timeout_s if timeout_s is None else timeout_s
        try:
            async with asyncio.timeout(limit_s):
                while not self._connected:
                    if self._stopped:
                        raise self._answers.unavailable(doing, "stopped")
                    await self._changed.wait()
        except TimeoutError as error:
            raise self._answers.unavailable(doing, "no answer") from error

    async def _once(
        self, ask: Callable[[], T], limit_s: float, *, core: bool = False
    ) -> T:
        """Ask on this connection. Raises `LinkLostError` and `NoAnswerError`."""
        future: asyncio.Future[T] = self._loop.create_future()
        deadline = self._loop.time() + limit_s
        self._pending[future] = deadline
        uncertain = self.black or bool(self._server.stalled) or not self._linked
        if uncertain or self._server.no_responders or self.weather.least_s > SLOW_S:
            self._arm(future, deadline)
        self._up(self._answer if core else self._answer_if_led, ask, future)
        try:
            return await future
        finally:
            self._pending.pop(future, None)

    def _answer_if_led(self, ask: Callable[[], T], future: asyncio.Future[T]) -> None:
        """At the server: without a leader nobody answers what is asked of streams."""
        if not self._server.no_responders:
            self._answer(ask, future)

    def _answer(self, ask: Callable[[], T], future: asyncio.Future[T]) -> None:
        """At the server."""
        try:
            answer: Any = ask()
        except ControlPlaneError as error:
            answer = error
        self.down(_settle, future, answer)

    async def _ask(self, ask: Callable[[], T], doing: str) -> T:
        """Ask, and again after a lost connection, while there is time."""
        deadline = self._loop.time() + self._connect_timeout_s
        while True:
            left_s = deadline - self._loop.time()
            if not self._connected:
                await self._require(doing, max(0.0, left_s))
            try:
                return await self._once(ask, max(0.0, left_s))
            except (LinkLostError, NoAnswerError) as error:
                if self._loop.time() >= deadline:
                    raise self._answers.unavailable(doing, "no answer") from error

    # ---- core ------------------------------------------------------------------
    async def publish(
        self, subject: str, payload: bytes, *, reply: str | None = None
    ) -> None:
        del reply  # nobody answers here
        if self._connected and self._answers.allows(subject):
            self._up(self._server.publish, subject, payload)

    async def subscribe(self, subject: str, *, limit: int = 65_536) -> Subscription:
        self._answers.check(subject, verb="subscribe to")
        if self._mailbox_limit is not None:
            limit = min(limit, self._mailbox_limit)
        subscription = SimSubscription(self._server, self, subject, limit=limit)
        self._subscriptions.append(subscription)
        if self._connected:
            with suppress(LinkLostError, NoAnswerError):  # the next one knows it
                await self._once(
                    lambda: self.listen(subscription),
                    self._connect_timeout_s,
                    core=True,
                )
        return subscription

    # ---- streams ---------------------------------------------------------------
    async def create_stream(self, spec: StreamSpec) -> None:
        doing = f"creating stream {spec.name}"
        await self._ask(lambda: self._answers.create(spec), doing)

    async def stream_differences(self, spec: StreamSpec) -> tuple[str, ...] | None:
        doing = f"comparing stream {spec.name}"
        return await self._ask(lambda: self._answers.differences(spec), doing)

    async def delete_stream(self, name: str) -> None:
        await self._ask(lambda: self._answers.delete(name), f"deleting stream {name}")

    async def purge_stream(
        self, name: str, *, up_to: int | None = None, subject: str | None = None
    ) -> None:
        answers = self._answers
        await self._ask(lambda: answers.purge(name, up_to, subject), f"purging {name}")

    async def state(self, stream: str) -> StreamState:
        doing = f"asking for the state of {stream}"
        return await self._ask(lambda: self._answers.state(stream), doing)

    async def count(self, stream: str, subject: str) -> int:
        doing = f"counting what {stream} has on {subject}"
        return await self._ask(lambda: self._answers.count(stream, subject), doing)

    async def store(
        self, stream: str, message: Outgoing, *, timeout_s: float | None = None
    ) -> Stored:
        return await self.store_batch(stream, [message], timeout_s=timeout_s)

    async def store_batch(
        self,
        stream: str,
        messages: Sequence[Outgoing],
        *,
        timeout_s: float | None = None,
    ) -> Stored:
        check_batch_size(messages)
        doing = f"appending to {stream}"
        limit_s = self._connect_timeout_s if timeout_s is None else timeout_s
        if not self._connected:
            await self._require(doing, limit_s)
        if self._server.no_responders:
            raise self._answers.unavailable(doing, "no JetStream answers here")
        lost = self.answers_to_lose > 0
        self.answers_to_lose -= lost
        try:
            if not lost:
                return await self._once(
                    lambda: self._answers.store(stream, messages), limit_s
                )
            await self._lost_answer(stream, messages, limit_s)
        except (LinkLostError, NoAnswerError) as error:
            reason = "no answer in time"
            if isinstance(error, LinkLostError):
                reason = "connection lost"
            subject = named(messages)
            raise AppendOutcomeUnknownError(subject=subject, reason=reason) from error
        raise AssertionError

    async def _lost_answer(
        self, stream: str, messages: Sequence[Outgoing], limit_s: float
    ) -> None:
        """It is stored, or refused, and nobody says so."""
        future: asyncio.Future[None] = self._loop.create_future()

        def do() -> None:
            try:
                self._answers.store(stream, messages)
            except ControlPlaneError:
                return

        self._up(do)
        self._pending[future] = self._loop.time() + limit_s
        self._arm(future, self._loop.time() + limit_s)
        try:
            await future
        finally:
            self._pending.pop(future, None)

    async def get(self, stream: str, sequence: int) -> Message | None:
        answers = self._answers
        return await self._ask(
            lambda: answers.get(stream, sequence), f"reading {stream}"
        )

    async def last(self, stream: str, subject: str) -> Message | None:
        answers = self._answers
        return await self._ask(
            lambda: answers.last(stream, subject), f"reading {stream}"
        )

    # ---- reading ---------------------------------------------------------------
    async def read(
        self,
        stream: str,
        *,
        after: int = 0,
        until: int | None = None,
        subject: str | None = None,
        last_per_subject: bool = False,
    ) -> AsyncIterator[list[Message]]:
        def ask() -> list[Message]:
            found = self._answers.read(
                stream, after, until, subject, last_per_subject=last_per_subject
            )
            if last_per_subject and until is None:
                found = self._server.as_replica_sees(stream, found)
            return found

        doing = f"reading {stream}"
        found = await self._ask(ask, doing)
        generation = self._generation
        for start in range(0, len(found), CHUNK):
            if generation != self._generation:
                raise self._answers.unavailable(doing, "connection lost")
            yield found[start : start + CHUNK]

    async def follow(
        self, stream: str, *, after: int = 0, subject: str | None = None
    ) -> AsyncIterator[list[Message]]:
        resumed, doing = False, f"following {stream}"
        while True:
            while not self._connected:
                if self._stopped:
                    raise self._answers.unavailable(doing, "stopped")
                await self._changed.wait()
            box = Box(self, stream, subject, after)
            try:
                await self._once(box.open, self._connect_timeout_s)
                if resumed:
                    yield []
                resumed = True
                while True:
                    batch = await box.take()
                    after = batch[-1].sequence
                    yield batch
            except (LinkLostError, NoAnswerError, LogUnavailableError):
                await asyncio.sleep(FOLLOW_AGAIN_S)
            finally:
                box.close()

    # ---- for boxes -------------------------------------------------------------
    def open_box(self, box: Box) -> None:
        """At the server: begin to deliver to ``box``, if it is still wanted."""
        if box.closed or not self._linked:
            return
        stream = self._answers.unbroken(box.stream, box.consumer.sent_to)
        box.consumer.stream = stream
        self._boxes.append(box)
        self._server.consume(box.stream, box.consumer)

    def close_box(self, box: Box) -> None:
        box.closed = True
        self._server.forget(box.stream, box.consumer)
        if box in self._boxes:
            self._boxes.remove(box)


def _settle(future: asyncio.Future[Any], answer: object) -> None:
    if future.done():
        return
    if isinstance(answer, ControlPlaneError):
        future.set_exception(answer)
    else:
        future.set_result(answer)
