"""The table of hunted mutants: for people, within 80 columns, or as JSON."""

from __future__ import annotations

import sys
from typing import Final

import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tests.simulation.hunting import Row

_WIDTH: Final = 80


def show_table(rows: list[Row]) -> None:
    """Print who was caught by what, and below it who was not, and why."""
    console = Console(width=_WIDTH, file=sys.stdout, highlight=False)
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("mutant", overflow="fold")
    table.add_column("caught by (seeds)", overflow="fold")
    for heading in ("in", "of", "felt"):
        table.add_column(heading, justify="right", no_wrap=True)
    for row in rows:
        by = ", ".join(f"{name} ({seeds})" for name, seeds in row.caught_by.items())
        numbers = (row.caught, row.seeds, row.noticed)
        said = by or ("an error" if row.errors else "NOTHING")
        table.add_row(Text(row.name), Text(said), *map(str, numbers))
    console.print(table)
    for row in rows:
        if not row.ok:
            console.print(Text(_why(row)))
    caught = sum(row.caught > 0 for row in rows)
    console.print(Text(f"{caught} of {len(rows)} mutants caught"))


def _why(row: Row) -> str:
    if row.errors:
        return f"{row.name}: {len(row.errors)} errors; the first: {row.errors[0]}"
    if row.noticed:
        went = f"{row.noticed} of {row.seeds} runs went another way and broke nothing"
        return f"{row.name} survives: {went}: an invariant is missing"
    return f"{row.name} survives: none of {row.seeds} runs was any different"


def show_json(rows: list[Row]) -> None:
    """Print the rows as one document."""
    document = msgspec.json.format(msgspec.json.encode(rows)).decode()
    sys.stdout.write(f"{document}\n")
