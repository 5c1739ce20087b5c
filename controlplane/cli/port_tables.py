"""The port table as tables. Pure: what is printed depends on the arguments alone."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from rich.text import Text

from events import Host
from projections import HostSummary, Moment, PortListing, PortRange, Stretch

from .columns import UNLIMITED, Cell, Column, cut, fitted, shown, table
from .tables import DIGEST_SHORT, FAINT, NOTHING, ODD

HOST: Final = Column(title="host", least=9, middle=True)
BLOCK_COLUMNS: Final = (
    HOST,
    Column(title="ports"),
    Column(title="size", right=True),
    Column(title="state"),
    Column(title="since"),
    Column(title="holder", least=10, middle=True),
    Column(title="reason", least=8),
)


def ports_table(
    listing: PortListing, width: int, host: Host | None = None
) -> list[Text]:
    """A row for each host, then one for each block that is not free.

    A host's name is cut alike in both.
    """
    if not listing.hosts:
        where = "in this cell" if host is None else f"on host {shown(host)}"
        said = cut(f"no port was ever claimed {where}", width)
        return [Text(said, style=FAINT)]
    columns = host_columns(listing.within)
    hosts = [_host_row(summary) for summary in listing.hosts]
    if not listing.stretches:
        where = f" in {listing.within}" if listing.narrowed else ""
        said = cut(f"no port is held or resting{where}", width)
        return [*table(columns, hosts, width), Text(), Text(said, style=FAINT)]
    blocks = [_block_row(stretch, listing.moment) for stretch in listing.stretches]
    most = min(
        _room_for_hosts(columns, hosts, width),
        _room_for_hosts(BLOCK_COLUMNS, blocks, width),
    )
    return [
        *table(columns, _cut_hosts(hosts, most), width),
        Text(),
        *table(BLOCK_COLUMNS, _cut_hosts(blocks, most), width),
    ]


def _room_for_hosts(
    columns: tuple[Column, ...], rows: list[list[Cell]], width: int
) -> int:
    """How wide a host's name may be in such a table; as it likes if none is cut."""
    room, wanted = (fitted(columns, rows, most)[0] for most in (width, UNLIMITED))
    return room if room < wanted else width


def _cut_hosts(rows: list[list[Cell]], most: int) -> list[list[Cell]]:
    """The rows with names of hosts that are nowhere wider than ``most``."""
    return [
        [cut(shown(str(name)), most, middle=HOST.middle), *cells]
        for name, *cells in rows
    ]


def host_columns(within: PortRange) -> tuple[Column, ...]:
    """The columns of hosts; what is free and the hole are counted ``within``."""
    return (
        HOST,
        Column(title="held", right=True),
        Column(title="resting", right=True),
        Column(title="unreadable", right=True),
        Column(title=f"free of {within}", right=True),
        Column(title="largest hole"),
    )


def ports_footer(listing: PortListing, width: int, *where: str) -> Text:
    """``where`` the table stands, and its digest."""
    digest = f"ports digest {listing.digest[:DIGEST_SHORT]}"
    parts = (*where, digest, "times in UTC")
    return Text(cut(" · ".join(parts), width), style=FAINT)


def _host_row(summary: HostSummary) -> list[Cell]:
    unreadable: Cell = str(summary.unreadable)
    if summary.unreadable:
        unreadable = Text(str(summary.unreadable), style=ODD)
    return [
        summary.host,
        str(summary.held),
        str(summary.resting),
        unreadable,
        str(summary.free),
        _hole(summary),
    ]


def _hole(summary: HostSummary) -> Text:
    start = summary.largest_hole_start
    if start is None:
        return Text("none", style=ODD)
    return Text(f"{summary.largest_hole} from {start}")


def _block_row(stretch: Stretch, moment: Moment) -> list[Cell]:
    ports = f"{stretch.start}"
    if stretch.size > 1:
        ports = f"{stretch.start}-{stretch.end}"
    return [
        stretch.host,
        ports,
        _size(stretch),
        Text(stretch.state, style=_STYLES[stretch.state]),
        _since(stretch.since, moment.at),
        _holder(stretch, moment),
        _why(stretch),
    ]


_STYLES: Final = {"held": "", "resting": FAINT, "unreadable": ODD}


def _size(stretch: Stretch) -> Cell:
    """How many ports; of a block that is not all there, out of how many."""
    if stretch.block_size in {None, stretch.size}:
        return str(stretch.size)
    return Text(f"{stretch.size}/{stretch.block_size}", style=ODD)


def _since(since: datetime, at: datetime | None) -> str:
    """The time if it was on the same day, else the day."""
    if at is not None and at.date() == since.date():
        return f"{since:%H:%M:%S}"
    return f"{since:%Y-%m-%d}"


def _holder(stretch: Stretch, moment: Moment) -> Cell:
    """Who has it; of what rests, which nobody has, for how much longer it does."""
    owner = stretch.owner
    if owner is not None:
        return f"{owner.namespace}/{owner.worker_id}"
    if stretch.free_at is None or moment.at is None:
        return NOTHING
    left_s = (stretch.free_at - moment.at).total_seconds()
    return Text(f"{left_s:.1f} s left", style=FAINT)


def _why(stretch: Stretch) -> str:
    """What it is held for, or why it rests."""
    if stretch.state == "unreadable":
        return "see log tail"
    if stretch.state == "held":
        return stretch.reason or NOTHING
    return stretch.cause or NOTHING
