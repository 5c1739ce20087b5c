"""A make-believe engine: the OpenAI-compatible face of a model that is not there."""

from __future__ import annotations

import asyncio
import contextlib
from http import HTTPStatus
from typing import Final

import msgspec

from events import UNREADABLE, ModelName

from .speech import CHAT, TEXT, Asked, Document, Speech, models, refusal
from .web import HEAD_BYTES_MAX, Message, read_message

REQUEST_S_MAX: Final = 10.0
STOP_S_MAX: Final = 2.0
PAUSES: Final = 2
"""A stream takes its time in so many pieces: before its first event, and after it."""


class FakeEngine:
    """Answers as vLLM does, streamed or not; one request per connection."""

    def __init__(self, model: ModelName, *, name: str, answer_s: float) -> None:
        """Serve ``model``; every completion takes ``answer_s`` and says ``name``."""
        self._model, self._name, self._answer_s = model, name, answer_s
        self._server: asyncio.Server | None = None
        self._in_flight = 0
        self._begun = 0

    async def start(self, host: str, port: int) -> int:
        """Listen; port 0 takes a free one. Returns the port. Raises OSError."""
        self._server = await asyncio.start_server(
            self._connected, host, port, limit=HEAD_BYTES_MAX
        )
        return int(self._server.sockets[0].getsockname()[1])

    async def stop(self) -> None:
        """Stop listening."""
        if self._server is not None:
            self._server.close()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(STOP_S_MAX):
                    await self._server.wait_closed()

    async def quiet(self, for_s: float, *, within_s: float) -> None:
        """Wait until nothing is in flight and nothing came ``for_s`` long.

        Returns after ``within_s`` in any case.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + within_s
        while loop.time() < deadline:
            begun = self._begun
            await asyncio.sleep(for_s)
            if self._begun == begun and not self._in_flight:
                return

    async def _connected(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._in_flight += 1
        self._begun += 1
        try:
            async with asyncio.timeout(REQUEST_S_MAX):
                await self._answer(await read_message(reader), writer)
                await writer.drain()
        except (OSError, ValueError):
            return  # the other side is gone, or does not speak HTTP
        finally:
            self._in_flight -= 1
            writer.close()

    async def _answer(self, request: Message, writer: asyncio.StreamWriter) -> None:
        method, target, *_ = (*request.start, "", "")
        path = target.partition("?")[0]
        match method, path:
            case "GET", "/health":
                writer.write(_whole(HTTPStatus.OK, b""))
            case "GET", "/v1/models":
                writer.write(_json(HTTPStatus.OK, models(self._model)))
            case "POST", _ if path in (CHAT, TEXT):
                await self._complete(path, request.body, writer)
            case _:
                writer.write(_refused(HTTPStatus.NOT_FOUND, "Not Found"))

    async def _complete(
        self, path: str, body: bytes, writer: asyncio.StreamWriter
    ) -> None:
        try:
            asked = msgspec.json.decode(body, type=Asked)
        except UNREADABLE as error:
            writer.write(_refused(HTTPStatus.BAD_REQUEST, str(error)))
            return
        if asked.model != self._model:
            message = f"The model `{asked.model}` does not exist."
            writer.write(_refused(HTTPStatus.NOT_FOUND, message, "model"))
            return
        speech = Speech(path, asked, self._begun, ["Hello", " from", f" {self._name}."])
        if not asked.stream:
            await asyncio.sleep(self._answer_s)
            writer.write(_json(HTTPStatus.OK, speech.whole()))
            return
        writer.write(_STREAM_HEAD)
        for place, event in enumerate(speech.events()):
            if place < PAUSES:
                await writer.drain()
                await asyncio.sleep(self._answer_s / PAUSES)
            writer.write(b"%x\r\n%s\r\n" % (len(event), event))
        writer.write(b"0\r\n\r\n")


_STREAM_HEAD: Final = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n"
    b"Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
)


def _refused(status: HTTPStatus, message: str, param: str | None = None) -> bytes:
    return _json(status, refusal(status, message, param))


def _json(status: HTTPStatus, document: Document) -> bytes:
    return _whole(status, msgspec.json.encode(document))


def _whole(status: HTTPStatus, body: bytes) -> bytes:
    head = (
        f"HTTP/1.1 {int(status)} {status.phrase}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + body
