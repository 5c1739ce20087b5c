"""Differences between moments as text. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec
from rich.text import Text

from events import Revision
from projections import FleetDifference, OtherDifference, WorkerDifference

from .columns import Cell, Column, cut, table
from .tables import BAD, DIGEST_SHORT, FAINT, GOOD, NOTHING, ODD

DIFFERENCE_COLUMNS: Final = (
    Column(title="revision", right=True),
    Column(title="change"),
    Column(title="what", least=16, middle=True),
    Column(title="field"),
    Column(title="before", least=10, middle=True),
    Column(title="after", least=10, middle=True),
)
_IN_NAMES: Final = frozenset({"type", "namespace", "worker_id", "model"})
"""The fields of a setting that its name tells."""


def difference_lines(
    found: FleetDifference, digests: tuple[str, str], width: int
) -> Iterator[Text]:
    """A row for each that came or went, and for each field that changed."""
    rows = list(_rows(found))
    if rows:
        yield from table(DIFFERENCE_COLUMNS, rows, width)
    else:
        yield Text("no difference", style=GOOD)
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


def _rows(found: FleetDifference) -> Iterator[list[Cell]]:
    for one in found.removed:
        yield [*_head(one.revision, "removed", BAD, one.name), *_summary(one)]
    for one in found.changed:
        head = _head(one.revision, "changed", ODD, one.name)
        for name, (was, now) in one.fields.items():
            yield [*head, name, _text(was), _text(now)]
            head = ["", "", ""]
    for one in found.added:
        yield [*_head(one.revision, "added", GOOD, one.name), *_summary(one)]
    for other in found.others:
        yield from _other(other)


def _head(revision: Revision | None, kind: str, style: str, what: str) -> list[Cell]:
    where = NOTHING if revision is None else str(revision)
    return [where, Text(kind, style=style), what]


def _summary(one: WorkerDifference) -> list[Cell]:
    """What a worker that came is, or was that went."""
    before, after = (
        "" if w is None else ", ".join((w.status.value, *_beyond(w.status.value, w)))
        for w in (one.before, one.after)
    )
    return ["", before, after]


def _beyond(status: str, worker: Any) -> list[str]:  # noqa: ANN401 - a worker as shown
    return [reason for reason in worker.blockers if reason != status]


def _other(one: OtherDifference) -> Iterator[list[Cell]]:
    """A setting field by field, all else as a whole."""
    what = one.what.replace("_", " ")
    head = _head(one.revision, what, ODD, " ".join(one.name))
    pairs = {"": (one.before, one.after)}
    if one.what == "setting":
        was, now = one.before or {}, one.after or {}
        names = [name for name in {**was, **now} if name not in _IN_NAMES]
        pairs = {n: (was.get(n), now.get(n)) for n in names}
    for name, (before, after) in pairs.items():
        if _text(before) != _text(after):
            yield [*head, name, _text(before), _text(after)]
            head = ["", "", ""]


def _text(value: Any) -> str:  # noqa: ANN401 - plain data
    match value:
        case None | "" | [] | ():
            return NOTHING
        case str():
            return value
        case [*items] if all(isinstance(item, str) for item in items):
            return ", ".join(items)
        case _:
            return msgspec.json.encode(value).decode()
