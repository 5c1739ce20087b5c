"""Opening a cell for a command: connected, complete, and a view that is up to date."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from controlplane import topology
from controlplane.errors import TopologyDriftError
from controlplane.plane import Plane, connect
from controlplane.router.client import RouterView

from .exits import CellMissingError, NotYetError, from_arguments
from .options import Connecting

CONNECT_S_MAX: Final = 2.5
"""A broker that is not there is reported in less than 5 s, start-up included."""


@asynccontextmanager
async def connected(options: Connecting) -> AsyncIterator[Plane]:
    """A plane that is connected. Raises `LogUnavailableError`, `SettingsError`."""
    with from_arguments():
        plane = connect(
            options.url or None,
            cell=options.cell or None,
            creds=options.creds or None,
        )
    async with plane:
        await plane.broker.wait_connected(CONNECT_S_MAX)
        yield plane


@asynccontextmanager
async def opened(options: Connecting) -> AsyncIterator[Plane]:
    """A connected plane whose cell exists, else `CellMissingError`."""
    async with connected(options) as plane:
        log, view, *_ = topology.streams(plane.names, plane.settings, 1)
        missing = [
            spec.name
            for spec in (log, view)
            if await plane.broker.stream_differences(spec) is None
        ]
        if missing:
            raise _missing(plane, missing)
        yield plane


@asynccontextmanager
async def viewed(plane: Plane) -> AsyncIterator[RouterView]:
    """A view of the cell that includes everything acknowledged before.

    It is no router in the eyes of others. Raises `NotYetError` when no projector
    keeps the view up to date.
    """
    async with plane.view(announce=False) as view:
        try:
            await view.synced(plane.settings.connect_timeout_s)
        except TimeoutError as error:
            raise await _not_synced(plane, view) from error
        yield view


async def check_complete(plane: Plane) -> None:
    """Check every stream of the cell, at the replicas that its log has.

    Raises `CellMissingError`, or `TopologyDriftError` naming each difference.
    """
    log = topology.streams(plane.names, plane.settings, 1)[0]
    if await plane.broker.stream_differences(log) is None:
        raise _missing(plane, [log.name])
    replicas = (await plane.broker.state(log.name)).replicas
    specs = topology.streams(plane.names, plane.settings, replicas)
    found = [(s.name, await plane.broker.stream_differences(s)) for s in specs]
    drift = [d for _, differences in found for d in differences or ()]
    if drift:
        raise TopologyDriftError(differences=drift)
    missing = [name for name, differences in found if differences is None]
    if missing:
        raise _missing(plane, missing)


async def _not_synced(plane: Plane, view: RouterView) -> NotYetError:
    last = (await plane.log.state()).last_revision
    which = "" if plane.cell == "default" else f" --cell {plane.cell}"
    start = f"start a projector: controlplane projector{which}"
    look = f"or fold the log itself: controlplane replay{which}"
    if await plane.epoch() is None:
        message = f"no projector has published a view of cell {plane.cell!r} yet"
    else:
        message = (
            f"the view of cell {plane.cell!r} is not up to date (revision "
            f"{view.revision}, the log ends at {last})"
        )
    return NotYetError(f"{message}; {start}; {look}")


def _missing(plane: Plane, missing: list[str]) -> CellMissingError:
    return CellMissingError(cell=plane.cell, url=plane.url, missing=tuple(missing))
