"""An archive as a history, so that every look back works without a broker."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

from controlplane.playback import Ends
from events import Cell, Record, Revision, StoredRecord
from projections import FoldState

from .errors import ArchiveBeheadedError
from .reading import Archive


class ArchiveHistory:
    """The history in an archive. Raises `ArchiveUnusableError`'s kinds."""

    def __init__(self, path: Path) -> None:
        """Read the manifest of the archive at ``path``."""
        self.archive = Archive(path)
        self.manifest = self.archive.manifest()

    @property
    def cell(self) -> Cell:
        """The cell whose log was exported."""
        return self.manifest.cell

    @property
    def log_id(self) -> str | None:
        """The identity of the log that was exported."""
        return self.manifest.log_id

    async def ends(self) -> Ends:
        """Where the log stood when it was exported."""
        manifest = self.manifest
        return Ends(
            manifest.first_revision, manifest.last_revision, manifest.exported_at
        )

    async def batches(
        self, after: Revision = 0, until: Revision | None = None
    ) -> AsyncIterator[list[Record]]:
        """Yield the archive's records in (after, until]."""
        for records in self.archive.records(after, until):
            yield records

    async def stored(
        self, after: Revision = 0, until: Revision | None = None
    ) -> AsyncIterator[list[StoredRecord]]:
        """Yield the archive's records in (after, until], as they were stored."""
        for records in self.archive.stored(after, until):
            yield records

    async def at(self, revision: Revision) -> Record | None:
        """The archive's record at ``revision``."""
        for records in self.archive.records(revision - 1, revision):
            return records[0]
        return None

    def beheaded(self, first: Revision) -> ArchiveBeheadedError:
        """It can be read nevertheless."""
        return ArchiveBeheadedError(self.archive.path, first=first)

    async def start(self, end: Revision) -> FoldState | None:
        """None: an archive holds records and nothing else."""
        del end
        return None
