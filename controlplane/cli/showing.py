"""``demo``: the whole thing, with faults, in half a minute."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal, Self

from cyclopts import Parameter
from rich.table import Table
from rich.text import Text

from .columns import Cell, Column, shown, table
from .exits import NO as NO_CODE
from .exits import OK
from .options import COMMON, Common
from .printing import Screen, print_document, print_lines, terminal_width
from .running import run
from .tables import BAD, GOOD, NO, YES

if TYPE_CHECKING:
    from controlplane.demo import DemoEvent, DemoResult

DemoFormat = Annotated[Literal["table", "json"], Parameter(name=("--output", "-o"))]
RESULT_COLUMNS: Final = (
    Column(title="who", least=10),
    Column(title="revision", right=True),
    Column(title="digest"),
    Column(title="equal"),
)
STYLES: Final = {
    "start": "dim",
    "phase": "cyan",
    "kill": "bold red",
    "restart": "yellow",
    "takeover": "yellow",
    "agreement": "green",
    "problem": "bold red",
    "output": "dim red",
    "end": "bold",
}


def demo(
    *,
    store_dir: Path | None = None,
    output: DemoFormat = "table",
    options: Common = COMMON,
) -> int:
    """See it work: a rolling update and three kill -9, while two routers route.

    Parameters
    ----------
    store_dir
        Keep the log in this directory; else it is temporary.
    output
        A timeline and a table for people, or one JSON document.

    options
        What commands of its kind share.

    """
    return run(lambda: _demo(store_dir, output), options)


async def _demo(store_dir: Path | None, output: Literal["table", "json"]) -> int:
    # Only this command needs what the demo needs.
    from controlplane.demo import run_demo  # noqa: PLC0415

    with Timeline(to_stderr=output == "json") as timeline:
        result = await run_demo(store_dir=store_dir, on_event=timeline.show)
    if output == "json":
        print_document(result.document())
    else:
        print_lines(result_lines(result, terminal_width()))
    return OK if result.ok else NO_CODE


class Timeline:
    """Shows what happens when; on a terminal with a sign that something does.

    ``to_stderr``: stdout is for the document; then only a terminal gets the lines.
    """

    def __init__(self, *, to_stderr: bool) -> None:
        """Show nothing yet."""
        stream = sys.stderr if to_stderr else sys.stdout
        self._console = Screen(stream)
        self._silent = to_stderr and not self._console.is_terminal
        self._status = self._console.status("Ctrl-C ends it", spinner="dots")

    def __enter__(self) -> Self:
        """Begin."""
        if self._console.is_terminal:
            self._status.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Take the sign away."""
        self._status.stop()

    def show(self, event: DemoEvent) -> None:
        """Show one event of the demo."""
        if self._silent:
            return
        at = Text(f"{event.at_s:6.2f} s", style="dim")
        text = Text(shown(event.text), style=STYLES.get(event.kind, ""))
        if not self._console.is_terminal:
            self._console.print(Text.assemble(at, "  ", text), soft_wrap=True)
            return
        row = Table.grid(padding=(0, 2, 0, 0))
        row.add_column(no_wrap=True)
        row.add_column()
        row.add_row(at, text)
        self._console.print(row)


def result_lines(result: DemoResult, width: int) -> list[Text]:
    """The closing table: the digests side by side, and what was counted."""
    common = Counter(row.digest for row in result.rows).most_common(1)
    usual = common[0][0] if common else ""
    rows: list[list[Cell]] = [
        [row.who, str(row.revision), row.digest, YES if row.digest == usual else NO]
        for row in result.rows
    ]
    traffic = result.traffic
    counts = (
        f"{traffic.picks} picks, {traffic.failed_picks} failed, "
        f"{traffic.picks_to_dead} to the long dead, in {result.seconds:.1f} s"
    )
    verdict = "everyone agrees" if result.ok else "NOT as promised"
    return [
        Text(),
        *table(RESULT_COLUMNS, rows, width),
        Text(f"{counts}: {verdict}", style=GOOD if result.ok else BAD),
        *(Text(f"  {shown(problem)}", style=BAD) for problem in result.problems),
    ]
