"""Measure the figures that the project promises: ``python -m tests.bench``."""

from __future__ import annotations

import importlib
import platform
import sys
from datetime import UTC, datetime

import msgspec
import uvloop
from rich.console import Console
from rich.table import Table

from tests.bench.figures import Figure

BENCHES = (
    *(
        "bench_fold",
        "bench_archive",
        "bench_replay",
        "bench_router",
        "bench_picks",
        "bench_beats",
    ),
    "bench_ports",
)


def main(words: list[str]) -> int:
    """Run all benches, or those named; 1 if a promise is not kept."""
    as_json = "json" in words
    chosen = [word for word in words if word.startswith("bench_")] or BENCHES
    figures: list[Figure] = []
    for name in chosen:
        sys.stderr.write(f"{name}…\n")
        bench = importlib.import_module(f"tests.bench.{name}")
        figures += uvloop.run(bench.run())
    if as_json:
        sys.stdout.write(msgspec.json.encode(figures).decode() + "\n")
    else:
        show(figures)
    return 0 if all(figure.ok for figure in figures) else 1


def show(figures: list[Figure]) -> None:
    """Print a table."""
    now = datetime.now(UTC).date().isoformat()
    machine = f"{platform.machine()}, Python {platform.python_version()}"
    table = Table(title=f"{now}, {machine}", title_justify="left")
    for heading in ("figure", "measured", "promised", "ceiling", "times"):
        table.add_column(heading, overflow="fold")
    for figure in figures:
        bound = "" if figure.bound is None else f"≤ {figure.bound:g}"
        ceiling = "" if figure.ceiling is None else f"{figure.ceiling:.3g}"
        ratio = "" if figure.ratio is None else f"{figure.ratio:.1f}x"
        value = f"{figure.value:.3g} {figure.unit}"
        table.add_row(figure.name, value, bound, ceiling, ratio)
    Console().print(table)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
