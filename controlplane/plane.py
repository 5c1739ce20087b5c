"""`connect`: one process's way into a cell, and everything that starts from there."""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
import ssl
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Final, Literal

from prometheus_client import CollectorRegistry

from events import Cell, Namespace, Revision, check_cell
from projections import PlaneState

from . import topology
from .broker.jetstream import JetStreamBroker
from .clock import SystemClock
from .errors import SettingsError
from .eventlog import EventLog
from .http import HttpServer
from .logs import get_logger
from .playback import replay_log
from .presence import RouterSeen, WaitResult, judge_wait, names_astray, routers
from .projector.service import ProjectorService
from .router.client import RouterView
from .runtime import Lifetime
from .server import EmbeddedServer
from .settings import Settings
from .telemetry import RouterMetrics, WorkerMetrics
from .topology import Names
from .urls import check_urls
from .viewfeed import ViewFeed
from .worker import BeatThread, WorkerHandle, WorkerSpec

_log = get_logger("plane")
DEFAULT_URL: Final = "nats://127.0.0.1:4222"
DEFAULT_HTTP: Final = ("127.0.0.1", 9780)
WAIT_PAUSE_S: Final = 0.05


class PlaneLog(EventLog):
    """The log of a plane: read, follow, append, replay."""

    async def replay(self, until: Revision | datetime | None = None) -> PlaneState:
        """The state after every record up to ``until``; see `replay_log`."""
        return await replay_log(self, until)


