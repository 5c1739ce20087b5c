"""Lines for people: within 80 columns, broken where words end.

Nothing is left out but the tails of long identifiers, and those only where a reader can
get the same lines whole: `replay --wide`, or a report's file.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Iterator
from typing import Final

WIDTH: Final = 80
_UUID: Final = re.compile(
    r"\b([0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3})-[0-9a-f]{4}-[0-9a-f]{12}\b"
)
_HEAD: Final = re.compile(
    r" *\d+\.\d{4} \S+ +"  # of a trace: when and who
    r"| +\| "  # of its notes
    r"| *\d+ +\d+\.\d{3} s +"  # of a plan: which step and when
)
_DEEPER: Final = 2


def readable(lines: Iterable[str], *, width: int = WIDTH) -> Iterator[str]:
    """The lines for a reader: long identifiers cut, and broken as `fitted`."""
    for line in lines:
        yield from fitted(_UUID.sub(r"\1…", line), width=width)


def fitted(line: str, *, width: int = WIDTH) -> Iterator[str]:
    """The line in pieces that fit; those after the first stand below its words."""
    if len(line) <= width:
        yield line
        return
    found = _HEAD.match(line)
    begins = len(line) - len(line.lstrip())
    head = line[: found.end() if found else begins]
    below = len(head) if found else begins + _DEEPER
    yield from textwrap.wrap(
        line[len(head) :],
        width,
        initial_indent=head,
        subsequent_indent=" " * min(below, width // 2),
        break_on_hyphens=False,
    )
