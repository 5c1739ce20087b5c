"""``log export`` and ``log import``: a whole log into one file, and back."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from controlplane.archive import export_log, import_archive

from .archive_lines import (
    export_document,
    export_lines,
    import_document,
    import_lines,
)
from .exits import OK
from .opening import opened
from .options import LISTING, Listing
from .printing import print_document, print_lines, terminal_width
from .progress import Progress
from .running import run


class _Stoppable(Progress):
    """Progress that says how far it came when a signal ends it."""

    def __init__(self, doing: str, said: str) -> None:
        """Say ``said`` of the place reached and the end."""
        super().__init__(doing=doing)
        self._stopped_at = said
        self._reached: tuple[int, int] | None = None

    def __call__(self, place: int, end: int) -> None:
        """It is at ``place`` of ``end``."""
        self._reached = place, end
        super().__call__(place, end)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Leave no trace but this."""
        self.clear()
        if kind is not asyncio.CancelledError:
            return
        said = "nothing more was written"
        if self._reached is not None:
            said = self._stopped_at.format(*(f"{place:,}" for place in self._reached))
        said = f"interrupted: {said}; the same command goes on"
        sys.stderr.write(f"controlplane: {said}\n")
        sys.stderr.flush()


def export_(file: Path, /, *, options: Listing = LISTING) -> int:
    """Write the whole log to an archive, as FILE.jsonl.zst.

    What is done is kept in FILE.part: after a kill, or when the broker went away, the
    same command goes on. An archive is a compressed file of JSON lines, the event of
    each record as it is stored; zstd -dc and jq can read it.

    Parameters
    ----------
    file
        The archive. Nothing is overwritten.

    options
        What commands of its kind share.

    """
    return run(lambda: _export(file, options), options)


async def _export(file: Path, options: Listing) -> int:
    async with opened(options) as plane:
        with _Stoppable("exporting", "revision {} of {} was reached") as at:
            exported = await export_log(plane.log, file, at)
    size = _size_of(file)
    if options.output == "table":
        print_lines(export_lines(exported, str(file), size, terminal_width()))
    else:
        print_document(export_document(exported, str(file), size))
    return OK


def _size_of(file: Path) -> int:
    return file.stat().st_size


def import_(file: Path, /, *, options: Listing = LISTING) -> int:
    """Append every record of an archive to the log of an empty cell.

    Payloads, times of recording and so every digest are as they were; revisions count
    from 1 again. After a kill the same command goes on. Until an import is complete,
    projectors and replays say so instead of taking a part for the whole.

    Parameters
    ----------
    file
        An archive that log export wrote.

    options
        What commands of its kind share.

    """
    return run(lambda: _import(file, options), options)


async def _import(file: Path, options: Listing) -> int:
    async with opened(options) as plane:
        with _Stoppable("importing", "{} of {} records are in") as at:
            imported = await import_archive(plane.broker, plane.log, file, at)
        cell = plane.cell
    if options.output == "table":
        print_lines(import_lines(imported, str(file), cell, terminal_width()))
    else:
        print_document(import_document(imported, str(file), cell))
    return OK
