"""What exports and imports say when they are done, in every case."""

from rich.text import Text

from controlplane.archive import Exported, Imported, Manifest
from controlplane.cli.archive_lines import export_lines, import_lines
from tests.support.fleet_builder import START

WIDTH = 80
FILE = "log.jsonl.zst"
LONG = f"/var/backups/controlplane/europe-west4/2026/{FILE}"
LOG_ID = "01a22c22-d59f-77fc-8202-b8df97cee4a0"


def _manifest(records: int, first: int = 1) -> Manifest:
    return Manifest(
        cell="prod",
        log_id=LOG_ID,
        first_revision=first,
        last_revision=first + records - 1,
        records=records,
        blocks=-(-records // 2048),
        bytes=records * 346,
        checksum="4b1130279f2683fe4fa3ca39ce6fbb07",
        exported_at=START,
    )


def _exported(path: str, manifest: Manifest, **more: object) -> list[Text]:
    size = manifest.bytes // 11
    exported = Exported(manifest=manifest, **more)
    return [*export_lines(exported, path, size, WIDTH), Text()]


def _imported(path: str, manifest: Manifest, after: int = 0) -> list[Text]:
    imported = Imported(manifest=manifest, resumed_after=after)
    return [*import_lines(imported, path, "prod-copy", WIDTH), Text()]


def exports() -> list[Text]:
    """New, gone on with, there before, without its beginning, empty."""
    return [
        *_exported(FILE, _manifest(1_234_567)),
        *_exported(LONG, _manifest(1_234_567), resumed_after=819_200),
        *_exported(FILE, _manifest(1), already=True),
        *_exported(FILE, _manifest(20_000, first=1_200)),
        *_exported(FILE, _manifest(0)),
    ]


def imports() -> list[Text]:
    """New, gone on with, done before, empty."""
    return [
        *_imported(FILE, _manifest(1_234_567)),
        *_imported(LONG, _manifest(1_234_567), 40_000),
        *_imported(FILE, _manifest(20_000), 20_000),
        *_imported(FILE, _manifest(0)),
    ]
