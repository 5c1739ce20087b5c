"""What ``log export`` and ``log import`` say when they are done. Pure."""

from __future__ import annotations

from typing import Any

import msgspec
from rich.text import Text

from controlplane.archive import Exported, Imported, Manifest
from events import Cell

from .columns import cut, shown
from .sizes import byte_size
from .tables import FAINT, GOOD, ODD, short_id


def export_lines(exported: Exported, path: str, size: int, width: int) -> list[Text]:
    """What is in the archive at ``path``, which has ``size`` bytes."""
    manifest = exported.manifest
    before = "before, " if exported.already else ""
    sizes = f"{byte_size(size)}, {byte_size(manifest.bytes)} unpacked"
    lines = [
        Text(f"exported {before}{_contents(manifest)}", style=GOOD),
        _of(manifest, width),
        _named("to", path, f", {sizes}", width),
        Text(f"checksum {manifest.checksum}", style=FAINT),
    ]
    if exported.resumed_after is not None:
        said = f"it went on after revision {exported.resumed_after:,}"
        lines.append(Text(f"an export had been cut short: {said}", style=FAINT))
    if manifest.first_revision > 1 and manifest.records:
        first = f"what came before revision {manifest.first_revision:,} is gone"
        lines.append(Text(f"{first} from the log:", style=ODD))
        said = "this archive can be read, but neither replayed nor imported"
        lines.append(Text(said, style=ODD))
    return lines


def import_lines(imported: Imported, path: str, cell: Cell, width: int) -> list[Text]:
    """What is in ``cell`` now."""
    manifest = imported.manifest
    already = imported.resumed_after == manifest.records > 0
    before = "before, " if already else ""
    lines = [
        Text(f"imported {before}{_contents(manifest)}", style=GOOD),
        _of(manifest, width),
        _named("from", path, f" into cell {cell}", width),
    ]
    if imported.resumed_after and not already:
        said = f"it went on after record {imported.resumed_after:,}"
        lines.append(Text(f"an import had been cut short: {said}", style=FAINT))
    said = "a projector here will expire the workers that do not beat in this cell"
    return [*lines, Text(said, style=FAINT)]


def export_document(exported: Exported, path: str, size: int) -> dict[str, Any]:
    """The same as plain data."""
    return {
        "file": path,
        "bytes": size,
        "manifest": msgspec.to_builtins(exported.manifest),
        "resumed_after": exported.resumed_after,
        "already": exported.already,
    }


def import_document(imported: Imported, path: str, cell: Cell) -> dict[str, Any]:
    """The same as plain data."""
    return {
        "file": path,
        "cell": cell,
        "manifest": msgspec.to_builtins(imported.manifest),
        "resumed_after": imported.resumed_after,
    }


def _contents(manifest: Manifest) -> str:
    records = f"{manifest.records:,} record" + ("" if manifest.records == 1 else "s")
    return f"{records} up to revision {manifest.last_revision:,}"


def _of(manifest: Manifest, width: int) -> Text:
    said = f"of log {short_id(manifest.log_id)} of cell {shown(manifest.cell)}"
    return Text(cut(said, width), style=FAINT)


def _named(where: str, path: str, more: str, width: int) -> Text:
    """A file's name, cut in the middle if there is no room for all of it."""
    room = max(1, width - len(where) - 1 - len(more))
    return Text(f"{where} {cut(shown(path), room, middle=True)}{more}", style=FAINT)
