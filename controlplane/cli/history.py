"""``replay``, ``schema``: what the log meant, at any moment."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from datetime import datetime
from pathlib import Path
from typing import Annotated

import msgspec
from cyclopts import Parameter, validators
from rich.text import Text

from controlplane.playback import (
    History,
    LogHistory,
    MomentInvalidError,
    PointInTime,
    parse_moment,
    state_at,
)
from controlplane.settings import Settings
from events import Revision, json_schema
from projections import PlaneState, PortListing, port_document

from .exits import OK
from .fleet import show_fleet
from .histories import FromArchive, MomentText, opened_history
from .options import COMMON, LISTING, Common, Format, Listing
from .port_tables import ports_footer, ports_table
from .ports import replayed_ports, show_blocks
from .printing import print_document, print_json, print_lines, terminal_width
from .progress import Progress
from .running import run
from .tables import replay_footer

Lines = Annotated[
    int, Parameter(name=("--lines", "-n"), validator=validators.Number(gte=0))
]


# ---- replay --------------------------------------------------------------------
def replay(
    *,
    until: MomentText | None = None,
    from_archive: FromArchive = None,
    ports: bool = False,
    no_snapshot: bool = False,
    options: Listing = LISTING,
) -> int:
    """Fold the log from its beginning: the fleet as it is, or as it was.

    Parameters
    ----------
    until
        The last record to fold: a revision, a time as 2026-01-31T12:00:00 (UTC if it
        does not say) or as -10m before the end, or an event's id.
    from_archive
        Read this archive instead of the log; no broker is needed.
    ports
        Show the port table too. A block is claimed port by port, one record each, in
        a batch: at a revision within it the block is there in part, as 3/8.
    no_snapshot
        Fold the log from its first record on. Else a long one, up to its end or to a
        revision, is folded on from the projector's snapshot, if that fits.

    options
        What commands of its kind share.

    """
    moment = None if until is None else parse_point(until)
    opening = opened_history(options, from_archive, snapshots=not no_snapshot)
    return run(lambda: _replay(opening, moment, options, ports=ports), options)


async def _replay(
    opening: AbstractAsyncContextManager[History],
    until: PointInTime | None,
    options: Listing,
    *,
    ports: bool,
) -> int:
    async with opening as history:
        with Progress() as progress:
            state = await state_at(history, until, progress)
    at = until if isinstance(until, datetime) else None
    listing = replayed_ports(state, at, Settings().port_cooldown_s) if ports else None
    started_at = history.started_at if isinstance(history, LogHistory) else 0
    show_replay(state, listing, options.output, started_at)
    return OK


def show_replay(
    state: PlaneState,
    listing: PortListing | None,
    output: Format,
    started_at: Revision = 0,
) -> None:
    """Print what a replay came to, with its ports if there is a listing of them."""
    fleet, width = state.fleet, terminal_width()
    if listing is not None and output == "json":
        print_document({**fleet.document(), "ports": port_document(listing)})
        return
    show_fleet(fleet, output, replay_footer(fleet, width, started_at))
    if listing is None:
        return
    if output == "ndjson":
        show_blocks(listing)
    else:
        footer = ports_footer(listing, width)
        print_lines([Text(), *ports_table(listing, width), footer])


def parse_point(text: str) -> PointInTime:
    """A moment of the history itself. Raises `MomentInvalidError`."""
    moment = parse_moment(text)
    if isinstance(moment, Path):
        raise MomentInvalidError(text)
    return moment


# ---- schema --------------------------------------------------------------------
def schema(*, options: Common = COMMON) -> int:
    """Print the JSON Schema of the events, for producers in other languages."""
    del options
    text = msgspec.json.encode(json_schema(), order="deterministic")
    print_json(msgspec.json.format(text, indent=2))
    return OK
