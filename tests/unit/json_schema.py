"""As much of JSON Schema as the events' schema uses; any other keyword is an error."""

import math
from datetime import datetime
from typing import Any

TYPES = {
    "null": lambda v: v is None,
    "string": lambda v: isinstance(v, str),
    "integer": lambda v: isinstance(v, int) and not isinstance(v, bool),
    "number": lambda v: isinstance(v, int | float) and not isinstance(v, bool),
    "array": lambda v: isinstance(v, list),
    "object": lambda v: isinstance(v, dict),
}
SILENT = {"$schema", "$defs", "title", "description", "default", "discriminator"}


def complaints(schema: dict[str, Any], value: Any, root: dict[str, Any]) -> list[str]:
    """What about ``value`` breaks ``schema``; empty: nothing."""
    found: list[str] = []
    for keyword, rule in schema.items():
        if keyword not in SILENT:
            found += _check(keyword, rule, value, root)
    return found


def _check(keyword: str, rule: Any, value: Any, root: dict[str, Any]) -> list[str]:  # noqa: PLR0911 - one for each keyword
    match keyword:
        case "$ref":
            name = rule.removeprefix("#/$defs/")
            return complaints(root["$defs"][name], value, root)
        case "anyOf":
            each = [complaints(option, value, root) for option in rule]
            return [] if not all(each) else [f"none of {len(each)} fits: {each}"]
        case "type":
            return [] if TYPES[rule](value) else [f"{value!r} is no {rule}"]
        case "enum" | "const":
            allowed = rule if keyword == "enum" else [rule]
            return [] if value in allowed else [f"{value!r} is not in {allowed}"]
        case "format":
            assert rule == "date-time"
            datetime.fromisoformat(value)
            return []
        case "minimum" | "maximum":
            low = rule if keyword == "minimum" else -math.inf
            high = rule if keyword == "maximum" else math.inf
            fits = not TYPES["number"](value) or low <= value <= high
            return [] if fits else [f"{value} is not within [{low}, {high}]"]
        case "required":
            return [f"{name} is missing" for name in rule if name not in value]
        case "properties":
            known = {name: value[name] for name in rule if name in value}
            return [c for k, v in known.items() for c in complaints(rule[k], v, root)]
        case "additionalProperties" | "items":
            inner = value.values() if keyword != "items" else value
            return [c for item in inner for c in complaints(rule, item, root)]
        case _:
            message = f"teach this check the keyword {keyword!r}"
            raise NotImplementedError(message)
