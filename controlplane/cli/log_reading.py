"""``log tail`` and ``log show``: the records themselves, marked where unreadable."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Final, TypeAlias

from cyclopts import Parameter, validators

from controlplane.playback import (
    History,
    LogHistory,
    PointInTime,
    Selection,
    Sieve,
    last_selected,
    parse_point,
    parse_types,
    record_at,
    selected,
)
from events import Record, check_host
from projections import worker_key

from .exits import OK, UsageError
from .histories import FromArchive, MomentText, opened_history
from .opening import opened
from .options import LISTING, Format, Listing
from .printing import print_document, print_lines, terminal_width
from .progress import Progress
from .record_lines import record_lines
from .records import LogLines, record_document
from .running import run
from .whole import Whole

LINES: Final = 20
Lines = Annotated[
    Whole | None, Parameter(name=("--lines", "-n"), validator=validators.Number(gte=0))
]
Types = Annotated[tuple[str, ...], Parameter(name="--type", consume_multiple=False)]
_Span: TypeAlias = tuple[PointInTime | None, PointInTime | None]


# ---- log tail ------------------------------------------------------------------
def tail(
    *,
    lines: Lines = None,
    follow: bool = False,
    types: Types = (),
    worker: str | None = None,
    host: str | None = None,
    since: MomentText | None = None,
    until: MomentText | None = None,
    from_archive: FromArchive = None,
    options: Listing = LISTING,
) -> int:
    """Show the last records of the log, or some of them; the unreadable are marked.

    Parameters
    ----------
    lines
        How many: the last 20, or with --since as many as there are.
    follow
        Go on with those to come, until Ctrl-C.
    types
        Only records of this type, as worker_expired; of several, if it is said
        several times. "poison" are those that nobody can read.
    worker
        Only records of this worker, as prod/gpu7, of holds on it, and of its ports.
    host
        Only records of this host's ports.
    since
        From there on: a revision, a time as 2026-01-31T12:00:00 (UTC if it does not
        say) or as -10m before the end, or an event's id.
    until
        Up to and with that one.
    from_archive
        Read this archive instead of the log; no broker is needed.

    options
        What commands of its kind share.

    """
    if follow:
        _check_endless(options.output, until, from_archive)
    selection = Selection(
        types=parse_types(types),
        worker=None if worker is None else worker_key(worker),
        host=None if host is None else check_host(host),
    )
    span = parse_span(since, until)
    shown = _Shown(options.output, Sieve(selection))
    count = LINES if lines is None and since is None else lines
    if follow:
        return run(lambda: _follow(shown, count, span, options), options, endless=True)
    return run(lambda: _tail(shown, count, span, from_archive, options), options)


def _check_endless(
    output: Format, until: str | None, from_archive: Path | None
) -> None:
    if output == "json":
        message = "output 'json' is not valid: a stream has no end; take -o ndjson"
        raise UsageError(message)
    for name, value in (("--until", until), ("--from-archive", from_archive)):
        if value is not None:
            message = f"{name} is not valid with --follow: nothing comes after it"
            raise UsageError(message)


class _Shown:
    """Prints records as they come, in one form."""

    def __init__(self, output: Format, sieve: Sieve) -> None:
        self.sieve = sieve
        self._output = output
        self._lines = LogLines(terminal_width())
        self.at_once = output == "json"
        """It prints one document, which must be whole."""

    def begin(self) -> None:
        if self._output == "table":
            print_lines([self._lines.heading()])

    def show(self, records: Iterable[Record]) -> None:
        match self._output:
            case "table":
                print_lines(text for r in records for text in self._lines.of(r))
            case "json":
                print_document([record_document(record) for record in records])
            case "ndjson":
                for record in records:
                    print_document(record_document(record))


async def _tail(
    shown: _Shown,
    count: int | None,
    span: _Span,
    from_archive: Path | None,
    options: Listing,
) -> int:
    async with opened_history(options, from_archive) as history:
        await _show_wanted(history, shown, count, span)
    return OK


async def _follow(
    shown: _Shown, count: int | None, span: _Span, options: Listing
) -> int:
    async with opened(options) as plane:
        history = await LogHistory.of(plane.log)
        end = (await history.ends()).last
        await _show_wanted(history, shown, count, (span[0], end))
        async for more in plane.log.follow_batches(end):
            shown.show(shown.sieve.through(more))
    return OK


async def _show_wanted(
    history: History, shown: _Shown, count: int | None, span: _Span
) -> None:
    """Show the last ``count`` records of the span; None: all of it, as it comes."""
    with Progress(doing="reading") as progress:
        if count is not None and span[0] is None and span[1] is None:
            records = await last_selected(history, shown.sieve, count, progress)
            shown.begin()
            shown.show(records)
            return
        last: deque[Record] = deque(maxlen=count)
        begun = False
        async for records in selected(history, shown.sieve, *span, progress):
            if shown.at_once or count is not None:
                last.extend(records)
                continue
            progress.clear()
            if not begun:
                shown.begin()
            begun = True
            shown.show(records)
    if not begun:
        shown.begin()
        shown.show(last)


def parse_span(since: str | None, until: str | None) -> _Span:
    """Two moments of the history itself. Raises `MomentInvalidError`."""
    return (
        None if since is None else parse_point(since),
        None if until is None else parse_point(until),
    )


# ---- log show ------------------------------------------------------------------
def show(
    moment: MomentText,
    /,
    *,
    from_archive: FromArchive = None,
    options: Listing = LISTING,
) -> int:
    """Show one record, whole, also if nobody can read what it says.

    Parameters
    ----------
    moment
        Its revision or its event's id; or a time: the last record up to then.
    from_archive
        Read this archive instead of the log; no broker is needed.

    options
        What commands of its kind share.

    """
    point = parse_point(moment)
    return run(lambda: _show(point, from_archive, options), options)


async def _show(point: PointInTime, from_archive: Path | None, options: Listing) -> int:
    async with opened_history(options, from_archive) as history:
        with Progress(doing="reading") as progress:
            record = await record_at(history, point, progress)
    if options.output == "table":
        print_lines(record_lines(record, terminal_width()))
    else:
        print_document(record_document(record))
    return OK
