"""A make-believe engine: the OpenAI-compatible face of a model that is not there."""

from __future__ import annotations

import asyncio
import contextlib
import time
from http import HTTPStatus
from typing import Any, Final

import msgspec

from events import UNREADABLE, ModelName

from .web import HEAD_BYTES_MAX, read_message

REQUEST_S_MAX: Final = 10.0
STOP_S_MAX: Final = 2.0


class FakeEngine:
    """Answers ``/health``, ``/v1/models`` and ``/v1/chat/completions``, unstreamed."""

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
                request = await read_message(reader)
                method, path, *_ = (*request.start, "", "")
                status, document = await self._answer(method, path, request.body)
                writer.write(_answer(status, document))
                await writer.drain()
        except (OSError, ValueError):
            return  # the other side is gone, or does not speak HTTP
        finally:
            self._in_flight -= 1
            writer.close()

    async def _answer(
        self, method: str, path: str, body: bytes
    ) -> tuple[HTTPStatus, Any]:
        match method, path.partition("?")[0]:
            case "GET", "/health":
                return HTTPStatus.OK, {"status": "ok"}
            case "GET", "/v1/models":
                card = {"id": self._model, "object": "model", "owned_by": "demo"}
                return HTTPStatus.OK, {"object": "list", "data": [card]}
            case "POST", "/v1/chat/completions":
                return await self._complete(body)
        return _refusal(HTTPStatus.NOT_FOUND, f"there is no {method} {path} here")

    async def _complete(self, body: bytes) -> tuple[HTTPStatus, Any]:
        try:
            request = msgspec.json.decode(body, type=dict[str, Any])
        except UNREADABLE as error:
            return _refusal(HTTPStatus.BAD_REQUEST, str(error))
        if request.get("stream"):
            return _refusal(HTTPStatus.BAD_REQUEST, "this engine does not stream")
        if request.get("model") != self._model:
            message = f"the model {request.get('model')!r} is not served here"
            return _refusal(HTTPStatus.NOT_FOUND, message)
        await asyncio.sleep(self._answer_s)
        reply = {"role": "assistant", "content": f"Hello from {self._name}."}
        return HTTPStatus.OK, {
            "id": f"chatcmpl-{self._begun}",
            "object": "chat.completion",
            "created": int(time.time()),
            "model": self._model,
            "choices": [{"index": 0, "message": reply, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 1, "completion_tokens": 3, "total_tokens": 4},
        }


def _refusal(status: HTTPStatus, message: str) -> tuple[HTTPStatus, Any]:
    error = {"message": message, "type": "invalid_request_error", "code": int(status)}
    return status, {"error": error}


def _answer(status: HTTPStatus, document: Any) -> bytes:  # noqa: ANN401 - any JSON
    body = msgspec.json.encode(document)
    head = (
        f"HTTP/1.1 {int(status)} {status.phrase}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + body
