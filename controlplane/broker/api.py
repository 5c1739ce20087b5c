"""Asks the JetStream API: one question, one JSON answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

import msgspec

from controlplane.broker.connection import Connection
from controlplane.broker.link import Link, LinkLostError
from controlplane.broker.translate import UNAVAILABLE, api_error, nats_errors
from controlplane.broker.wire import ApiError, decode_object, parse_status

Answer = dict[str, Any]
_ATTEMPT_S: Final = 1.0
_RETRY_S: Final = 0.1
_NO_RESPONDERS: Final[Answer] = {
    "error": {"code": 503, "description": "no JetStream answers here"}
}


class JetStreamApi:
    """Questions to JetStream over a `Connection`."""

    def __init__(self, connection: Connection) -> None:
        self.url: Final = connection.url
        self._connection: Final = connection

    async def ask(
        self, verb: str, body: Answer, *, doing: str, tolerate: tuple[int, ...] = ()
    ) -> Answer:
        """Ask once; raise unless the answer is good or an error of ``tolerate``."""
        link = await self._connection.require(doing)
        limit_s = self._connection.connect_timeout_s
        try:
            answer = await self.ask_on(link, verb, body, doing=doing, timeout_s=limit_s)
        except (TimeoutError, LinkLostError) as error:
            raise self._connection.unavailable(doing, "no answer") from error
        return self.checked(answer, doing=doing, tolerate=tolerate)

    async def query(
        self, verb: str, body: Answer, *, doing: str, tolerate: tuple[int, ...] = ()
    ) -> Answer:
        """Ask, and ask again while there is time: for questions that change nothing."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._connection.connect_timeout_s
        while True:
            left_s = max(0.0, deadline - loop.time())
            link = await self._connection.require(doing, timeout_s=left_s)
            answer: Answer | None = None
            try:
                answer = await self.ask_on(
                    link, verb, body, doing=doing, timeout_s=min(left_s, _ATTEMPT_S)
                )
            except (TimeoutError, LinkLostError) as error:
                if loop.time() >= deadline:
                    raise self._connection.unavailable(doing, "no answer") from error
            if answer is not None and (final(answer) or loop.time() >= deadline):
                return self.checked(answer, doing=doing, tolerate=tolerate)
            if answer is not None:
                await asyncio.sleep(_RETRY_S)

    async def query_on(
        self,
        link: Link,
        question: Callable[[], tuple[str, Answer]],
        *,
        doing: str,
        timeout_s: float,
    ) -> Answer:
        """As `query`, but over this very link, and the answer is not checked.

        ``question`` gives verb and body, anew each time. While a cluster elects a
        leader, who is asked may never answer. `TimeoutError` and `LinkLostError` pass
        through.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        while True:
            left_s = deadline - loop.time()
            verb, body = question()
            try:
                answer = await self.ask_on(
                    link, verb, body, doing=doing, timeout_s=min(left_s, _ATTEMPT_S)
                )
            except TimeoutError:
                if loop.time() >= deadline:
                    raise
                continue
            if final(answer) or loop.time() >= deadline:
                return answer
            await asyncio.sleep(_RETRY_S)

    async def ask_on(
        self, link: Link, verb: str, body: Answer, *, doing: str, timeout_s: float
    ) -> Answer:
        """Ask over this very link; `TimeoutError` and `LinkLostError` pass through."""
        payload = msgspec.json.encode(body) if body else b""
        with nats_errors(url=self._connection.url, doing=doing):
            request = await link.ask(f"$JS.API.{verb}", payload, timeout_s=timeout_s)
        raw = await request
        if parse_status(raw.headers) is not None:
            return _NO_RESPONDERS
        return decode_object(raw.payload)

    def checked(
        self, answer: Answer, *, doing: str, tolerate: tuple[int, ...] = ()
    ) -> Answer:
        """Return a good or tolerated answer; raise what any other means."""
        error = error_of(answer)
        if error is None or error.err_code in tolerate:
            return answer
        raise api_error(error, url=self._connection.url, doing=doing)


def error_of(answer: Answer) -> ApiError | None:
    """The error in an answer, if there is one."""
    error = answer.get("error")
    return None if error is None else msgspec.convert(error, ApiError)


def final(answer: Answer) -> bool:
    """Whether asking again could not help."""
    error = error_of(answer)
    return error is None or error.code < UNAVAILABLE
