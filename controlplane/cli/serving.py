"""``up``, ``init``, ``projector``: what runs the control plane."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path
from typing import Annotated, Final, Literal

from cyclopts import Parameter, validators

from controlplane.errors import SettingsError
from controlplane.logs import get_logger
from controlplane.plane import Plane, connect
from controlplane.server import EmbeddedServer
from controlplane.serving import Projector, parse_listen
from events import check_cell

from .exits import OK, from_arguments
from .opening import check_complete, connected
from .options import CONNECTING, IN_CELL, Connecting, InCell
from .printing import print_lines
from .running import run
from .whole import Whole

_log = get_logger("cli")
DEFAULT_PORT: Final = 4222
DEFAULT_STORE: Final = Path("controlplane-data")
WATCH_SERVER_S: Final = 0.5

Port = Annotated[Whole | None, Parameter(validator=validators.Number(gte=0, lte=65535))]
Replicas = Literal[1, 3, 5]


def up(
    *,
    store_dir: Path = DEFAULT_STORE,
    port: Port = None,
    http: str | None = None,
    options: InCell = IN_CELL,
) -> int:
    """Run a whole control plane on this machine: a nats-server and a projector.

    It runs until Ctrl-C; started again on the same directory, it goes on.

    Parameters
    ----------
    store_dir
        Where the log is kept.
    port
        The broker's port; 0 is any free one. Else 4222, or if that is busy any.
    http
        Where to serve metrics, health and the view: HOST:PORT. Else 127.0.0.1:9780.

    options
        What commands of its kind share.

    """
    cell = check_cell(options.cell or "default")
    _check_listen(http)
    return run(
        lambda: _up(store_dir.absolute(), port, http, cell), options, endless=True
    )


async def _up(store_dir: Path, port: int | None, http: str | None, cell: str) -> int:
    server = EmbeddedServer(store_dir, _port(port))
    try:
        await server.start()
    except OSError as error:
        rule = f"a directory to write to ({error.strerror})"
        raise SettingsError(
            field="store-dir", value=str(store_dir), rule=rule
        ) from error
    try:
        async with connect(server.url, cell=cell) as plane:
            await plane.init()
            async with Projector(plane, http) as projector:
                print_lines(await _welcome(plane, projector, store_dir))
                await _keep_up(server, projector)
    finally:
        await server.stop()
        print_lines([f"stopped; the log is kept in {store_dir}"])
    return OK


async def _keep_up(server: EmbeddedServer, projector: Projector) -> None:
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(projector.run())
        tasks.create_task(_keep_server(server))


async def _keep_server(server: EmbeddedServer) -> None:
    """Start the server again if it ends: the log is on disk, everyone reconnects."""
    while True:
        await asyncio.sleep(WATCH_SERVER_S)
        before = server.pid
        await server.start()
        if server.pid != before:
            _log.warning("nats-server had ended and was started again", pid=server.pid)


async def _welcome(plane: Plane, projector: Projector, store_dir: Path) -> list[str]:
    revision = (await plane.log.state()).last_revision
    begun = f"resumed at revision {revision}" if revision else "new, empty"
    standard = plane.url == f"nats://127.0.0.1:{DEFAULT_PORT}"
    command = "" if standard else f"NATS_URL={plane.url} "
    command += "controlplane models"
    command += "" if plane.cell == "default" else f" --cell {plane.cell}"
    return [
        "controlplane is up; Ctrl-C stops it",
        f"  url   {plane.url}",
        f"  cell  {plane.cell} ({begun})",
        f"  data  {store_dir}",
        f"  http  {projector.http_url} (/view /readyz /metrics)",
        f"  next  {command}",
    ]


def _port(asked: int | None) -> int:
    """The port for the broker. Raises `SettingsError` for one asked for and taken."""
    if asked == 0:
        return 0
    wanted = DEFAULT_PORT if asked is None else asked
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", wanted))
        except OSError as error:
            if asked is None:
                return 0
            rule = f"a free port ({error.strerror}); --port 0 takes any"
            raise SettingsError(field="port", value=asked, rule=rule) from error
    return wanted


def init(*, replicas: Replicas = 1, options: Connecting = CONNECTING) -> int:
    """Create the cell on a nats-server, or say that it is as it should be.

    Parameters
    ----------
    replicas
        How many servers of a cluster keep each stream.

    options
        What commands of its kind share.

    """
    return run(lambda: _init(replicas, options), options)


async def _init(replicas: int, options: Connecting) -> int:
    async with connected(options) as plane:
        created = await plane.init(replicas)
        said = "was created" if created else "is as it should be"
        print_lines([f"cell {plane.cell} {said} at {plane.url}"])
    return OK


def projector(
    *,
    http: str | None = None,
    name: str | None = None,
    options: Connecting = CONNECTING,
) -> int:
    """Run a projector for a nats-server that exists. Several may run: one leads.

    Parameters
    ----------
    http
        Where to serve metrics, health and the view: HOST:PORT. Else 127.0.0.1:9780.
    name
        How it is called in logs and heads.

    options
        What commands of its kind share.

    """
    _check_listen(http)
    return run(
        lambda: _projector(http, name, options),
        options,
        endless=True,
        log_level="info",
    )


async def _projector(http: str | None, name: str | None, options: Connecting) -> int:
    async with connected(options) as plane:
        await check_complete(plane)
        async with Projector(plane, http, name) as service:
            _log.info(
                "projector started",
                projector=service.name,
                cell=plane.cell,
                url=plane.url,
                http=service.http_url,
            )
            await service.run()
    return OK


def _check_listen(http: str | None) -> None:
    if http is not None:
        with from_arguments():
            parse_listen(http)
