"""``log stats``: what the log is made of."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from controlplane.playback import Statistics, Storage

from .exits import OK
from .histories import FromArchive, opened_history
from .opening import opened
from .options import LISTING, Listing
from .printing import print_document, print_lines, terminal_width
from .progress import Progress
from .running import run
from .statistics_lines import statistics_lines


def stats(*, from_archive: FromArchive = None, options: Listing = LISTING) -> int:
    """Count the records of the log: by type and hour, their sizes, how full it is.

    Parameters
    ----------
    from_archive
        Read this archive instead of the log; no broker is needed.

    options
        What commands of its kind share.

    """
    return run(lambda: _stats(from_archive, options), options)


async def _stats(from_archive: Path | None, options: Listing) -> int:
    storage = None if from_archive is not None else await _storage(options)
    async with opened_history(options, from_archive) as history:
        ends = await history.ends()
        statistics = Statistics(ends)
        with Progress(doing="counting") as progress:
            async for records in history.stored(0, ends.last):
                statistics.add(records)
                progress(records[-1].revision, ends.last)
        cell, log_id = history.cell, history.log_id
    if options.output == "table":
        lines = statistics_lines(statistics, storage, log_id, terminal_width())
        print_lines(lines)
        return OK
    document: dict[str, Any] = {"cell": cell, "log_id": log_id}
    print_document({**document, **statistics.document(storage)})
    return OK


async def _storage(options: Listing) -> Storage:
    async with opened(options) as plane:
        state = await plane.log.state()
    return Storage(bytes=state.bytes, max_bytes=state.max_bytes)
