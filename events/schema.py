"""The events as JSON Schema, for producers in other languages."""

from __future__ import annotations

from typing import Any

import msgspec

from .record import AnyEvent


def json_schema() -> dict[str, Any]:
    """A JSON Schema (2020-12) that every event's payload satisfies."""
    (schema,), components = msgspec.json.schema_components(
        [AnyEvent], ref_template="#/$defs/{name}"
    )
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Events of the control plane's log",
        **schema,
        "$defs": components,
    }
