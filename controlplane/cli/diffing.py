"""``diff``: what changed between two moments, and the revision that did it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from controlplane.archive import ArchiveHistory
from controlplane.playback import History, Moment, parse_moment, state_at
from projections import FleetDifference, PlaneState, Trail

from .differences import difference_documents, difference_lines
from .exits import OK
from .histories import FromArchive, MomentText, is_archive, opened_history, state_in
from .options import LISTING, Format, Listing
from .printing import print_document, print_lines, terminal_width
from .progress import Progress
from .running import run


def diff(
    one: MomentText,
    two: MomentText,
    /,
    *,
    from_archive: FromArchive = None,
    options: Listing = LISTING,
) -> int:
    """Show what changed between two moments, and the revision that did it.

    Parameters
    ----------
    one
        A moment: a revision, a time as 2026-01-31T12:00:00 (UTC if it does not say) or
        as -10m before the end, an event's id, a router's checkpoint file, an archive.
    two
        Another one; it may be the earlier of the two.
    from_archive
        Read this archive instead of the log; no broker is needed.

    options
        What commands of its kind share.

    """
    moments = (parse_moment(one), parse_moment(two))
    return run(lambda: _diff(moments, from_archive, options), options)


async def _diff(
    moments: tuple[Moment, Moment], from_archive: Path | None, options: Listing
) -> int:
    async with _history(moments, from_archive, options) as history:
        with Progress() as progress:
            before, after = [await _state(history, m, progress) for m in moments]
            found = await _compared(history, before, after, progress)
    _show(found, (before.fleet.digest, after.fleet.digest), options.output)
    return OK


@asynccontextmanager
async def _history(
    moments: tuple[Moment, Moment], from_archive: Path | None, options: Listing
) -> AsyncIterator[History | None]:
    """Where the records between are: the log, unless it takes files only.

    Then the later archive of the two; None: both are checkpoints, and nobody asks a
    broker for the sake of the revisions.
    """
    files = [moment for moment in moments if isinstance(moment, Path)]
    if from_archive is not None or len(files) < len(moments):
        async with opened_history(options, from_archive, snapshots=True) as history:
            yield history
        return
    archives = [await ArchiveHistory.of(path) for path in files if is_archive(path)]
    ends = [(await archive.ends()).last for archive in archives]
    yield archives[ends.index(max(ends))] if archives else None


async def _state(
    history: History | None, moment: Moment, progress: Progress
) -> PlaneState:
    if history is None or isinstance(moment, Path):
        assert isinstance(moment, Path)  # noqa: S101 - else there is a history
        return await state_in(moment, progress)
    return await state_at(history, moment, progress)


async def _compared(
    history: History | None, before: PlaneState, after: PlaneState, progress: Progress
) -> FleetDifference:
    """The difference; with revisions, if the history is that of both moments."""
    trail = Trail(before.fleet, after.fleet)
    first, last = sorted((before.revision, after.revision))
    if history is None or not before.log_id == after.log_id == history.log_id:
        return trail.result()
    if first < last <= (await history.ends()).last:
        async for records in history.batches(first, last):
            trail.feed(records)
            if records:
                progress(records[-1].revision, last)
    return trail.result()


def _show(found: FleetDifference, digests: tuple[str, str], output: Format) -> None:
    match output:
        case "json":
            print_document(found.document())
        case "ndjson":
            for document in difference_documents(found):
                print_document(document)
        case "table":
            print_lines(difference_lines(found, digests, terminal_width()))
