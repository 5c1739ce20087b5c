"""Sentences in a narrow place: wrapped between words, where a table would cut."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from .columns import shown

LEAST: Final = 20
"""Sentences in less than this are harder to read than a line that is too wide."""


def wrapped(said: str, width: int, *, indent: str = "", style: str = "") -> list[Text]:
    """``said`` as lines of at most ``width`` cells, each after ``indent``."""
    room = max(width - cell_len(indent), LEAST)
    return [Text(indent).append(line, style=style) for line in _lines(said, room)]


def _lines(said: str, room: int) -> Iterator[str]:
    line = ""
    for word in shown(said).split():
        longer = f"{line} {word}" if line else word
        if cell_len(longer) <= room:
            line = longer
            continue
        if line:
            yield line
        *whole, line = _pieces(word, room)
        yield from whole
    yield line


def _pieces(word: str, room: int) -> Iterator[str]:
    """A word that fits no line, in parts that do."""
    while cell_len(word) > room:
        part = set_cell_size(word, room).rstrip()
        yield part
        word = word[len(part) :]
    yield word
