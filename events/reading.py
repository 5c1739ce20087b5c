"""Reading bytes that anybody may have written: an answer or None, never an error.

Besides what is no JSON or msgpack at all there is what is nested too deeply; msgspec
says so with RecursionError. Whoever decodes foreign bytes goes through here.
"""

from __future__ import annotations

from typing import Final, Protocol, TypeVar

import msgspec

T_co = TypeVar("T_co", covariant=True)

UNREADABLE: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""What a msgspec decoder may raise for bytes that it cannot read."""


class Decoder(Protocol[T_co]):
    """A decoder of msgspec, for JSON or msgpack."""

    def decode(self, buf: bytes, /) -> T_co:
        """What ``buf`` says. Raises `UNREADABLE`."""
        ...


def read_or_none(decoder: Decoder[T_co], payload: bytes) -> T_co | None:
    """What ``payload`` says to ``decoder``; None: nothing that it can read."""
    try:
        return decoder.decode(payload)
    except UNREADABLE:
        return None
