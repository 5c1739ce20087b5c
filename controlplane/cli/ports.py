"""``ports``: who holds what on which host, what rests, how much room there is."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from controlplane.errors import SettingsError
from controlplane.plane import Plane
from controlplane.playback import replay_ports
from events import Host, InvalidIdentityError, Revision, canonical_host
from projections import (
    DEFAULT_RANGE,
    Moment,
    PlaneState,
    PortListing,
    PortRange,
    list_ports,
    port_document,
)

from .exits import OK, UsageError
from .opening import opened
from .options import LISTING, Listing
from .port_tables import ports_footer, ports_table
from .printing import print_document, print_lines, terminal_width
from .progress import Progress
from .running import run
from .tables import short_id

DIGITS_MAX: Final = 5


def ports(
    *,
    host: str | None = None,
    within: str | None = None,
    options: Listing = LISTING,
) -> int:
    """List the ports that are held or resting, by blocks, and the room on each host.

    Parameters
    ----------
    host
        Only this host, by the name that its claims have: as the list shows it. Any
        name or address of this machine will do for its own.
    within
        Only what touches this range, as 21000-22000, and the room in it. Without it
        everything is listed, and the room is that of 20000-30000.

    options
        What commands of its kind share.

    """
    if host is not None:
        host = canonical_host(host)
    span = None if within is None else parse_within(within)
    return run(lambda: _ports(host, span, options), options)


async def _ports(host: Host | None, within: PortRange | None, options: Listing) -> int:
    async with opened(options) as plane:
        if host is not None:
            host = await _named(plane, host)
        with Progress() as progress:
            then = await replay_ports(plane.broker, plane.log, host, progress)
        moment = Moment(then.now, plane.settings.port_cooldown_s)
    listing = list_ports(then.ports, moment, within=within, host=host)
    if options.output == "json":
        where = {"cell": plane.cell, "log_id": then.log_id, "revision": then.revision}
        print_document({**where, **port_document(listing)})
    elif options.output == "ndjson":
        show_blocks(listing)
    else:
        width = terminal_width()
        place = (f"revision {then.revision}", f"log {short_id(then.log_id)}")
        footer = ports_footer(listing, width, *place)
        print_lines([*ports_table(listing, width, host), footer])
    return OK


async def _named(plane: Plane, host: Host) -> Host:
    """What claims call ``host``. Raises `UsageError` for what is no machine's name."""
    try:
        return await plane.ports.claimer.host(host)
    except SettingsError as error:
        raise UsageError(str(error)) from error


def show_blocks(listing: PortListing) -> None:
    """Print a block a line."""
    for block in port_document(listing)["blocks"]:
        print_document(block)


def parse_within(text: str) -> PortRange:
    """The range that ``text`` names, as 20000-30000. Raises `UsageError`."""
    first, _, last = text.partition("-")
    if all(
        part.isascii() and part.isdecimal() and len(part) <= DIGITS_MAX
        for part in (first, last)
    ):
        try:
            return PortRange(int(first), int(last))
        except InvalidIdentityError as error:
            raise UsageError(str(error)) from error
    message = f"within {text!r} is not valid: FIRST-LAST, as {DEFAULT_RANGE}"
    raise UsageError(message)


def replayed_ports(
    state: PlaneState, until: Revision | datetime | None, cooldown_s: float
) -> PortListing:
    """The ports of a replay, at the time that was asked for, else its last record's.

    So the same replay shows the same, on any day.
    """
    at = until if isinstance(until, datetime) else state.fold_state.recorded_at
    return list_ports(state.ports, Moment(at, cooldown_s))
