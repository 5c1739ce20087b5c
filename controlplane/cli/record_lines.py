"""One record, whole, as lines. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec
from rich.cells import cell_len
from rich.text import Text

from events import Record, Undecodable, UnknownEvent

from .columns import cut
from .records import POISON, record_parts
from .sizes import byte_size
from .tables import FAINT
from .wrapping import wrapped

NAMES: Final = 14
"""How wide the names of fields are, at least."""
REASON_MAX: Final = 200
PAYLOAD_MAX: Final = 800
"""So many bytes of what nobody can read are shown."""


def record_lines(record: Record, width: int) -> Iterator[Text]:
    """Where it stands and what it says, a field a line; the unreadable as its bytes."""
    kind, who, _ = record_parts(record)
    yield Text(f"{kind.plain} of {who}", style=kind.style or "bold")
    fields: dict[str, Any] = {
        "revision": record.revision,
        "recorded_at": f"{record.recorded_at:%F %T.%f} UTC",
        "subject": record.subject,
    }
    event = record.event
    if not isinstance(event, UnknownEvent | Undecodable):
        fields |= msgspec.to_builtins(event)
        for name, value in fields.items():
            yield from _field(name, value, width)
        return
    for name, value in fields.items():
        yield from _field(name, value, width)
    reason = event.reason if isinstance(event, Undecodable) else f"tag {event.tag}"
    yield from _field("unreadable", cut(reason, REASON_MAX), width, style=POISON)
    yield from _field("payload", byte_size(len(event.payload)), width)
    said = _text(event.payload[:PAYLOAD_MAX])
    yield from wrapped(said, width, indent="  ", style=FAINT)
    if len(event.payload) > PAYLOAD_MAX:
        yield Text("  … all of it: -o json", style=FAINT)


def _field(name: str, value: object, width: int, style: str = "") -> Iterator[Text]:
    """A field beside its name; what is longer goes on below."""
    said = value if isinstance(value, str) else _json(value)
    label = f"{name:<{NAMES}}  "
    first, *rest = wrapped(said, width, indent=" " * cell_len(label), style=style)
    yield Text(label, style=FAINT).append(first.plain[len(label) :], style=style)
    yield from rest


def _json(value: object) -> str:
    """On one line, with room to wrap it."""
    return msgspec.json.format(msgspec.json.encode(value), indent=0).decode()


def _text(payload: bytes) -> str:
    """Bytes as text, the rest of them escaped."""
    return payload.decode(errors="backslashreplace")
