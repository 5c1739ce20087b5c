"""An archive as a history, so that every look back works without a broker."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import Self

from controlplane.playback import Ends
from events import Cell, Record, Revision, StoredRecord
from projections import FoldState

from .errors import ArchiveBeheadedError
from .form import Manifest
from .reading import Archive
from .turns import in_turns


class ArchiveHistory:
    """The history in an archive. Raises `ArchiveUnusableError`'s kinds."""

    def __init__(self, archive: Archive, manifest: Manifest) -> None:
        """Read ``archive``, which holds what its ``manifest`` says; see `of`."""
        self.archive, self.manifest = archive, manifest

    @classmethod
    async def of(cls, path: Path) -> Self:
        """The history in the archive at ``path``, its manifest read now."""
        archive = Archive(path)
        return cls(archive, await archive.manifest())

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

    def batches(
        self, after: Revision = 0, until: Revision | None = None
    ) -> AsyncIterator[list[Record]]:
        """Yield the archive's records in (after, until]."""
        return in_turns(self.archive.records(after, until))

    def stored(
        self, after: Revision = 0, until: Revision | None = None
    ) -> AsyncIterator[list[StoredRecord]]:
        """Yield the archive's records in (after, until], as they were stored."""
        return in_turns(self.archive.stored(after, until))

    async def at(self, revision: Revision) -> Record | None:
        """The archive's record at ``revision``."""
        records = self.archive.records(revision - 1, revision)
        async with aclosing(in_turns(records)) as found:
            async for batch in found:
                return batch[0]
        return None

    def beheaded(self, first: Revision) -> ArchiveBeheadedError:
        """It can be read nevertheless."""
        return ArchiveBeheadedError(self.archive.path, first=first)

    async def start(self, end: Revision) -> FoldState | None:
        """None: an archive holds records and nothing else."""
        del end
        return None
