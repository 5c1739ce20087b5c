"""``replay --as-seen-by`` and ``explain --router``: what a router had, and did not."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Final, TypeAlias

import msgspec
from cyclopts import Parameter

from controlplane.plane import Plane
from controlplane.playback import (
    LogHistory,
    Moment,
    PointInTime,
    RouterUnseenError,
    Sighting,
    Starts,
    Testimony,
    recall,
    sighting_in,
    time_of,
    why_picked,
)
from controlplane.presence import KeptReport, kept_reports
from events import worker_subject
from projections import worker_key

from .exits import NO, OK, UsageError
from .lens import Lens
from .opening import opened
from .options import Listing
from .printing import print_document, print_lines, terminal_width
from .progress import Progress
from .seeing_lines import testimony_lines, why_picked_lines

RouterName: TypeAlias = Annotated[str | None, Parameter(name="--router")]
NAMED_MAX: Final = 8


async def show_as_seen_by(
    router: str,
    until: PointInTime | None,
    lens: Lens,
    options: Listing,
    *,
    snapshots: bool,
) -> int:
    """Show the fleet that the router had then, beside what the log said."""
    sighted = _sighted(router, until, options, snapshots=snapshots)
    async with sighted as (_, history, found):
        with Progress() as progress:
            testimony = await recall(history, found, progress)
    _show(testimony, lens, options)
    return OK


async def show_why_picked(
    worker: str, router: str, moment: Moment | None, options: Listing
) -> int:
    """Answer why the router still picked the worker then."""
    key = worker_key(worker)
    async with _sighted(router, moment, options) as (plane, history, found):
        with Progress() as progress:
            why = await why_picked(history, worker, found, None, progress)
        end = (await history.ends()).last
        later = await plane.log.on_subject(worker_subject(*key), why.log.revision, end)
    if later:
        why = msgspec.structs.replace(why, following=later[0])
    if options.output == "table":
        print_lines(why_picked_lines(why, terminal_width()))
    else:
        print_document(why.document())
    return NO if why.log.state == "never_registered" else OK


@asynccontextmanager
async def _sighted(
    router: str, moment: Moment | None, options: Listing, *, snapshots: bool = False
) -> AsyncIterator[tuple[Plane, LogHistory, Sighting]]:
    if isinstance(moment, Path):
        message = (
            f"{moment} is a file, and routers report times: say one, or a revision"
        )
        raise UsageError(message)
    async with opened(options) as plane:
        starts = Starts(plane.log, plane.broker) if snapshots else None
        history = await LogHistory.of(plane.log, starts)
        at = await time_of(history, moment)
        reports = await _reports(plane, router)
        yield plane, history, await sighting_in(history, reports, at)


async def _reports(plane: Plane, router: str) -> list[KeptReport]:
    """What the router reported. Raises `RouterUnseenError` when there is nothing."""
    found = [kept async for kept in kept_reports(plane.broker, plane.names, router)]
    if found:
        return found
    every = kept_reports(plane.broker, plane.names)
    names = sorted({kept.report.presence.name async for kept in every})
    more = ", …" if len(names) > NAMED_MAX else ""
    known = f"those that did: {', '.join(names[:NAMED_MAX])}{more}"
    message = (
        f"router {router!r} has reported nothing in the last 7 days; "
        f"{known if names else 'nor has any other'}"
    )
    raise RouterUnseenError(message)


def _show(testimony: Testimony, lens: Lens, options: Listing) -> None:
    if options.output == "table":
        print_lines(testimony_lines(testimony, lens, terminal_width()))
        return
    seen = lens.over_difference(testimony.difference)
    document = msgspec.structs.replace(testimony, difference=seen).document()
    document["fleet"] = lens.document(testimony.had.fleet)
    print_document(document)
