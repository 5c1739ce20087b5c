"""Whole numbers on the command line, as they were typed: no fraction is rounded."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, Final, TypeAlias

from cyclopts import Parameter, Token

_DIGITS: Final = re.compile(r"[+-]?[0-9]{1,20}")


def whole_number(_kind: type, tokens: Sequence[Token]) -> int:
    """The number that an argument is. Raises `ValueError`, which names the rule.

    Nobody who wrote 1.5 meant 2, and of 5.6 and 6 only one can be the revision that
    somebody waits for.
    """
    text = tokens[0].value
    if _DIGITS.fullmatch(text) is None:
        message = f"{text[:40]!r} is not valid: a whole number, as 16"
        raise ValueError(message)
    return int(text)


Whole: TypeAlias = Annotated[int, Parameter(converter=whole_number)]
"""The type of each option that is a whole number; `Parameter`s may be put around it."""
