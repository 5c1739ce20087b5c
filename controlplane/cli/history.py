"""``replay``, ``schema``: what the log meant, at any moment."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from datetime import datetime
from functools import partial

import msgspec
from rich.text import Text

from controlplane.playback import (
    History,
    LogHistory,
    PointInTime,
    parse_point,
    state_at,
)
from controlplane.settings import Settings
from events import Revision, json_schema
from projections import PlaneState, PortListing, port_document

from .exits import OK, UsageError
from .fleet import show_fleet
from .histories import FromArchive, MomentText, opened_history
from .lens import CLEAR, Lens, Models, Namespaces, lens_of
from .long_folds import in_a_long_fold
from .options import COMMON, LISTING, Common, Format, Listing
from .port_tables import ports_footer, ports_table
from .ports import replayed_ports, show_blocks
from .printing import print_document, print_json, print_lines, terminal_width
from .progress import Progress
from .running import run
from .seeing import show_as_seen_by
from .stepping import walk
from .tables import FAINT, replay_footer
from .wrapping import wrapped


# ---- replay --------------------------------------------------------------------
def replay(
    *,
    until: MomentText | None = None,
    from_archive: FromArchive = None,
    namespaces: Namespaces = (),
    models: Models = (),
    ports: bool = False,
    no_snapshot: bool = False,
    as_seen_by: str | None = None,
    step: bool = False,
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
    namespaces
        Show workers of this namespace only; of several, if it is said several times.
    models
        Show workers of this model, or with this adapter, only; as often.
    ports
        Show the port table too. A block is claimed port by port, one record each, in
        a batch: at a revision within it the block is there in part, as 3/8.
    no_snapshot
        Fold the log from its first record on. Else a long one, up to its end or to a
        revision, is folded on from the projector's snapshot, if that fits.
    as_seen_by
        The fleet that this router had then, by what it reported, how old that was and
        whom it had ejected, beside what the log already said. Reports are kept 7 days.
    step
        Walk through the log event by event, in this terminal; ? lists the keys. It
        begins at --until, else at the first record.

    options
        What commands of its kind share.

    """
    moment = None if until is None else parse_point(until)
    lens = lens_of(namespaces, models)
    given = {
        "--step": step,
        "--as-seen-by": as_seen_by is not None,
        "--ports": ports,
        "--from-archive": from_archive is not None,
    }
    if as_seen_by is not None:
        _check_alone("--as-seen-by", given)
        seen = partial(show_as_seen_by, as_seen_by, snapshots=not no_snapshot)
        return run(lambda: seen(moment, lens, options), options)
    if step:
        _check_alone("--step", {**given, "--from-archive": False})
        return walk(moment, from_archive, lens, options)
    opening = opened_history(options, from_archive, snapshots=not no_snapshot)
    return run(lambda: _replay(opening, moment, lens, options, ports=ports), options)


def _check_alone(option: str, given: dict[str, bool]) -> None:
    """Refuse what cannot be had together. Raises `UsageError`."""
    for other, is_given in given.items():
        if is_given and other != option:
            message = f"{other} is not valid with {option}; leave one of them out"
            raise UsageError(message)


async def _replay(
    opening: AbstractAsyncContextManager[History],
    until: PointInTime | None,
    lens: Lens,
    options: Listing,
    *,
    ports: bool,
) -> int:
    async with opening as history:
        with in_a_long_fold(), Progress() as progress:
            state = await state_at(history, until, progress)
    at = until if isinstance(until, datetime) else None
    listing = replayed_ports(state, at, Settings().port_cooldown_s) if ports else None
    started_at = history.started_at if isinstance(history, LogHistory) else 0
    show_replay(state, listing, options.output, lens, started_at)
    return OK


def show_replay(
    state: PlaneState,
    listing: PortListing | None,
    output: Format,
    lens: Lens = CLEAR,
    started_at: Revision = 0,
) -> None:
    """Print what a replay came to, with its ports if there is a listing of them."""
    fleet, width = state.fleet, terminal_width()
    footer = replay_footer(state, width, started_at)
    if output == "json" and not (listing is None and lens.is_clear):
        found = {} if listing is None else {"ports": port_document(listing)}
        print_document({**lens.document(fleet), **found})
        return
    fleet = lens.over(fleet)
    if output == "table" and not (lens.is_clear or fleet.state.workers):
        print_lines([*wrapped(f"no worker of {lens.words}", width, style=FAINT)])
        print_lines(footer)
    else:
        show_fleet(fleet, output, footer)
    if listing is None:
        return
    if output == "ndjson":
        show_blocks(listing)
    else:
        print_lines(
            [Text(), *ports_table(listing, width), ports_footer(listing, width)]
        )


# ---- schema --------------------------------------------------------------------
def schema(*, options: Common = COMMON) -> int:
    """Print the JSON Schema of the events, for producers in other languages."""
    del options
    text = msgspec.json.encode(json_schema(), order="deterministic")
    print_json(msgspec.json.format(text, indent=2))
    return OK
