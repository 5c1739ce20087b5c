"""``bisect``: the first revision at which something became so."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

from rich.cells import cell_len
from rich.text import Text

from controlplane.playback import History, PointInTime, parse_point, state_at
from events import Revision
from projections import (
    Expression,
    ExpressionError,
    FoldState,
    Found,
    Narrowing,
    OnePass,
    PlaneState,
    parse_expression,
)

from .columns import shown
from .exits import NO, OK, UsageError
from .histories import FromArchive, MomentText, opened_history
from .options import LISTING, Format, Listing
from .printing import print_document, print_lines, terminal_width
from .progress import Progress
from .records import LogLines, record_document
from .running import run
from .tables import GOOD
from .wrapping import wrapped

AROUND: Final = 40
"""How much of a long expression is shown before the place of an error."""


def bisect(
    *,
    first: str,
    after: MomentText | None = None,
    monotone: bool = False,
    from_archive: FromArchive = None,
    options: Listing = LISTING,
) -> int:
    """Find the first revision at which an expression over the view becomes true.

    The words are model("m").serving, worker("ns/id").routable (or another field),
    count(routable, model="m"), known("m") and revision; and, or, not, comparisons.
    Exit code 1: it never holds.

    Parameters
    ----------
    first
        The expression, as 'model("llama").serving == False'.
    after
        Search after this moment: a revision, a time, or an event's id.
    monotone
        You promise that it stays true: then few revisions are looked at.
    from_archive
        Read this archive instead of the log; no broker is needed.

    options
        What commands of its kind share.

    """
    expression = parsed(first)
    start = 0 if after is None else parse_point(after)
    return run(
        lambda: _bisect(expression, start, from_archive, options, monotone=monotone),
        options,
    )


def parsed(text: str) -> Expression:
    """The expression; where it is wrong, carets below it on stderr: `UsageError`."""
    try:
        return parse_expression(text)
    except ExpressionError as error:
        sys.stderr.write("".join(f"  {line}\n" for line in pointed(error)))
        raise UsageError(str(error)) from error


def pointed(error: ExpressionError) -> tuple[str, str]:
    """The expression, or the part around the place, and the carets below it."""
    start = max(0, error.column - AROUND)
    end = error.column + AROUND
    text, carets = error.pointer
    before, at = text[start : error.column], text[error.column : end]
    width = len(carets) - error.column
    place = " " * cell_len(shown(before))
    marks = "^" * max(1, cell_len(shown(at[:width])))
    return shown(before + at), place + marks


async def _bisect(
    expression: Expression,
    start: PointInTime,
    from_archive: Path | None,
    options: Listing,
    *,
    monotone: bool,
) -> int:
    async with opened_history(options, from_archive) as history:
        with Progress() as progress:
            state = (await state_at(history, start, progress)).fold_state
            last = (await history.ends()).last
            search = _narrow if monotone else _pass
            found, end = await search(history, expression, state, last, progress)
    for name in expression.never_heard_of(PlaneState(end).fleet):
        said = f"no model named {name!r} is known at revision {end.revision}"
        sys.stderr.write(f"note: {shown(said)}\n")
    if found is None:
        since = "" if state.revision == 0 else f" after revision {state.revision}"
        sys.stderr.write(
            f"controlplane: it never holds{since} up to revision {last}: "
            f"{shown(expression.text)}\n"
        )
        return NO
    _show(found, expression, options.output)
    return OK


async def _pass(
    history: History,
    expression: Expression,
    start: FoldState,
    last: Revision,
    progress: Progress,
) -> tuple[Found | None, FoldState]:
    """What was found, and the state at which the search ended."""
    search = OnePass(expression, start)
    if start.revision < last:
        async for records in history.batches(start.revision, last):
            found = search.feed(records)
            if found is not None:
                return found, found.state
            if records:
                progress(records[-1].revision, last)
    return search.at_first, search.state


async def _narrow(
    history: History,
    expression: Expression,
    start: FoldState,
    last: Revision,
    progress: Progress,
) -> tuple[Found | None, FoldState]:
    """As `_pass`."""
    search = Narrowing(expression, start, last)
    while search.stretch is not None:
        async for records in history.batches(*search.stretch):
            search.feed(records)
            if records:
                progress(records[-1].revision, last)
        search.close()
    return search.found, search.state


def _show(found: Found, expression: Expression, output: Format) -> None:
    record = found.record
    if output != "table":
        document = {
            "revision": record.revision,
            "recorded_at": record.recorded_at,
            "record": record_document(record),
        }
        print_document(document)
        return
    print_lines(found_lines(found, expression, terminal_width()))


def found_lines(found: Found, expression: Expression, width: int) -> list[Text]:
    """The revision and its record, as people read it."""
    record, lines = found.record, LogLines(width)
    said = f"revision {record.revision}, {record.recorded_at:%F %T} UTC: "
    digest = PlaneState(found.state).fleet.digest
    return [
        *wrapped(f"{said}{expression.text}", width, style=GOOD),
        lines.heading(),
        *lines.of(record),
        Text(f"digest {digest}", style="dim"),
    ]
