"""Whether the view stream still is what it was: by what it holds, not by its length.

The fence of a publish is a number, the stream's last sequence. A stream that lost its
tail and grew again passes it, with other messages under the same numbers. Nobody says
so: but a broker that loses something went away first, so whoever lost contact doubts,
and publishes and compares nothing until a look at the stream's leader has shown the
last message that he knew.

What remains: a message may only be on its way while there is contact, so one that is
refused or unanswered leads to a look too. A stream whose broker is reached through
another one may come and go unnoticed until the reader of the stream notices; and of a
stream that was emptied meanwhile nothing but its length is left to compare.
"""

from __future__ import annotations

import msgspec

from .effects import LookAtView


class _Asked(msgspec.Struct, frozen=True):
    view_end: int
    payload: bytes | None


class Footing:
    """The last message of the view stream that is known, and whether it is doubted."""

    def __init__(self, view_seq: int, payload: bytes | None) -> None:
        """Stand on the message at ``view_seq``; None: it is not known."""
        self._view_seq, self._payload = view_seq, payload
        self._asked: _Asked | None = None
        self.doubted = False
        """Whether contact was lost since the last look began."""

    @property
    def looking(self) -> bool:
        """Whether a `LookAtView` is without an answer."""
        return self._asked is not None

    @property
    def sure(self) -> bool:
        """Whether one may go on from here."""
        return not self.doubted and not self.looking

    def stand_on(self, view_seq: int, payload: bytes) -> None:
        """A later message is known; in doubt the earlier one is what tells."""
        if view_seq > self._view_seq and not self.doubted:
            self._view_seq, self._payload = view_seq, payload

    def look(self, view_end: int) -> list[LookAtView]:
        """Look whether the stream still reaches ``view_end`` and holds what it did."""
        if self._asked is not None:
            return []
        self.doubted = False
        self._asked = _Asked(view_end, self._payload)
        return [LookAtView(self._view_seq if self._payload is not None else None)]

    def what_is_lost(self, last_sequence: int, payload: bytes | None) -> str | None:
        """What the answer to `LookAtView` shows to be lost; None: nothing.

        ``payload``: of the message asked for; None: the stream no longer holds it.
        """
        asked, self._asked = self._asked, None
        if asked is None:
            return None
        if last_sequence < asked.view_end:
            return "the view stream lost its tail"
        if payload is not None and payload != asked.payload:
            return "the view stream lost its tail and grew another"
        return None
