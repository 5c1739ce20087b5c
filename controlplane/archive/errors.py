"""Why an archive cannot be read, written or imported, and what to do about it."""

from __future__ import annotations

from pathlib import Path

from controlplane.errors import HistoryTruncatedError
from events import ControlPlaneError, Revision


class ArchiveUnusableError(ControlPlaneError):
    """The file cannot be read as an archive. Take another copy, or export again."""

    def __init__(self, path: Path, reason: str, next_step: str) -> None:
        """Name the ``path``, the ``reason`` and the ``next_step``."""
        self.path, self.reason = path, reason
        super().__init__(f"archive {path} {reason}; {next_step}")


class ArchiveMissingError(ArchiveUnusableError):
    """There is no such file, or it cannot be opened."""

    def __init__(self, path: Path, why: str) -> None:
        """Give the system's word on ``why``."""
        reason = f"cannot be opened: {why}"
        super().__init__(path, reason, "name the file that log export wrote")


class ArchiveTruncatedError(ArchiveUnusableError):
    """The end is missing: it was cut off, or its export is not finished."""

    def __init__(self, path: Path, *, after: Revision) -> None:
        """Whole up to and with the revision ``after``; 0: nothing is."""
        self.after = after
        reason = f"is truncated: it ends after revision {after}, without its manifest"
        super().__init__(path, reason, "copy it again, or let log export finish it")


class ArchiveDamagedError(ArchiveUnusableError):
    """Its bytes are not those that were exported."""

    def __init__(self, path: Path, *, after: Revision, why: str) -> None:
        """Sound up to and with the revision ``after``; then ``why``."""
        self.after = after
        reason = f"is damaged or altered after revision {after}: {why}"
        super().__init__(path, reason, "take another copy, or export again")


class ArchiveNewerError(ArchiveUnusableError):
    """A later version of this program wrote it."""

    def __init__(self, path: Path, *, found: int, known: int) -> None:
        """Its format is ``found``, this version reads up to ``known``."""
        self.found, self.known = found, known
        reason = f"has format {found}, this version reads up to format {known}"
        super().__init__(path, reason, "read it with the version that wrote it")


class ArchiveBeheadedError(HistoryTruncatedError):
    """The log's beginning was gone when it was exported. Read it; do not fold it."""

    def __init__(self, path: Path, *, first: Revision) -> None:
        """Give the ``first`` revision that the log still had."""
        super().__init__(first=first)
        self.path = path
        message = (
            f"archive {path} begins at revision {first}: what came before was gone "
            "from the log; it can be read (log tail, show and stats), but neither "
            "replayed nor imported"
        )
        self.args = (message,)


class ExportRefusedError(ControlPlaneError):
    """The export cannot go where it was told to. Do as the message says."""


class ExportStoppedError(ControlPlaneError):
    """The machine took no more of it: a full disk. Make room; the same call goes on."""

    def __init__(self, part: Path, why: OSError) -> None:
        """Name the ``part`` that was written, and give the system's word on ``why``."""
        self.part = part
        super().__init__(
            f"cannot write {part}: {why.strerror or why}; it keeps what is there: make "
            "room, or mend that, and run the same command again"
        )


class ImportRefusedError(ControlPlaneError):
    """The cell cannot take the archive. Do as the message says."""
