"""Archives: a whole log in one file, and back. Read without a broker."""

from .errors import (
    ArchiveBeheadedError,
    ArchiveDamagedError,
    ArchiveMissingError,
    ArchiveNewerError,
    ArchiveTruncatedError,
    ArchiveUnusableError,
    ExportRefusedError,
    ExportStoppedError,
    ImportRefusedError,
)
from .exporting import Exported, export_log
from .form import Manifest
from .history import ArchiveHistory
from .importing import Imported, import_archive
from .reading import Archive, read_archive

__all__ = [
    "Archive",
    "ArchiveBeheadedError",
    "ArchiveDamagedError",
    "ArchiveHistory",
    "ArchiveMissingError",
    "ArchiveNewerError",
    "ArchiveTruncatedError",
    "ArchiveUnusableError",
    "ExportRefusedError",
    "ExportStoppedError",
    "Exported",
    "ImportRefusedError",
    "Imported",
    "Manifest",
    "export_log",
    "import_archive",
    "read_archive",
]
