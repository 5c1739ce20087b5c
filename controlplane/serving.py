"""A plane with more in it: a projector that serves its cell, or all in one process."""

from __future__ import annotations

import asyncio
import os
import secrets
from pathlib import Path
from typing import Final, Literal

from .errors import SettingsError
from .http import HttpServer
from .plane import DEFAULT_URL, Plane
from .projector.service import ProjectorService
from .runtime import Lifetime
from .server import EmbeddedServer
from .settings import Settings

DEFAULT_HTTP: Final = ("127.0.0.1", 9780)


class Projector(Lifetime):
    """A projection service of a plane's cell, with its pages over HTTP.

    ``http``: ``host:port``; None: 127.0.0.1:9780, or any free port if that is busy;
    False: no pages. Starting raises `LogUnavailableError` without a broker.
    """

    def __init__(
        self,
        plane: Plane,
        http: str | Literal[False] | None = None,
        name: str | None = None,
    ) -> None:
        """Prepare; nothing runs yet."""
        super().__init__()
        self._plane = plane
        self.name = name or f"projector-{secrets.token_hex(4)}"
        self.service = ProjectorService(
            broker=plane.broker,
            log=plane.log,
            feed=plane.feed,
            settings=plane.settings,
            clock=plane._clock,  # noqa: SLF001 - one room
            name=self.name,
        )
        self._http = None if http is False else self._server(http)

    def _server(self, http: str | None) -> HttpServer:
        routes = self.service.routes()
        if http is None:
            host, port = DEFAULT_HTTP
            return HttpServer(host, port, routes, fallback_any_port=True)
        host, port = parse_listen(http)
        return HttpServer(host, port, routes)

    @property
    def http_url(self) -> str | None:
        """Where its pages are."""
        return None if self._http is None else self._http.url

    async def _run(self, tasks: asyncio.TaskGroup) -> None:
        del tasks
        if self._http is not None:
            await self._http.start()
        await self.service.start()
        self._ready.set()
        await self.service.join()

    async def _close(self) -> None:
        await self.service.stop()
        if self._http is not None:
            await self._http.stop()

    async def run(self) -> None:
        """Wait until it ends; by itself only with an error, which is raised."""
        await self.join()


class LocalPlane(Plane):
    """A plane with an embedded nats-server and a projector of its own."""

    def __init__(
        self, store_dir: str | Path | None = None, settings: Settings | None = None
    ) -> None:
        """Prepare; ``store_dir`` keeps the log, without one it is temporary."""
        self.server = EmbeddedServer(store_dir)
        self.projector: Projector | None = None
        super().__init__(
            (DEFAULT_URL,),
            cell="default",
            name=f"local-{os.getpid()}",
            settings=settings or Settings(),
        )

    async def _enter(self) -> None:
        """Start server, cell and projector."""
        await self.server.start()
        self._wire((self.server.url,))
        await super()._enter()
        await self.init()
        self.projector = await Projector(self, http=False).start()

    async def _stop(self) -> None:
        """Stop projector, connection and server."""
        projector, self.projector = self.projector, None
        if projector is not None:
            await projector.stop()
        await super()._stop()
        await self.server.stop()


def local(
    store_dir: str | Path | None = None, *, settings: Settings | None = None
) -> LocalPlane:
    """A whole control plane in one object, for a laptop or a test; not started yet."""
    return LocalPlane(store_dir, settings)


def parse_listen(text: str) -> tuple[str, int]:
    """Host and port of ``host:port``. Raises `SettingsError`."""
    host, separator, digits = text.rpartition(":")
    if not separator or not digits.isdecimal() or not host:
        rule = "host:port, as 127.0.0.1:9780"
        raise SettingsError(field="http", value=text, rule=rule)
    return host.strip("[]"), int(digits)
