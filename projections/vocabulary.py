"""The words of expressions, what each may be asked for, and the kind of the answer."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from typing import Any, Final, Literal, TypeAlias

from .looking import BLOCKERS, ROLES, STATUSES

Kind: TypeAlias = Literal["truth", "number", "text", "list", "mapping", "nothing"]

WORDS: Final = ("model", "worker", "known", "count", "revision")
LANGUAGE: Final = "and, or, not, comparisons, constants and " + ", ".join(WORDS)
EXAMPLES: Final = {
    "model": 'model("llama").serving',
    "worker": 'worker("prod/gpu7").routable',
    "known": 'known("llama")',
    "count": 'count(routable, model="llama")',
}
SLIPS: Final[Mapping[str, str]] = {
    "true": "True",
    "false": "False",
    "null": "None",
    "none": "None",
}
"""What other languages say, and how it is written here."""

MODEL_FIELDS: Final[Mapping[str, Kind]] = {"name": "text", "serving": "truth"}
WORKER_FIELDS: Final[Mapping[str, tuple[Kind, tuple[str, ...]]]] = {
    "namespace": ("text", ()),
    "worker_id": ("text", ()),
    "incarnation": ("text", ()),
    "model": ("text", ()),
    "role": ("text", ROLES),
    "checksum": ("text", ()),
    "status": ("text", STATUSES),
    "routable": ("truth", ()),
    "blockers": ("list", BLOCKERS),
    "needs": ("list", ROLES),
    "address": ("text", ()),
    "capabilities": ("list", ()),
    "adapters": ("list", ()),
    "capacity": ("mapping", ()),
    "labels": ("mapping", ()),
    "registered_at": ("text", ()),
}
"""The fields of a worker's document: the kind, and what a text of it can be."""
ENTRIES: Final[Mapping[str, Kind]] = {"capacity": "number", "labels": "text"}
"""The fields that have named entries, and the kind of those."""
ABSENT: Final[Mapping[Kind, Any]] = {"truth": False, "list": [], "mapping": {}}
"""What a field of somebody is who is not there; None if it is not here."""

COMPARED: Final[Mapping[type[ast.cmpop], Callable[[Any, Any], bool]]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Is: operator.eq,
    ast.IsNot: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda one, many: one in many,
    ast.NotIn: lambda one, many: one not in many,
}
MEMBER: Final = (ast.In, ast.NotIn)
SAME: Final = (ast.Eq, ast.NotEq, ast.Is, ast.IsNot)


def meant(name: str, words: tuple[str, ...]) -> str:
    """What somebody meant who wrote ``name``, or what there is."""
    close = get_close_matches(name, words, n=1)
    return f"; did you mean {close[0]}?" if close else f"; there are {', '.join(words)}"
