"""``log verify``: whether everybody agrees with the log, and it is whole."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from controlplane.playback import LogHistory
from controlplane.verifying import Gathered, Verdict, Verification, gather, verify

from .exits import BAD_DATA, NO, OK
from .histories import FromArchive, opened_history
from .opening import opened
from .options import LISTING, Listing
from .printing import print_document, print_lines, terminal_width
from .progress import Progress
from .running import run
from .verification_lines import verification_lines

CODES: Final[dict[Verdict, int]] = {"whole": OK, "diverged": NO, "forked": BAD_DATA}


def verify_(*, from_archive: FromArchive = None, options: Listing = LISTING) -> int:
    """Fold the whole log again and compare it with all that was ever said of it.

    That is: every delta and snapshot that is kept, the latest head, and what each
    router reported in the last 7 days. Exit code 1: somebody differs, and what each
    side had; 65: the log lost its beginning, or is not the one that was spoken of.

    Parameters
    ----------
    from_archive
        Read this archive instead of the log, and see whether it is whole; there is
        nothing else to compare.

    options
        What commands of its kind share.

    """
    return run(lambda: _verify(from_archive, options), options)


async def _verify(from_archive: Path | None, options: Listing) -> int:
    with Progress(doing="verifying") as progress:
        if from_archive is not None:
            async with opened_history(options, from_archive) as history:
                found = await verify(history, Gathered(), progress)
        else:
            async with opened(options) as plane:
                log = await LogHistory.of(plane.log)
                gathered = await gather(plane.broker, plane.feed, log.log_id)
                found = await verify(log, gathered, progress)
    _show(found, options)
    return CODES[found.verdict]


def _show(found: Verification, options: Listing) -> None:
    if options.output == "table":
        print_lines(verification_lines(found, terminal_width()))
    else:
        print_document(found.document())
