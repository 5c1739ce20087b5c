"""A TCP proxy before a server: it pauses, drops, delays and swallows what passes."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Self

_PIECE = 1 << 16
_WAITING_MAX = 256
"""Pieces that wait in one direction of one connection; then TCP pushes back."""
_QUIET_S = 0.1
"""So long nobody says anything: then all that was sent has arrived."""


class Way:
    """One direction through a proxy, of all its connections together."""

    def __init__(self) -> None:
        self._flowing = asyncio.Event()
        self._flowing.set()
        self.delay_s = 0.0
        """Every piece is that late; their distances stay."""
        self.swallowing = False
        """What comes out now vanishes. A NATS stream is corrupt then: break it."""
        self.bytes = 0
        """So many came out."""
        self.swallowed = 0
        """So many vanished."""

    def pause(self) -> None:
        """Let nothing pass; what comes waits."""
        self._flowing.clear()

    def resume(self) -> None:
        """Let pass what waited, and what comes."""
        self._flowing.set()

    async def admit(self, piece: bytes, due_at: float) -> bytes:
        """What is left of ``piece`` when it may come out."""
        late_s = due_at - asyncio.get_running_loop().time()
        if late_s > 0:
            await asyncio.sleep(late_s)
        await self._flowing.wait()
        if self.swallowing:
            self.swallowed += len(piece)
            return b""
        self.bytes += len(piece)
        return piece


class Sieve:
    """Looks at the bytes of one connection on their way to the client; keeps all."""

    def feed(self, piece: bytes) -> bytes:
        """What may pass now."""
        return piece


class _Passage:
    """One connection: two directions, each with what waits in it."""

    def __init__(
        self,
        client: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        server: tuple[asyncio.StreamReader, asyncio.StreamWriter],
    ) -> None:
        self._client, self._server = client, server
        self.task: asyncio.Task[None] | None = None

    async def run(self, to_server: Way, to_client: Way, sieve: Sieve) -> None:
        """Pass everything on until both sides have ended."""
        queues = [asyncio.Queue[tuple[float, bytes]](_WAITING_MAX) for _ in range(2)]
        (hears, says), (server_hears, server_says) = self._client, self._server
        takers = [
            asyncio.create_task(_take(hears, queues[0], to_server)),
            asyncio.create_task(_take(server_hears, queues[1], to_client)),
        ]
        givers = [
            asyncio.create_task(_give(queues[0], server_says, to_server, Sieve())),
            asyncio.create_task(_give(queues[1], says, to_client, sieve)),
        ]
        try:
            await asyncio.wait(givers)
        finally:
            self.abort()
            for task in (*takers, *givers):
                task.cancel()
            await asyncio.gather(*takers, *givers, return_exceptions=True)

    def abort(self) -> None:
        """Break both sides: what waits is lost."""
        self._client[1].transport.abort()
        self._server[1].transport.abort()


async def _take(
    source: asyncio.StreamReader, waiting: asyncio.Queue[tuple[float, bytes]], way: Way
) -> None:
    loop, piece = asyncio.get_running_loop(), b"-"
    while piece:
        try:
            piece = await source.read(_PIECE)
        except OSError:
            piece = b""
        await waiting.put((loop.time() + way.delay_s, piece))


async def _give(
    waiting: asyncio.Queue[tuple[float, bytes]],
    target: asyncio.StreamWriter,
    way: Way,
    sieve: Sieve,
) -> None:
    try:
        while (item := await waiting.get())[1]:
            if kept := sieve.feed(await way.admit(item[1], item[0])):
                target.write(kept)
                await target.drain()
    except OSError:
        return
    finally:
        target.close()


class Proxy:
    """Listens on a free port of this machine and passes everything on to a server.

    While paused nothing passes and nothing is refused, as in a black hole; what came
    meanwhile passes afterwards. ``to_server`` and ``to_client`` are the directions.
    """

    def __init__(self, port: int, *, host: str = "127.0.0.1") -> None:
        self._host, self._server_port = host, port
        self._listener: asyncio.Server | None = None
        self._passages: dict[_Passage, None] = {}
        self._drops = 0
        self.port = 0
        """Where it listens."""
        self.to_server, self.to_client = Way(), Way()
        self.refusing = False
        """New connections are reset at once, as by a server that is not there."""
        self.connections = 0
        """So many were led to the server."""
        self.refused = 0
        """So many were reset: while `refusing`, or because no server was there."""

    @property
    def url(self) -> str:
        return f"nats://{self._host}:{self.port}"

    @property
    def open(self) -> int:
        """So many connections are there now."""
        return len(self._passages)

    @property
    def delay_s(self) -> float:
        return self.to_server.delay_s

    @delay_s.setter
    def delay_s(self, delay_s: float) -> None:
        self.to_server.delay_s = self.to_client.delay_s = delay_s

    # ---- faults ----------------------------------------------------------------
    def pause(self) -> None:
        """Let nothing pass, either way; connections stay open."""
        self.to_server.pause()
        self.to_client.pause()

    def resume(self) -> None:
        """Let pass what waited, and what comes."""
        self.to_server.resume()
        self.to_client.resume()

    def drop(self) -> None:
        """Break every connection there is; what waits in them is lost."""
        for passage in list(self._passages):
            passage.abort()
            if passage.task is not None:
                passage.task.cancel()
        self._passages.clear()
        self._drops += 1

    async def drop_answers(self, within_s: float = 1.0) -> None:
        """Break every connection; what clients sent arrives, what answers it does not.

        It waits for a moment in which nobody says anything, at most ``within_s``.
        New connections are whole.
        """
        self.to_client.swallowing = True
        try:
            await self._silence(within_s)
        finally:
            self.drop()
            self.to_client.swallowing = False

    async def _silence(self, within_s: float) -> None:
        loop = asyncio.get_running_loop()
        end, before, since = loop.time() + within_s, -1, loop.time()
        while loop.time() < end and loop.time() - since < _QUIET_S:
            moved = self.to_server.bytes + self.to_client.swallowed
            if moved != before:
                before, since = moved, loop.time()
            await asyncio.sleep(_QUIET_S / 10)

    # ---- passing ---------------------------------------------------------------
    async def _accept(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        drops = self._drops
        there = None if self.refusing else await self._reach_server()
        if there is None or drops != self._drops:
            self.refused += 1
            writer.transport.abort()
            if there is not None:
                there[1].transport.abort()
            return
        self.connections += 1
        passage = _Passage((reader, writer), there)
        self._passages[passage] = None
        run = passage.run(self.to_server, self.to_client, self._sieve())
        passage.task = asyncio.create_task(run)
        passage.task.add_done_callback(lambda _: self._passages.pop(passage, None))

    async def _reach_server(
        self,
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter] | None:
        try:
            return await asyncio.open_connection(self._host, self._server_port)
        except OSError:
            return None

    def _sieve(self) -> Sieve:
        """What looks at the bytes of a new connection on their way to the client."""
        return Sieve()

    # ---- lifetime --------------------------------------------------------------
    async def __aenter__(self) -> Self:
        self._listener = await asyncio.start_server(self._accept, self._host, 0)
        self.port = self._listener.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        assert self._listener is not None
        self._listener.close()
        tasks = [p.task for p in self._passages if p.task is not None]
        self.drop()
        await asyncio.gather(*tasks, return_exceptions=True)
