"""Columns of text that fit a width: cut where it hurts least, never wrapped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, TypeAlias

import msgspec
from rich.cells import cell_len, set_cell_size
from rich.text import Text

Cell: TypeAlias = str | Text
GAP: Final = "  "
CUT: Final = "…"
UNLIMITED: Final = 100_000
"""A width at which nothing is cut."""
UNPRINTABLE: Final = "\N{REPLACEMENT CHARACTER}"


class Column(msgspec.Struct, frozen=True, kw_only=True):
    """One column. ``least`` 0: never narrower than what stands in it."""

    title: str
    least: int = 0
    right: bool = False
    middle: bool = False
    """Cut in the middle: both ends of a name tell it from others."""
    usual: int = 0
    """The width in a stream of lines, whose contents nobody knows before."""


def table(
    columns: Sequence[Column], rows: Iterable[Sequence[Cell]], width: int
) -> list[Text]:
    """A heading and the rows, none wider than ``width`` if that can be."""
    lines = _texts(columns, rows)
    widths = fit(columns, _natural(lines), width)
    return [_line(columns, row, widths) for row in lines]


def fitted(
    columns: Sequence[Column], rows: Iterable[Sequence[Cell]], width: int
) -> list[int]:
    """How wide a `table` of these makes its columns."""
    return fit(columns, _natural(_texts(columns, rows)), width)


def _texts(
    columns: Sequence[Column], rows: Iterable[Sequence[Cell]]
) -> list[list[Text]]:
    titles = [Text(column.title.upper(), style="bold") for column in columns]
    return [titles, *([_text(cell) for cell in row] for row in rows)]


def _natural(lines: list[list[Text]]) -> list[int]:
    return [
        max(cell_len(cell.plain) for cell in column)
        for column in zip(*lines, strict=True)
    ]


def heading(columns: Sequence[Column], widths: Sequence[int]) -> Text:
    """The heading over a stream of lines."""
    titles = [Text(column.title.upper(), style="bold") for column in columns]
    return _line(columns, titles, widths)


def line(columns: Sequence[Column], row: Sequence[Cell], widths: Sequence[int]) -> Text:
    """One of a stream of lines; of unlimited ones nothing is cut."""
    texts = [_text(cell) for cell in row]
    if sum(widths) >= UNLIMITED // 2:
        lengths = [cell_len(text.plain) for text in texts]
        widths = [*map(max, lengths[:-1], widths), lengths[-1]]
    return _line(columns, texts, widths)


def stream_widths(columns: Sequence[Column], width: int) -> list[int]:
    """Widths for a stream of lines: the usual ones; the last takes what is left."""
    widths = fit(columns, [column.usual for column in columns], width)
    taken = sum(widths) + len(GAP) * (len(widths) - 1)
    widths[-1] += max(0, width - taken)
    return widths


def fit(columns: Sequence[Column], natural: Sequence[int], width: int) -> list[int]:
    """Widths that fit ``width``: the widest that may shrink gives way first."""
    widths = list(natural)
    room = width - len(GAP) * (len(columns) - 1)
    while sum(widths) > room:
        shrinkable = [
            index
            for index, column in enumerate(columns)
            if 0 < column.least < widths[index]
        ]
        if not shrinkable:
            break
        widths[max(shrinkable, key=lambda index: widths[index])] -= 1
    return widths


def cut(text: str, width: int, *, middle: bool = False) -> str:
    """``text`` in at most ``width`` cells of a terminal."""
    if cell_len(text) <= width:
        return text
    if width < 1:
        return ""
    room = width - 1
    tail = room // 2 if middle else 0
    end = set_cell_size(text[::-1], tail)[::-1].lstrip() if tail else ""
    return set_cell_size(text, room - tail).rstrip() + CUT + end


def shown(text: str) -> str:
    """``text`` without what would move a terminal's cursor or colours."""
    return "".join(c if c.isprintable() else UNPRINTABLE for c in text)


def _text(cell: Cell) -> Text:
    plain, style = (cell.plain, cell.style) if isinstance(cell, Text) else (cell, "")
    return Text(shown(plain), style=style)


def _line(
    columns: Sequence[Column], row: Sequence[Text], widths: Sequence[int]
) -> Text:
    whole = Text()
    for index, (column, cell, width) in enumerate(
        zip(columns, row, widths, strict=True)
    ):
        text = cut(cell.plain, width, middle=column.middle)
        padding = " " * (width - cell_len(text))
        whole.append(GAP if index else "")
        if column.right:
            whole.append(padding)
        whole.append(text, style=cell.style)
        if not column.right:
            whole.append(padding)
    whole.rstrip()
    return whole
