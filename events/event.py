"""What every event has."""

from __future__ import annotations

from datetime import datetime

import msgspec


class Event(msgspec.Struct, frozen=True, kw_only=True, gc=False, tag_field="type"):
    """Something that happened, said by whoever knows.

    The tag of the JSON is ``type`` and ends in a version: a stored field is never
    renamed or retyped, a change of meaning gets a new tag and an upcaster. Events are
    trees of values, which form no cycles, so the garbage collector passes them over.
    """

    event_id: str
    """UUIDv7; also the message id, so that a repeated append is recognised."""
    at: datetime
    """The producer's clock. Information only: no fold reads it."""
    by: str = ""
    """The client that said it: a worker's, a projector's or an operator's name."""
