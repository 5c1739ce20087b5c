"""`connect`: one process's way into a cell, and everything that starts from there."""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
import ssl
from collections.abc import Callable, Coroutine, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Final, Literal

from prometheus_client import CollectorRegistry

from events import (
    AnyEvent,
    Cell,
    Host,
    Incarnation,
    ModelName,
    Namespace,
    Revision,
    Role,
    WorkerId,
    check_cell,
    check_namespace,
    check_role,
    check_worker_id,
)
from projections import Fleet, PlaneState, Want

from . import topology
from .broker.jetstream import JetStreamBroker
from .clock import SystemClock
from .eventlog import Appended, EventLog
from .gate import Deployment, DrainResult, Gate, ReadyResult, Unseen, glimpse
from .loads import checked_load, encode_load
from .logs import get_logger
from .operators import Operators
from .playback import replay_log
from .ports.claimer import Claimer
from .ports.facade import Ports
from .presence import RouterSeen, WaitResult
from .router.client import RouterView
from .settings import Settings
from .telemetry import PortMetrics, RouterMetrics, WorkerMetrics
from .topology import Names
from .urls import check_urls
from .viewfeed import ViewFeed
from .worker import BeatThread, WorkerHandle, WorkerSpec

_log = get_logger("plane")
DEFAULT_URL: Final = "nats://127.0.0.1:4222"


class PlaneLog(EventLog):
    """The log of a plane: read, follow, append, replay."""

    async def replay(self, until: Revision | datetime | None = None) -> PlaneState:
        """The state after every record up to ``until``; see `replay_log`."""
        return await replay_log(self, until)


class Plane(Operators):
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
        self._port_metrics = PortMetrics(self.registry)
        self._tasks: asyncio.TaskGroup | None = None
        self._router_metrics: RouterMetrics | None = None
        self._wire(servers)

    def _wire(self, servers: Sequence[str]) -> None:
        """Put the rooms over a connection to ``servers``, which is not open yet."""
        self._servers = tuple(servers)
        self._contact_lost = False
        self.broker = self._connection(self.name)
        self.log = PlaneLog(self.broker, self.cell, self.settings)
        self.feed = ViewFeed(self.broker, self.cell)
        self._gate = Gate(
            self.broker,
            self.log,
            self.feed,
            self.settings,
            view=lambda: self.view(announce=False),
        )
        self._beats = BeatThread(
            lambda: self._connection(f"{self.name} beats"),
            self.settings,
            self._worker_metrics,
        )
        claimer = Claimer(
            log=self.log,
            broker=self.broker,
            clock=self._clock,
            settings=self.settings,
            by=self.name,
            pid=os.getpid(),
            metrics=self._port_metrics,
        )
        self.ports = Ports(
            claimer=claimer,
            broker=self.broker,
            beats=self._beats,
            names=self.names,
            cooldown_s=self.settings.port_cooldown_s,
            environ=os.environ,
            spawn=self._spawn,
        )

    def _spawn(self, work: Coroutine[Any, Any, None]) -> bool:
        """Run ``work`` for as long as the plane does; False: it does not run."""
        if self._tasks is None:
            work.close()
            return False
        self._tasks.create_task(work)
        return True

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
        self._tasks = tasks
        stop_listening = self.broker.on_connection(self._connection_changed)
        try:
            await self.broker.start()
            self._ready.set()
            await asyncio.Event().wait()
        finally:
            self._tasks = None
            stop_listening()

    def _connection_changed(self, connected: bool) -> None:  # noqa: FBT001
        if not connected:
            self._contact_lost = True
            _log.warning("broker connection lost", url=self.url)
        elif self._contact_lost:
            _log.info("broker connected again", url=self.url)

    async def _close(self) -> None:
        await self.ports.close()
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
        self,
        spec: WorkerSpec,
        ports: Mapping[str, int | Want] | None = None,
        *,
        host: Host | None = None,
        bind_check: bool = True,
    ) -> WorkerHandle:
        """A worker, registered and beating between its start and stop.

        ``ports``: a block of so many for each name, on ``host`` (None: this one);
        claimed before it registers, and `WorkerHandle.ports` afterwards.
        """
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
            claiming=self.ports.claimer,
            host=host,
            bind_check=bind_check,
            metrics=self._worker_metrics,
        )

    async def report_load(
        self,
        namespace: Namespace,
        worker_id: WorkerId,
        *,
        incarnation: Incarnation,
        kv_usage: float | None = None,
        running: int | None = None,
        waiting: int | None = None,
    ) -> None:
        """Say for another how busy it is: see `WorkerHandle.report_load`.

        For whoever scrapes engines that do not speak for themselves; routers believe
        it if ``incarnation`` is the worker's current life. Sent at most, and not at all
        without a broker. Raises `SettingsError` for what can be no load, and when the
        broker does not let this process say it; `InvalidIdentityError`.
        """
        subject = self.names.load(
            check_namespace(namespace), check_worker_id(worker_id)
        )
        load = checked_load(
            incarnation, kv_usage=kv_usage, running=running, waiting=waiting
        )
        await self.broker.publish(subject, encode_load(load))

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

    # ---- operators -------------------------------------------------------------
    async def _decide(self, event: AnyEvent) -> Appended:
        return await self.log.append(event)

    async def _fleet_now(self) -> Fleet:
        """From a view; from the log itself where no projector keeps one up to date."""
        view = self.view(announce=False)
        found = await glimpse(view, self.broker, self.names, self.settings)
        if isinstance(found, Unseen):
            return (await self.log.replay()).fleet
        return found

    async def routers(self) -> tuple[RouterSeen, ...]:
        """Every router that is there, or went lately without goodbye, by name."""
        return await self._gate.routers()

    async def epoch(self) -> str | None:
        """The current epoch of the view; None: there is none yet."""
        return await self._gate.epoch()

    async def wait(
        self,
        revision: Revision,
        routers: Literal["all"] | int = "all",
        timeout_s: float = 30.0,
    ) -> WaitResult:
        """Wait until routers have ``revision``, in the current epoch.

        Returns what came of it within ``timeout_s``; without a live router it is not
        reached, nor is a revision that the log does not have. Raises `SettingsError`
        for what is no revision.
        """
        return await self._gate.reached(revision, routers, timeout_s)

    async def wait_ready(
        self,
        namespace: Namespace,
        model: ModelName,
        min_ready: int,
        routers: Literal["all"] | int = "all",
        timeout_s: float = 30.0,
        *,
        role: Role | str | None = None,
    ) -> ReadyResult:
        """Wait until routers have ``min_ready`` routable workers of a deployment.

        These are the workers in ``namespace`` that answer to ``model`` (a model's or an
        adapter's name) in ``role``, else at which a request may start. Returns what
        came of it within ``timeout_s``.
        """
        deployment = Deployment(
            namespace=namespace,
            model=model,
            role=None if role is None else check_role(role),
        )
        return await self._gate.ready(deployment, min_ready, routers, timeout_s)

    async def wait_drained(
        self, namespace: Namespace, worker_id: WorkerId, timeout_s: float = 30.0
    ) -> DrainResult:
        """Wait until a worker is drained, or gone: it is safe to delete then.

        Gone is who left after draining, or was absent for 2 s: one that crashes and
        is started again within that is not, nor drained if it never was draining.
        Returns what came of it within ``timeout_s``, and at once when no record of the
        log names the worker. See `request_drain`.
        """
        return await self._gate.drained(namespace, worker_id, timeout_s)


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
