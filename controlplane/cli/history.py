"""``log tail``, ``replay``, ``schema``: what is in the log, and what it meant then."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Annotated, Final, TextIO

import msgspec
from cyclopts import Parameter, validators

from controlplane.playback import replay_log
from events import Record, Revision, json_schema

from .exits import OK, NotYetError, UsageError
from .fleet import show_fleet
from .opening import opened
from .options import COMMON, LISTING, Common, Format, Listing
from .printing import print_document, print_json, print_lines, terminal_width
from .records import LogLines, record_document
from .running import run
from .tables import replay_footer

Lines = Annotated[
    int, Parameter(name=("--lines", "-n"), validator=validators.Number(gte=0))
]
LONG_S: Final = 1.0
"""A replay that takes longer says how far it is."""
SAY_EVERY_S: Final = 0.2


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
def replay(*, until: str | None = None, options: Listing = LISTING) -> int:
    """Fold the log from its beginning: the fleet as it is, or as it was.

    Parameters
    ----------
    until
        A revision, or a time as 2026-01-31T12:00:00 (UTC if it does not say): the
        last record to fold.

    options
        What commands of its kind share.

    """
    moment = None if until is None else parse_until(until)
    return run(lambda: _replay(moment, options), options)


async def _replay(until: Revision | datetime | None, options: Listing) -> int:
    async with opened(options) as plane:
        progress = Progress()
        try:
            state = await replay_log(plane.log, until, progress)
        finally:
            progress.clear()
    if isinstance(until, int) and state.revision < until:
        end = state.revision
        message = f"the log ends at revision {end}, before {until}: nothing to show yet"
        raise NotYetError(message)
    footer = replay_footer(state.fleet, terminal_width())
    show_fleet(state.fleet, options.output, footer)
    return OK


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


class Progress:
    """Says on stderr how far a long replay is, if somebody looks."""

    def __init__(
        self, stream: TextIO | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Begin now; ``stream`` is stderr."""
        self._stream, self._clock = stream or sys.stderr, clock
        self._say_at = clock() + LONG_S
        self._said = False

    def __call__(self, revision: Revision, end: Revision) -> None:
        """The replay is at ``revision`` of ``end``."""
        now = self._clock()
        if now < self._say_at or not self._stream.isatty():
            return
        self._say_at, self._said = now + SAY_EVERY_S, True
        share = revision / end if end else 1.0
        self._stream.write(f"\r\x1b[Kreplaying {revision:,} of {end:,} ({share:.0%})")
        self._stream.flush()

    def clear(self) -> None:
        """Leave no trace."""
        if self._said:
            self._stream.write("\r\x1b[K")
            self._stream.flush()


# ---- schema --------------------------------------------------------------------
def schema(*, options: Common = COMMON) -> int:
    """Print the JSON Schema of the events, for producers in other languages."""
    del options
    text = msgspec.json.encode(json_schema(), order="deterministic")
    print_json(msgspec.json.format(text, indent=2))
    return OK