class Plane(Lifetime):
    """A connection to a cell. Starting returns at once and connects for ever.

    Calls that need the broker raise `LogUnavailableError` after
    ``settings.connect_timeout_s``. Started again after a stop it has a new connection:
    workers and views made before the stop are to be made anew.
    """

    def __init__(
        self,
        servers: Sequence[str],
        *,
        cell: Cell,
        name: str,
        settings: Settings,
        creds: str | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """Prepare; nothing is sent yet."""
        super().__init__()
        self.cell, self.name, self.settings = check_cell(cell), name, settings
        self.names = Names(cell)
        self.registry = CollectorRegistry()
        self._creds, self._tls = creds, tls
        self._clock = SystemClock()
        self._worker_metrics = WorkerMetrics(self.registry)
        self._router_metrics: RouterMetrics | None = None
        self._wire(servers)

    def _wire(self, servers: Sequence[str]) -> None:
        """Put the rooms over a connection to ``servers``, which is not open yet."""
        self._servers = tuple(servers)
        self._contact_lost = False
        self.broker = self._connection(self.name)
        self.log = PlaneLog(self.broker, self.cell, self.settings)
        self.feed = ViewFeed(self.broker, self.cell)
        self._beats = BeatThread(
            lambda: self._connection(f"{self.name} beats"),
            self.settings,
            self._worker_metrics,
        )

    @property
    def url(self) -> str:
        """The broker's URLs as asked for, without credentials."""
        return self.broker.url

    def _connection(self, name: str) -> JetStreamBroker:
        return JetStreamBroker(
            self._servers,
            name=name,
            connect_timeout_s=self.settings.connect_timeout_s,
            creds=self._creds,
            tls=self._tls,
        )

    async def _run(self, tasks: asyncio.TaskGroup) -> None:
        del tasks
        stop_listening = self.broker.on_connection(self._connection_changed)
        try:
            await self.broker.start()
            self._ready.set()
            await asyncio.Event().wait()
        finally:
            stop_listening()

    def _connection_changed(self, connected: bool) -> None:  # noqa: FBT001
        if not connected:
            self._contact_lost = True
            _log.warning("broker connection lost", url=self.url)
        elif self._contact_lost:
            _log.info("broker connected again", url=self.url)

    async def _close(self) -> None:
        await self._beats.stop()
        await self.broker.stop()
        self._wire(self._servers)  # a connection that was stopped stays so

    async def connected(self) -> None:
        """Wait for the broker.

        Raises `LogUnavailableError` in time, `SettingsError` for one that will not do.
        """
        await self.broker.wait_connected(self.settings.connect_timeout_s)

    async def init(self, replicas: int = 1) -> bool:
        """Create the cell, or do nothing if it is as it should be.

        Returns whether anything was created. Raises `TopologyDriftError` naming each
        difference.
        """
        await self.connected()
        return await topology.init(
            self.broker, self.cell, self.settings, replicas=replicas
        )

    def worker(
        self, spec: WorkerSpec, ports: Mapping[str, int] | None = None
    ) -> WorkerHandle:
        """A worker, registered and beating between its start and stop."""
        return WorkerHandle(
            spec,
            log=self.log,
            broker=self.broker,
            beats=self._beats,
            settings=self.settings,
            clock=self._clock,
            by=self.name,
            environ=os.environ,
            ports=ports,
            metrics=self._worker_metrics,
        )

    def view(
        self,
        namespaces: Callable[[Namespace], bool] | None = None,
        checkpoint: str | Path | None = None,
        name: str | None = None,
        max_stale_s: float | None = None,
        *,
        announce: bool = True,
    ) -> RouterView:
        """A router's view; ``name`` identifies the router to others.

        ``namespaces`` is a lens, as a `NamespaceFilter`; None shows all. Without
        ``announce`` it is no router in the eyes of `routers` and `wait`.
        """
        if self._router_metrics is None:
            self._router_metrics = RouterMetrics(self.registry)
        return RouterView(
            broker=self.broker,
            log=self.log,
            feed=self.feed,
            settings=self.settings,
            clock=self._clock,
            name=name or f"router-{secrets.token_hex(4)}",
            visible=namespaces,
            checkpoint=None if checkpoint is None else Path(checkpoint),
            max_stale_s=max_stale_s,
            metrics=self._router_metrics,
            announce=announce,
        )

    async def routers(self) -> tuple[RouterSeen, ...]:
        """Every router that is there, or went lately without goodbye, by name."""
        return await routers(self.broker, self.names, self.settings)

    async def epoch(self) -> str | None:
        """The current epoch of the view; None: there is none yet."""
        state = await self.feed.state()
        if state.messages:
            entry = await self.feed.at(state.last_sequence)
            if entry is not None and entry.message is not None:
                return str(entry.message.epoch)
        pointer = await self.feed.snapshot_pointer()
        return None if pointer is None else str(pointer.position.epoch)

    async def wait(
        self,
        revision: Revision,
        routers: Literal["all"] | int = "all",
        timeout_s: float = 30.0,
    ) -> WaitResult:
        """Wait until routers have ``revision``, in the current epoch.

        Returns what came of it within ``timeout_s``; without a live router it is not
        reached, nor is a revision that the log does not have.
        """
        if routers != "all" and (not isinstance(routers, int) or routers < 1):
            rule = "'all', or a count of at least 1"
            raise SettingsError(field="routers", value=routers, rule=rule)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        wanted = None if routers == "all" else routers
        while True:
            seen = await self.routers()
            epoch, end = await self.epoch(), (await self.log.state()).last_revision
            result = judge_wait(
                seen,
                epoch,
                revision,
                wanted,
                log_end=end,
                astray=await names_astray(self.log, seen),
            )
            if result.reached or loop.time() >= deadline:
                return result
            await asyncio.sleep(min(WAIT_PAUSE_S, max(0.0, deadline - loop.time())))


def connect(
    url: str | Sequence[str] | None = None,
    *,
    cell: str | None = None,
    creds: str | None = None,
    tls: ssl.SSLContext | None = None,
    name: str | None = None,
    settings: Settings | None = None,
) -> Plane:
    """A plane at ``url`` (else ``NATS_URL``, else this machine), not started yet.

    ``cell``: else ``CP_CELL``, else ``default``. ``creds``: a file of NATS
    credentials, else ``NATS_CREDS``. ``name``: who appends, as the log shows it.
    Raises `SettingsError` for what is no URL of a NATS server, `InvalidIdentityError`
    for what is no cell's name. An empty variable is as none; an empty argument is not.
    """
    if url is None:
        url = os.environ.get("NATS_URL") or DEFAULT_URL
    if cell is None:
        cell = os.environ.get("CP_CELL") or "default"
    return Plane(
        check_urls(url),
        cell=check_cell(cell),
        name=name or f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(2)}",
        settings=settings or Settings(),
        creds=creds or os.environ.get("NATS_CREDS"),
        tls=tls,
    )


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
