"""The table of hunted mutants: for people, within 80 columns, or as JSON."""

from __future__ import annotations

import sys
from collections import Counter
from typing import Final

import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tests.simulation.columns import WIDTH
from tests.simulation.hunting import CAUGHT, ERROR, SURVIVES, UNTRIED, Row

_SAID: Final = {ERROR: "an error", SURVIVES: "NOTHING", UNTRIED: "untried"}
_COUNTED: Final = {SURVIVES: "survived", UNTRIED: "untried", ERROR: "with errors"}


def show_table(rows: list[Row]) -> None:
    """Print who was caught by what, and below it who was not, and why."""
    console = Console(width=WIDTH, file=sys.stdout, highlight=False)
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("mutant", overflow="fold")
    table.add_column("caught by (seeds)", overflow="fold")
    for heading in ("in", "of", "felt"):
        table.add_column(heading, justify="right", no_wrap=True)
    for row in rows:
        by = ", ".join(f"{name} ({seeds})" for name, seeds in row.caught_by.items())
        numbers = (row.caught, row.seeds, row.noticed)
        said = by or _SAID[row.fate]
        table.add_row(Text(row.name), Text(said), *map(str, numbers))
    console.print(table)
    for row in rows:
        if row.fate != CAUGHT and (row.fate != UNTRIED or row.seeds):
            console.print(Text(_why(row)))
    counted = Counter(row.fate for row in rows)
    rest = [f"{counted[fate]} {said}" for fate, said in _COUNTED.items()]
    others = "".join(f", {each}" for each in rest if not each.startswith("0 "))
    console.print(Text(f"{counted[CAUGHT]} of {len(rows)} mutants caught{others}"))


def _why(row: Row) -> str:
    if row.errors:
        return f"{row.name}: {len(row.errors)} errors; the first: {row.errors[0]}"
    if row.fate == UNTRIED:
        return f"{row.name}: stopped when {row.seeds} runs had not caught it"
    if row.noticed:
        went = f"{row.noticed} of {row.seeds} runs went another way and broke nothing"
        return f"{row.name} survives: {went}: an invariant is missing"
    return f"{row.name} survives: none of {row.seeds} runs was any different"


def show_json(rows: list[Row]) -> None:
    """Print the rows as one document."""
    document = msgspec.json.format(msgspec.json.encode(rows)).decode()
    sys.stdout.write(f"{document}\n")
