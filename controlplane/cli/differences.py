"""Differences between moments as text. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, TypeAlias

import msgspec
from rich.text import Text

from events import Revision
from projections import FleetDifference, OtherDifference, Worker, WorkerDifference

from .columns import Cell, Column, cut, table
from .tables import BAD, DIGEST_SHORT, FAINT, GOOD, NOTHING, ODD, SHORT, short_id
from .wrapping import wrapped

DIFFERENCE_COLUMNS: Final = (
    Column(title="revision", right=True),
    Column(title="change"),
    Column(title="what", least=16, middle=True),
)
DETAIL_INDENT: Final = " " * 10
SECONDS: Final = len("2026-01-31 12:00:00")
_IN_NAMES: Final = frozenset({"type", "namespace", "worker_id", "model"})
"""The fields of a setting that its name tells."""
_STYLES: Final = {"removed": BAD, "added": GOOD}
_Item: TypeAlias = tuple[Revision | None, str, str, list[str]]
"""When, how, what, and in detail."""


def difference_lines(
    found: FleetDifference, digests: tuple[str, str], width: int
) -> Iterator[Text]:
    """What came, went or changed, each with what is different below it."""
    items = list(_items(found))
    if not items:
        yield Text("no difference", style=GOOD)
    else:
        rows: list[list[Cell]] = [
            [
                NOTHING if revision is None else str(revision),
                Text(change, style=_STYLES.get(change, ODD)),
                what,
            ]
            for revision, change, what, _ in items
        ]
        first, *lines = table(DIFFERENCE_COLUMNS, rows, width)
        yield first
        for row, (*_, details) in zip(lines, items, strict=True):
            yield row
            for detail in details:
                yield from wrapped(detail, width, indent=DETAIL_INDENT)
    one, two = (digest[:DIGEST_SHORT] for digest in digests)
    said = (
        f"revision {found.from_revision} to {found.to_revision} · digest {one} to {two}"
    )
    yield Text(cut(said, width), style=FAINT)


def difference_documents(found: FleetDifference) -> Iterator[dict[str, Any]]:
    """Each difference by itself, as ``-o ndjson`` shows it."""
    document = found.document()
    for kind in ("removed", "changed", "added", "others"):
        for one in document.get(kind, ()):
            yield {"kind": "other" if kind == "others" else kind, **one}


def _items(found: FleetDifference) -> Iterator[_Item]:
    for one in found.removed:
        yield one.revision, "removed", one.name, _summary(one.before)
    for one in found.changed:
        yield one.revision, "changed", one.name, list(_fields(one))
    for one in found.added:
        yield one.revision, "added", one.name, _summary(one.after)
    for other in found.others:
        what = other.what.replace("_", " ")
        yield other.revision, what, " ".join(other.name), list(_other(other, found))


def _summary(worker: Worker | None) -> list[str]:
    """What a worker is that came, or was that went."""
    if worker is None:
        return []
    status = worker.status.value
    beyond = [reason for reason in worker.blockers if reason != status]
    return [", ".join((f"{worker.model} {worker.role.value}", status, *beyond))]


def _fields(one: WorkerDifference) -> Iterator[str]:
    for name, (was, now) in one.fields.items():
        yield f"{name} {_text(was, name)} -> {_text(now, name)}"


def _other(one: OtherDifference, found: FleetDifference) -> Iterator[str]:
    """A setting field by field, all else as a whole."""
    if one.what == "worker_set":
        checksums = (_text(value, "checksum") for value in (one.before, one.after))
        yield f"checksums, that in force first: {' -> '.join(checksums)}"
        return
    if one.what == "known_model":
        back = found.from_revision > found.to_revision
        gone = "was not known yet" if back else "was forgotten"
        yield "is known" if one.after else gone
        return
    was, now = one.before or {}, one.after or {}
    for name in {**was, **now}:
        before, after = _text(was.get(name)), _text(now.get(name))
        if name not in _IN_NAMES and before != after:
            yield f"{name} {before} -> {after}"


def _text(value: Any, name: str = "") -> str:  # noqa: ANN401 - plain data
    """A value as it is read; long identities by the part that tells them apart."""
    match value:
        case None | "" | [] | ():
            return NOTHING
        case str():
            return _short(value, name)
        case [*items] if all(isinstance(item, str) for item in items):
            return ", ".join(_short(item, name) for item in items)
        case _:
            return msgspec.json.encode(value).decode()


def _short(text: str, name: str) -> str:
    match name:
        case "incarnation":
            return short_id(text)
        case "checksum":
            return text[:SHORT]
        case "registered_at":
            return text.replace("T", " ")[:SECONDS]
        case _:
            return text
