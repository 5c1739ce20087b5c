"""A TCP proxy before a nats-server: it pauses, drops and delays what passes."""

import asyncio
from types import TracebackType
from typing import Self

_PIECE = 1 << 16


class Proxy:
    """Listens on a free port of this machine and passes everything on to a server.

    While paused nothing passes and nothing is refused, as in a black hole; what came
    meanwhile passes afterwards. With ``delay_s`` every piece is that late.
    """

    def __init__(self, port: int, *, host: str = "127.0.0.1") -> None:
        self._host, self._port = host, port
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._passing: set[asyncio.Task[None]] = set()
        self.delay_s = 0.0

    @property
    def url(self) -> str:
        assert self._server is not None
        return f"nats://{self._host}:{self._server.sockets[0].getsockname()[1]}"

    def pause(self) -> None:
        """Let nothing pass; connections stay open."""
        self._flowing.clear()

    def resume(self) -> None:
        """Let pass what waited, and what comes."""
        self._flowing.set()

    def drop(self) -> None:
        """Break every connection there is."""
        for writer in list(self._writers):
            writer.transport.abort()

    async def _accept(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        try:
            there = await asyncio.open_connection(self._host, self._port)
        except OSError:
            writer.transport.abort()
            return
        for source, target in ((reader, there[1]), (there[0], writer)):
            self._writers.add(target)
            task = asyncio.create_task(self._pass(source, target))
            self._passing.add(task)
            task.add_done_callback(self._passing.discard)

    async def _pass(
        self, source: asyncio.StreamReader, target: asyncio.StreamWriter
    ) -> None:
        try:
            while piece := await source.read(_PIECE):
                await self._flowing.wait()
                if self.delay_s:
                    await asyncio.sleep(self.delay_s)
                target.write(piece)
                await target.drain()
        except OSError:
            return
        finally:
            self._writers.discard(target)
            target.close()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, self._host, 0)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        assert self._server is not None
        self._server.close()
        self._flowing.set()
        self.drop()
        for task in list(self._passing):
            task.cancel()
        await asyncio.gather(*self._passing, return_exceptions=True)
