"""How far it is: one line that changes on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import shutil
import sys
import time
from typing import Final, TextIO

from tests.simulation.columns import WIDTH
from tests.simulation.outcome import Outcome

_TERMINAL_EVERY_S: Final = 0.2
_ERASE: Final = "\r\x1b[2K"


class Tally:
    """What was run."""

    def __init__(self) -> None:
        self.seeds = self.records = 0
        self.virtual_s = 0.0
        self._began = time.monotonic()

    def add(self, outcome: Outcome) -> None:
        """One more seed was run."""
        self.seeds += 1
        self.records += outcome.records
        self.virtual_s += outcome.virtual_s

    @property
    def elapsed_s(self) -> float:
        return time.monotonic() - self._began

    def __str__(self) -> str:
        per_minute = self.seeds / max(self.elapsed_s, 0.001) * 60
        return (
            f"{self.seeds} seeds in {self.elapsed_s:.0f} s ({per_minute:.0f}/min), "
            f"{self.records} records, {self.virtual_s / 3600:.1f} virtual hours"
        )


class Progress:
    """Says on stderr how far it is, unless it is to be quiet."""

    def __init__(
        self, *, quiet: bool, every_s: float, stream: TextIO = sys.stderr
    ) -> None:
        """``every_s`` is for what is no terminal."""
        self._quiet, self._stream = quiet, stream
        self._terminal = stream.isatty()
        self._every_s = _TERMINAL_EVERY_S if self._terminal else every_s
        self._due = time.monotonic() + self._every_s

    def tick(self, said: object) -> None:
        """Say it if it is time to."""
        if self._quiet or time.monotonic() < self._due:
            return
        self._due = time.monotonic() + self._every_s
        line = f"{_ERASE}{self._cut(str(said))}" if self._terminal else f"{said}\n"
        self._write(line)

    def say(self, line: str) -> None:
        """A line that stays."""
        if not self._quiet:
            self.clear()
            self._write(f"{line}\n")

    def clear(self) -> None:
        """Make place for lines that stay."""
        if self._terminal and not self._quiet:
            self._write(_ERASE)

    def _cut(self, line: str) -> str:
        """What fits into one row: only one can be erased."""
        columns = shutil.get_terminal_size((WIDTH, 24)).columns
        return line if len(line) < columns else f"{line[: columns - 2]}…"

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()
