"""Printing to stdout: lines for people, bytes for programs."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable
from typing import Any, Final, NoReturn, TextIO

import msgspec
from rich.console import Console
from rich.text import Text

from .columns import UNLIMITED, Cell

_ENCODER: Final = msgspec.json.Encoder(order="sorted")
_WIDTH: Final = 80


class Screen(Console):
    """A rich console that lets who calls it decide what a closed pipe means."""

    def __init__(self, file: TextIO | None = None) -> None:
        """Write to ``file``, else stdout; texts are taken as they are."""
        super().__init__(file=file, highlight=False, emoji=False)

    def on_broken_pipe(self) -> NoReturn:
        """Rich would exit with 1, which is an answer here."""
        raise BrokenPipeError


def terminal_width() -> int:
    """How wide lines may be: the terminal's, or what ``COLUMNS`` says.

    For a program that reads them nothing is cut.
    """
    if not sys.stdout.isatty() and not os.environ.get("COLUMNS", "").isdecimal():
        return UNLIMITED
    return shutil.get_terminal_size((_WIDTH, 24)).columns


def print_lines(lines: Iterable[Cell]) -> None:
    """Print lines, in colours on a terminal only (`NO_COLOR` is respected)."""
    texts = [line if isinstance(line, Text) else Text(line) for line in lines]
    console = Screen()
    if not console.is_terminal:
        sys.stdout.write("".join(f"{text.plain}\n" for text in texts))
        sys.stdout.flush()
        return
    with console.capture() as capture:
        for text in texts:
            console.print(text, soft_wrap=True)
    sys.stdout.write(capture.get())
    sys.stdout.flush()


def print_document(document: Any) -> None:  # noqa: ANN401 - any plain data
    """Print one JSON document on one line; equal documents are equal bytes."""
    print_json(_ENCODER.encode(document))


def print_json(text: bytes | str) -> None:
    """Print what is JSON already."""
    raw = text.encode() if isinstance(text, str) else text
    sys.stdout.flush()
    sys.stdout.buffer.write(raw + b"\n")
    sys.stdout.buffer.flush()
