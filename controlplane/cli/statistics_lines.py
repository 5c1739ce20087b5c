"""What a log is made of, as tables. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from rich.text import Text

from controlplane.playback import Statistics, Storage, Tally

from .columns import Cell, Column, cut, table
from .records import POISON
from .sizes import byte_size
from .tables import FAINT, ODD, short_id

HOURS: Final = 24
"""So many of the latest hours are shown; the others with -o json."""
BAR: Final = 20
ALMOST_FULL: Final = 0.8
TYPE_COLUMNS: Final = (
    Column(title="type", least=12),
    Column(title="records", right=True),
    Column(title="share", right=True),
    Column(title="bytes", right=True),
    Column(title="mean", right=True),
    Column(title="largest", right=True),
)
HOUR_COLUMNS: Final = (
    Column(title="hour (UTC)"),
    Column(title="records", right=True),
    Column(title="bytes", right=True),
    Column(title="", least=1),
)


def statistics_lines(
    statistics: Statistics, storage: Storage | None, log_id: str | None, width: int
) -> Iterator[Text]:
    """By type, the most frequent first; by hour; then the whole."""
    if statistics.all.records:
        yield from table(TYPE_COLUMNS, _types(statistics), width)
        yield Text()
        yield from _hours(statistics, width)
        yield Text()
    yield from _whole(statistics, log_id, width)
    if storage is not None:
        yield _storage(storage, width)


def _types(statistics: Statistics) -> Iterator[list[Cell]]:
    found = sorted(statistics.types.items(), key=lambda one: (-one[1].records, one[0]))
    for kind, tally in found:
        readable = "." in kind
        name = Text(kind.removesuffix(".v1")) if readable else _poison(kind)
        yield [
            name,
            f"{tally.records:,}",
            f"{tally.records / statistics.all.records:.1%}",
            byte_size(tally.bytes),
            _mean(tally),
            byte_size(tally.largest),
        ]


def _poison(kind: str) -> Text:
    return Text(f"! {kind}", style=POISON)


def _mean(tally: Tally) -> str:
    return byte_size(tally.bytes / tally.records) if tally.records else "-"


def _hours(statistics: Statistics, width: int) -> Iterator[Text]:
    hours = sorted(statistics.hours.items())
    most = max(tally.records for _, tally in hours)
    rows: list[list[Cell]] = [
        [
            f"{hour:%F %H}:00",
            f"{tally.records:,}",
            byte_size(tally.bytes),
            Text("#" * max(1, round(BAR * tally.records / most)), style=FAINT),
        ]
        for hour, tally in hours[-HOURS:]
    ]
    yield from table(HOUR_COLUMNS, rows, width)
    earlier = hours[:-HOURS]
    if earlier:
        count = sum(tally.records for _, tally in earlier)
        said = f"and {count:,} records in {len(earlier):,} hours before: see -o json"
        yield Text(cut(said, width), style=FAINT)


def _whole(statistics: Statistics, log_id: str | None, width: int) -> Iterator[Text]:
    whole = statistics.all
    parts = [f"{whole.records:,} records", f"{byte_size(whole.bytes)} of events"]
    if whole.records:
        parts.insert(1, f"revisions {statistics.first} to {statistics.last}")
    parts.append(f"log {short_id(log_id)}")
    yield Text(cut(" · ".join(parts), width), style=FAINT)
    if statistics.first_at is not None and statistics.last_at is not None:
        times = f"from {statistics.first_at:%F %T} to {statistics.last_at:%F %T} UTC"
        yield Text(cut(times, width), style=FAINT)
    if statistics.removed:
        said = f"{statistics.removed:,} removed: revisions without a record"
        yield Text(cut(said, width), style=ODD)
    if statistics.first > 1 and whole.records:
        said = f"the beginning is gone: the log begins at revision {statistics.first}"
        yield Text(cut(said, width), style=ODD)


def _storage(storage: Storage, width: int) -> Text:
    if storage.max_bytes <= 0:
        said = f"the broker stores {byte_size(storage.bytes)}, without a limit"
        return Text(cut(said, width), style=FAINT)
    said = (
        f"the broker stores {byte_size(storage.bytes)} of at most "
        f"{byte_size(storage.max_bytes)}: {storage.fill:.1%} full"
    )
    style = ODD if storage.fill >= ALMOST_FULL else FAINT
    return Text(cut(said, width), style=style)
