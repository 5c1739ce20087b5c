"""A small HTTP/1.1 server for a process's own pages: metrics, health, the view.

One answer per connection, GET and HEAD only, and everything is bounded: the size of
a request, the time it may take, the number of connections. It is for operators and
scrapers on a loopback or a private network, not for the world.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import functools
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from types import TracebackType
from typing import Final, NamedTuple, Self, TypeAlias
from urllib.parse import parse_qsl, urlsplit

from .errors import SettingsError
from .logs import get_logger

Response: TypeAlias = tuple[int, str, bytes]
"""Status, content type, body."""
Handler: TypeAlias = Callable[[], Awaitable[Response]]
Query: TypeAlias = Mapping[str, str]
"""What stands behind the question mark; of a repeated name, the last."""
QueryHandler: TypeAlias = Callable[[Query], Awaitable[Response]]

TEXT: Final = "text/plain; charset=utf-8"
METHODS: Final = ("GET", "HEAD")
JSON: Final = "application/json"
PORT_MAX: Final = 65_535
REQUEST_BYTES_MAX: Final = 8192
CONNECTIONS_MAX: Final = 64
REQUEST_S_MAX: Final = 5.0
ANSWER_S_MAX: Final = 10.0
STOP_S_MAX: Final = 2.0
LINGER_S_MAX: Final = 1.0
LINGER_READS_MAX: Final = 16

_log = get_logger("http")


class _Request(NamedTuple):
    method: str
    path: str
    query: Query


class _RefusedError(Exception):
    """A request that gets no handler; the status says why."""

    def __init__(self, status: HTTPStatus) -> None:
        self.status = status
        super().__init__(status.phrase)


class HttpServer:
    """Serves ``routes``, a path each, on one port until it is stopped.

    A path of ``queries`` is given what stands behind the question mark.

    A busy port is a `SettingsError`, unless ``fallback_any_port`` allows another: then
    any free one is taken, and ``url`` and the log say which. Port 0 means any.
    """

    def __init__(
        self,
        host: str,
        port: int,
        routes: Mapping[str, Handler],
        fallback_any_port: bool = False,  # noqa: FBT001, FBT002 - reads well by name
        queries: Mapping[str, QueryHandler] | None = None,
    ) -> None:
        """Listen nowhere yet."""
        self._host, self._port, self._routes = host, port, dict(routes)
        self._queries = dict(queries or {})
        self._fallback = fallback_any_port
        self._server: asyncio.Server | None = None
        self._answering: set[asyncio.Task[None]] = set()

    @property
    def port(self) -> int:
        """The port listened on; before the start, the port asked for."""
        if self._server is None:
            return self._port
        return int(self._server.sockets[0].getsockname()[1])

    @property
    def url(self) -> str:
        """Where a browser on this host finds it."""
        anywhere = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - compared, not bound
        host = anywhere.get(self._host, self._host)
        return f"http://{f'[{host}]' if ':' in host else host}:{self.port}"

    async def start(self) -> None:
        """Listen. Raises `SettingsError` if the address cannot be had."""
        if not 0 <= self._port <= PORT_MAX:
            # Asked here: uvloop would listen on the number modulo 65536.
            rule = f"must be 0 (any) to {PORT_MAX}"
            raise SettingsError(field="http port", value=self._port, rule=rule)
        try:
            self._server = await self._listen(self._port)
        except OSError as error:
            if error.errno != errno.EADDRINUSE or not self._fallback:
                raise self._refused(error) from error
            self._server = await self._listen(0)
            _log.warning(
                "http port busy, another taken", asked=self._port, url=self.url
            )

    async def stop(self) -> None:
        """Stop listening and end what is still being answered. May be repeated."""
        server, self._server = self._server, None
        if server is None:
            return
        self._port = int(server.sockets[0].getsockname()[1])
        server.close()
        for task in self._answering:
            task.cancel()
        if self._answering:
            await asyncio.wait(self._answering, timeout=STOP_S_MAX)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(STOP_S_MAX):
                await server.wait_closed()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.stop()

    async def _listen(self, port: int) -> asyncio.Server:
        return await asyncio.start_server(
            self._connected, self._host, port, limit=REQUEST_BYTES_MAX
        )

    def _refused(self, error: OSError) -> SettingsError:
        busy = error.errno == errno.EADDRINUSE
        rule = (
            "the port is in use by another process; name a free one, or 0 for any"
            if busy
            else f"cannot listen there: {error}"
        )
        address = f"{self._host}:{self._port}"
        return SettingsError(field="http address", value=address, rule=rule)

    async def _connected(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - the server runs us in a task
        full = len(self._answering) >= CONNECTIONS_MAX
        self._answering.add(task)
        try:
            with contextlib.suppress(OSError, TimeoutError):
                await self._converse(reader, writer, full=full)
        finally:
            self._answering.discard(task)
            writer.close()

    async def _converse(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, full: bool
    ) -> None:
        if full:
            request, response = None, _plain(HTTPStatus.SERVICE_UNAVAILABLE)
        else:
            request, response = await self._respond(reader)
        async with asyncio.timeout(ANSWER_S_MAX):
            writer.write(_head(response))
            if request is None or request.method != "HEAD":
                writer.write(response[2])
            await writer.drain()
        if request is None or request.method not in METHODS:
            await _linger(reader, writer)

    async def _respond(
        self, reader: asyncio.StreamReader
    ) -> tuple[_Request | None, Response]:
        request = None
        try:
            request = await _read(reader)
            return request, await self._answer(request)
        except _RefusedError as refused:
            return request, _plain(refused.status)

    async def _answer(self, request: _Request) -> Response:
        handler = self._handler(request)
        if handler is None:
            raise _RefusedError(HTTPStatus.NOT_FOUND)
        if request.method not in METHODS:
            raise _RefusedError(HTTPStatus.METHOD_NOT_ALLOWED)
        try:
            async with asyncio.timeout(ANSWER_S_MAX):
                return await handler()
        except TimeoutError:
            _log.warning("http handler took too long", path=request.path)
            raise _RefusedError(HTTPStatus.GATEWAY_TIMEOUT) from None
        except Exception as error:
            # One broken page must not end the process that it reports on.
            _log.exception("http handler failed", path=request.path)
            raise _RefusedError(HTTPStatus.INTERNAL_SERVER_ERROR) from error

    def _handler(self, request: _Request) -> Handler | None:
        queried = self._queries.get(request.path)
        if queried is not None:
            return functools.partial(queried, request.query)
        return self._routes.get(request.path)


async def _read(reader: asyncio.StreamReader) -> _Request:
    try:
        async with asyncio.timeout(REQUEST_S_MAX):
            head = await reader.readuntil(b"\r\n\r\n")
    except TimeoutError as error:
        raise _RefusedError(HTTPStatus.REQUEST_TIMEOUT) from error
    except asyncio.LimitOverrunError as error:
        raise _RefusedError(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE) from error
    except asyncio.IncompleteReadError as error:
        raise _RefusedError(HTTPStatus.BAD_REQUEST) from error
    match head.split(b"\r\n", 1)[0].decode("latin-1").split(" "):
        case [method, target, "HTTP/1.1" | "HTTP/1.0"] if method and target:
            return _Request(method, *_path_and_query(target))
        case _:
            raise _RefusedError(HTTPStatus.BAD_REQUEST)


async def _linger(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    # Closing over unread bytes resets the connection, and the refusal is lost.
    writer.write_eof()
    async with asyncio.timeout(LINGER_S_MAX):
        for _ in range(LINGER_READS_MAX):
            if not await reader.read(REQUEST_BYTES_MAX):
                return


def _path_and_query(target: str) -> tuple[str, Query]:
    try:
        split = urlsplit(target)
        return split.path or "/", dict(parse_qsl(split.query))
    except ValueError as error:
        raise _RefusedError(HTTPStatus.BAD_REQUEST) from error


def _plain(status: HTTPStatus) -> Response:
    return status, TEXT, f"{status.phrase}\n".encode()


def _head(response: Response) -> bytes:
    status, content_type, body = response
    lines = [
        f"HTTP/1.1 {int(status)} {HTTPStatus(status).phrase}",
        f"Content-Type: {content_type}",
        f"Content-Length: {len(body)}",
        "Cache-Control: no-store",
        "Connection: close",
    ]
    if status == HTTPStatus.METHOD_NOT_ALLOWED:
        lines.append(f"Allow: {', '.join(METHODS)}")
    return "\r\n".join([*lines, "", ""]).encode("latin-1")
