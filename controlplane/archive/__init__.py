"""Archives: a whole log in one file, and back. Read without a broker."""

from .errors import (
    ArchiveDamagedError,
    ArchiveMissingError,
    ArchiveNewerError,
    ArchiveTruncatedError,
    ArchiveUnusableError,
    ExportRefusedError,
    ImportRefusedError,
    ImportUnfinishedError,
)
from .exporting import Exported, export_log
from .form import Manifest
from .history import ArchiveHistory
from .importing import Imported, check_import, import_archive
from .reading import Archive, read_archive

__all__ = [
    "Archive",
    "ArchiveDamagedError",
    "ArchiveHistory",
    "ArchiveMissingError",
    "ArchiveNewerError",
    "ArchiveTruncatedError",
    "ArchiveUnusableError",
    "ExportRefusedError",
    "Exported",
    "ImportRefusedError",
    "ImportUnfinishedError",
    "Imported",
    "Manifest",
    "check_import",
    "export_log",
    "import_archive",
    "read_archive",
]
