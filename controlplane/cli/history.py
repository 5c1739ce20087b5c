"""``log tail``, ``replay``, ``schema``: what is in the log, and what it meant then."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Annotated

import msgspec
from cyclopts import Parameter, validators
from rich.text import Text

from controlplane.playback import replay_log
from events import Record, Revision, json_schema
from projections import PlaneState, PortListing, port_document

from .exits import OK, NotYetError, UsageError
from .fleet import show_fleet
from .opening import opened
from .options import COMMON, LISTING, Common, Format, Listing
from .port_tables import ports_footer, ports_table
from .ports import replayed_ports, show_blocks
from .printing import print_document, print_json, print_lines, terminal_width
from .progress import Progress
from .records import LogLines, record_document
from .running import run
from .tables import replay_footer

Lines = Annotated[
    int, Parameter(name=("--lines", "-n"), validator=validators.Number(gte=0))
]


# ---- log tail ------------------------------------------------------------------
def tail(*, lines: Lines = 20, follow: bool = False, options: Listing = LISTING) -> int:
    """Show the last records of the log.

    Parameters
    ----------
    lines
        How many.
    follow
        Go on with those to come, until Ctrl-C.

    options
        What commands of its kind share.

    """
    if follow and options.output == "json":
        message = "output 'json' is not valid: a stream has no end; take -o ndjson"
        raise UsageError(message)
    return run(lambda: _tail(lines, options, follow=follow), options, endless=follow)


async def _tail(count: int, options: Listing, *, follow: bool) -> int:
    async with opened(options) as plane:
        state = await plane.log.state()
        end = state.last_revision
        after = max(0, end - count, state.first_revision - 1)
        records = [r async for r in plane.log.read(after, end)] if after < end else []
        lines = LogLines(terminal_width())
        if options.output == "table":
            print_lines([lines.heading()])
        _show_records(records, options.output, lines)
        if follow:
            async for more in plane.log.follow_batches(end):
                _show_records(more, options.output, lines)
    return OK


def _show_records(records: Iterable[Record], output: Format, lines: LogLines) -> None:
    match output:
        case "table":
            print_lines(text for record in records for text in lines.of(record))
        case "json":
            print_document([record_document(record) for record in records])
        case "ndjson":
            for record in records:
                print_document(record_document(record))


# ---- replay --------------------------------------------------------------------
def replay(
    *, until: str | None = None, ports: bool = False, options: Listing = LISTING
) -> int:
    """Fold the log from its beginning: the fleet as it is, or as it was.

    Parameters
    ----------
    until
        A revision, or a time as 2026-01-31T12:00:00 (UTC if it does not say): the
        last record to fold.
    ports
        Show the port table too. A block is claimed port by port, one record each, in
        a batch: at a revision within it the block is there in part, as 3/8.

    options
        What commands of its kind share.

    """
    moment = None if until is None else parse_until(until)
    return run(lambda: _replay(moment, options, ports=ports), options)


async def _replay(
    until: Revision | datetime | None, options: Listing, *, ports: bool
) -> int:
    async with opened(options) as plane:
        with Progress() as progress:
            state = await replay_log(plane.log, until, progress)
        cooldown_s = plane.settings.port_cooldown_s
    if isinstance(until, int) and state.revision < until:
        end = state.revision
        message = f"the log ends at revision {end}, before {until}: nothing to show yet"
        raise NotYetError(message)
    listing = replayed_ports(state, until, cooldown_s) if ports else None
    show_replay(state, listing, options.output)
    return OK


def show_replay(state: PlaneState, listing: PortListing | None, output: Format) -> None:
    """Print what a replay came to, with its ports if there is a listing of them."""
    fleet, width = state.fleet, terminal_width()
    if listing is not None and output == "json":
        print_document({**fleet.document(), "ports": port_document(listing)})
        return
    show_fleet(fleet, output, replay_footer(fleet, width))
    if listing is None:
        return
    if output == "ndjson":
        show_blocks(listing)
    else:
        footer = ports_footer(listing, width)
        print_lines([Text(), *ports_table(listing, width), footer])


def parse_until(text: str) -> Revision | datetime:
    """A revision or a time. Raises `UsageError`."""
    if text.isdecimal():
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        rule = "a revision, or a time as 2026-01-31T12:00:00"
        message = f"until {text!r} is not valid: {rule}"
        raise UsageError(message) from error
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment


# ---- schema --------------------------------------------------------------------
def schema(*, options: Common = COMMON) -> int:
    """Print the JSON Schema of the events, for producers in other languages."""
    del options
    text = msgspec.json.encode(json_schema(), order="deterministic")
    print_json(msgspec.json.format(text, indent=2))
    return OK
