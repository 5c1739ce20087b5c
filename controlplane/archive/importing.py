"""Import: an archive into an empty log. Killed at any point, the same call goes on.

Each message keeps its time of recording and its payload in full, and says in a header
which archive it is from and its place there. So the log's last message tells whether
an import is complete, and nothing needs to be kept beside the log. Every batch expects
the position where the last one ended: whoever else writes is noticed before anything
can be mixed.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Final, TypeAlias

import msgspec

from controlplane.broker import Broker, Outgoing
from controlplane.errors import (
    AppendConflictError,
    AppendOutcomeUnknownError,
    ImportUnfinishedError,
)
from controlplane.eventlog import EventLog
from controlplane.origin import IMPORTED, RECORDED_AT, Origin
from controlplane.projector.leadership import holder
from events import StoredRecord

from .errors import ArchiveBeheadedError, ArchiveDamagedError, ImportRefusedError
from .form import Manifest
from .reading import Archive
from .turns import in_turns

BATCH_RECORDS_MAX: Final = 1000
BATCH_BYTES_MAX: Final = 4 << 20
PATIENCE_S: Final = 30.0
"""How long a batch is repeated while nobody answers."""
_AGAIN_S: Final = 0.1
_LOG: Final = "log."

Progress: TypeAlias = Callable[[int, int], None]
"""Called with how many records are in, of how many."""


class Imported(msgspec.Struct, frozen=True, kw_only=True):
    """All records of the archive are in the log."""

    manifest: Manifest
    resumed_after: int = 0
    """So many were in already."""


async def import_archive(
    broker: Broker, log: EventLog, path: Path, progress: Progress | None = None
) -> Imported:
    """Append every record of the archive at ``path`` to the empty ``log``.

    An import of the same archive that was cut short goes on. Revisions count from 1
    again; times, payloads and so every digest are as they were. Nothing is written
    before the whole archive was read and is sound. Raises `ImportRefusedError` when
    the log is not empty or somebody writes to it, `ArchiveBeheadedError` when the
    archive lacks the beginning, `ArchiveUnusableError`, and what appending raises.
    """
    archive = Archive(path)
    manifest = await archive.verified()
    if manifest.first_revision > 1 and manifest.records:
        raise ArchiveBeheadedError(path, first=manifest.first_revision)
    importer = _Importer(broker, log, manifest)
    begun = await importer.find_place()
    async for batch in _batches(archive, begun):
        await importer.append(batch)
        if progress is not None:
            progress(importer.place, manifest.records)
    return Imported(manifest=manifest, resumed_after=begun)


class _Importer:
    """Appends batches behind one another, and behind nothing else."""

    def __init__(self, broker: Broker, log: EventLog, manifest: Manifest) -> None:
        self._broker, self._log, self._manifest = broker, log, manifest
        self._stream = log.names.log_stream
        self.place = 0
        """So many records are in; the log's last revision."""

    async def find_place(self) -> int:
        """How many records are in. Raises `ImportRefusedError`."""
        self.place = (await self._log.state()).last_revision
        if self.place and not (
            await self._is_ours(1) and await self._is_ours(self.place)
        ):
            raise await self._not_empty()
        leader = await holder(self._broker, self._log.names)
        if leader is not None and self.place < self._manifest.records:
            message = (
                f"projector {leader!r} leads cell {self._log.names.cell!r}, and would "
                "expire workers while they are imported; stop every projector first"
            )
            raise ImportRefusedError(message)
        return self.place

    async def append(self, batch: list[StoredRecord]) -> None:
        """Append ``batch``, once, whatever becomes of the answers."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + PATIENCE_S
        end = self.place + len(batch)
        messages = [
            self._outgoing(record, place)
            for place, record in enumerate(batch, self.place + 1)
        ]
        while True:
            try:
                await self._broker.store_batch(self._stream, messages)
            except AppendConflictError as conflict:
                # Our own earlier try, or another writer: the log says which.
                if not await self._is_ours(end):
                    raise await self._disturbed() from conflict
            except AppendOutcomeUnknownError:
                if loop.time() >= deadline:
                    raise
                await asyncio.sleep(_AGAIN_S)
                continue
            self.place = end
            return

    async def _is_ours(self, place: int) -> bool:
        """Whether the record at ``place`` is that one of this archive."""
        origin = await self._log.origin_at(place)
        return origin == self._origin(place)

    def _origin(self, place: int) -> Origin:
        return Origin(self._manifest.checksum, place, self._manifest.records)

    def _outgoing(self, record: StoredRecord, place: int) -> Outgoing:
        first = place == self.place + 1
        return Outgoing(
            subject=self._log.names.absolute(record.subject),
            payload=record.payload,
            expect_stream_sequence=self.place if first else None,
            headers={
                RECORDED_AT: record.recorded_at.isoformat(),
                IMPORTED: self._origin(place).text,
            },
        )

    async def _not_empty(self) -> ImportRefusedError:
        what = f"is at revision {self.place}"
        begun = await self._log.origin_at(1)
        which = "this" if begun == self._origin(1) else "another"
        try:
            await self._log.whole_state()
        except ImportUnfinishedError as part:
            what = f"holds {part.place} of {part.of} records of {which} archive"
            what += ", and then what others wrote" if part.others else ""
        else:
            if begun is not None and begun.of == self.place:
                what = f"holds {which} archive, of {begun.of} records"
        return ImportRefusedError(
            f"cell {self._log.names.cell!r} is not empty: its log {what}; "
            "import into a new cell: controlplane init --cell NAME"
        )

    async def _disturbed(self) -> ImportRefusedError:
        last = (await self._log.state()).last_revision
        return ImportRefusedError(
            f"somebody else wrote to cell {self._log.names.cell!r} during the import: "
            f"its log is at revision {last} instead of {self.place}, with "
            f"{self.place} of {self._manifest.records} records imported; "
            "stop the writer, and import into a new cell"
        )


async def _batches(archive: Archive, begun: int) -> AsyncIterator[list[StoredRecord]]:
    """What is behind the first ``begun`` records, in pieces that fit into a batch."""
    batch: list[StoredRecord] = []
    size = 0
    place = 0
    async for record in _records(archive):
        place += 1
        if place <= begun:
            continue
        full = len(batch) >= BATCH_RECORDS_MAX or size + len(record.payload) > (
            BATCH_BYTES_MAX
        )
        if batch and full:
            yield batch
            batch, size = [], 0
        batch.append(record)
        size += len(record.payload)
    if batch:
        yield batch


async def _records(archive: Archive) -> AsyncIterator[StoredRecord]:
    async for records in in_turns(archive.stored()):
        for record in records:
            if not record.subject.startswith(_LOG):
                why = f"revision {record.revision} is on {record.subject!r}"
                after = record.revision - 1
                raise ArchiveDamagedError(archive.path, after=after, why=why)
            yield record
