"""Engines that speak as vLLM does, over real sockets, and fail when a test says so."""

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import msgspec
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp

from controlplane.demo.speech import CHAT, TEXT, Asked, Speech, refusal

STOP_S_MAX = 2.0


class _Server(uvicorn.Server):
    """Signals are pytest's."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@asynccontextmanager
async def served(app: ASGIApp) -> AsyncIterator[tuple[str, uvicorn.Server]]:
    """Serve ``app`` as engines and routers are served; yield URL and server."""
    listening = socket.create_server(("127.0.0.1", 0))
    server = _Server(uvicorn.Config(app, lifespan="off", log_config=None))
    running = asyncio.create_task(server.serve([listening]))
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}", server
    finally:
        running.cancel()  # its own way of ending takes its time
        await asyncio.wait({running})
        for each in server.servers:
            each.close()
        cut(server)
        if server.server_state.tasks:
            await asyncio.wait(server.server_state.tasks, timeout=STOP_S_MAX)


def cut(server: uvicorn.Server) -> None:
    """Drop all connections, as a process that is killed."""
    for connection in list(server.server_state.connections):
        connection.transport.abort()


class Engine:
    """Serves one model; what it is asked, and how it answers, is in its attributes."""

    def __init__(self, name: str, model: str = "llama") -> None:
        self.name, self.model = name, model
        self.asked: list[tuple[Request, bytes]] = []
        self.hold_at: int | None = None
        """Before this event of a stream, or before any answer (0), it waits."""
        self.held, self.go, self.left = (asyncio.Event() for _ in range(3))
        """It waits; it may go on; whoever asked closed the connection."""
        self.url = ""
        self._server: uvicorn.Server | None = None

    @property
    def words(self) -> list[str]:
        return ["I", " am", f" {self.name}."]

    def cut(self) -> None:
        """Drop all connections, as a process that is killed."""
        assert self._server is not None
        cut(self._server)

    @asynccontextmanager
    async def serving(self) -> AsyncIterator["Engine"]:
        routes = [
            Route(path, self._complete, methods=["POST"]) for path in (CHAT, TEXT)
        ]
        async with served(Starlette(routes=routes)) as (self.url, self._server):
            yield self
            self.go.set()

    async def _complete(self, request: Request) -> Response:
        body = await request.body()
        self.asked.append((request, body))
        asked = msgspec.json.decode(body, type=Asked)
        if asked.model != self.model:
            message = f"The model `{asked.model}` does not exist."
            return JSONResponse(refusal(404, message, "model"), 404)
        speech = Speech(request.url.path, asked, len(self.asked), self.words)
        headers = {"x-request-id": request.headers.get("x-request-id", "none")}
        if asked.stream:
            events = self._say(speech)
            return StreamingResponse(events, 200, headers, "text/event-stream")
        if self.hold_at == 0:
            await self._hold_or_leave(request)
        return JSONResponse(speech.whole(), 200, headers)

    async def _say(self, speech: Speech) -> AsyncIterator[bytes]:
        for place, event in enumerate(speech.events()):
            if place == self.hold_at:
                self.held.set()
                try:
                    await self.go.wait()
                except asyncio.CancelledError:
                    self.left.set()
                    raise
            yield event

    async def _hold_or_leave(self, request: Request) -> None:
        self.held.set()
        going = asyncio.ensure_future(self.go.wait())
        leaving = asyncio.ensure_future(request.receive())
        await asyncio.wait({going, leaving}, return_when="FIRST_COMPLETED")
        if leaving.done():
            self.left.set()
        going.cancel()
        leaving.cancel()


class Slammer:
    """A port at which every connection is closed at once; counts them."""

    def __init__(self) -> None:
        self.connections = 0
        self.url = ""

    @asynccontextmanager
    async def serving(self) -> AsyncIterator["Slammer"]:
        server = await asyncio.start_server(self._slam, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with server:
            yield self

    async def _slam(
        self, _: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.connections += 1
        writer.transport.abort()
