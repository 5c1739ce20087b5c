"""Export: the whole log into a file. Killed at any point, the same call goes on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import msgspec

from controlplane.eventlog import EventLog, LogState
from events import Revision

from .errors import ArchiveUnusableError, ExportRefusedError
from .form import FORMAT, Header, Manifest
from .reading import Archive
from .writing import ArchiveWriter

Progress: TypeAlias = Callable[[Revision, Revision], None]
"""Called with the revision reached and the last one."""


class Exported(msgspec.Struct, frozen=True, kw_only=True):
    """The archive is complete."""

    manifest: Manifest
    resumed_after: Revision | None = None
    """An export that was cut short had come up to here; None: there was none."""
    already: bool = False
    """It was complete before."""


async def export_log(
    log: EventLog, path: Path, progress: Progress | None = None
) -> Exported:
    """Write the log, as it is now, to an archive at ``path``.

    What an export that was cut short left in ``{path}.part`` is not read again. Raises
    `ExportRefusedError` when the file or its part is of another log or in use,
    `ImportUnfinishedError` when the log is a part of an archive itself, and what
    reading the log raises; then the part keeps what is there.
    """
    state = await log.whole_state()
    if _is_there(path):
        return await _already(path, state)
    async with ArchiveWriter(path) as writer:
        begun = writer.header
        if begun is None:
            writer.begin(
                Header(
                    archive=FORMAT,
                    cell=log.names.cell,
                    log_id=state.log_id,
                    first_revision=state.first_revision,
                )
            )
        else:
            await _check_same(log, state, begun, writer)
        after = 0 if writer.last is None else writer.last.revision
        if after < state.last_revision:
            async for stored in log.read_stored(after, state.last_revision):
                writer.add(stored)
                if progress is not None:
                    progress(stored[-1].revision, state.last_revision)
        await _check_unpurged(log, max(after + 1, state.first_revision), writer)
        return Exported(
            manifest=writer.finish(state.last_revision, state.now),
            resumed_after=None if begun is None else after,
        )


def _is_there(path: Path) -> bool:
    """Whether anything has this name. Raises `ExportRefusedError`."""
    try:
        return path.exists()
    except (OSError, ValueError) as error:
        message = f"cannot write {str(path)!r}: {error}; name another file"
        raise ExportRefusedError(message) from error


async def _already(path: Path, state: LogState) -> Exported:
    try:
        manifest = await Archive(path).manifest()
    except ArchiveUnusableError as error:
        message = f"{path} is there already, and not as an archive: {error.reason}"
        raise _refused(message) from error
    if manifest.log_id != state.log_id:
        message = f"{path} is there already: an archive of log {manifest.log_id}"
        raise _refused(message)
    if manifest.last_revision != state.last_revision:
        message = (
            f"{path} is there already: an archive up to revision "
            f"{manifest.last_revision}, the log is at {state.last_revision}"
        )
        raise _refused(message)
    return Exported(manifest=manifest, already=True)


async def _check_same(
    log: EventLog, state: LogState, begun: Header, writer: ArchiveWriter
) -> None:
    """Raise `ExportRefusedError` if the part does not lead up to this log's rest."""
    if begun.log_id != state.log_id:
        message = f"{writer.part} is of log {begun.log_id}, not of {state.log_id}"
        raise _refused(message)
    last = writer.last
    if last is None:
        return
    if state.last_revision < last.revision:
        end = state.last_revision
        message = f"{writer.part} goes up to revision {last.revision}, the log to {end}"
        raise _refused(message)
    if state.first_revision > max(last.revision + 1, begun.first_revision):
        message = (
            f"the log begins at revision {state.first_revision} now, and "
            f"{writer.part} ends at {last.revision}: what was between is gone"
        )
        raise _refused(message)
    await _check_vouched(log, last.revision, writer)


async def _check_vouched(log: EventLog, last: Revision, writer: ArchiveWriter) -> None:
    """Raise `ExportRefusedError` if the log does not hold what the part ends with.

    Where its ``last`` record was purged, the one before it tells, as far as the part's
    last block goes back.
    """
    found = await log.at(last)
    known = {record.revision: record for record in writer.last_block}
    if found is None:
        async for record in log.read(min(known) - 1, last):
            found = record
    if found is None:
        message = (
            f"the log does not hold the last {len(known)} records of {writer.part} any "
            "more: nobody can tell whether its rest follows on them"
        )
        raise _refused(message)
    there = known.get(found.revision)
    if there is None or found.fingerprint != there.fingerprint:
        message = f"{writer.part} has another record at revision {found.revision}"
        raise _refused(message)


async def _check_unpurged(
    log: EventLog, needed: Revision, writer: ArchiveWriter
) -> None:
    """Raise `ExportRefusedError` if records went while they were read."""
    first = (await log.state()).first_revision
    if first > needed:
        message = (
            f"the log was purged up to revision {first} while it was read, so "
            f"{writer.part} may lack records"
        )
        raise _refused(message)


def _refused(message: str) -> ExportRefusedError:
    return ExportRefusedError(f"{message}; remove it, or name another file")
