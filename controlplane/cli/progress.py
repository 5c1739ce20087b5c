"""How far something long is, for who looks at a terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Final, Self, TextIO

from events import Revision

LONG_S: Final = 1.0
"""What takes longer says how far it is."""
SAY_EVERY_S: Final = 0.2


class Progress:
    """Says on stderr how far a long replay, or whatever it is, has come."""

    def __init__(
        self,
        stream: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
        *,
        doing: str = "replaying",
    ) -> None:
        """Begin now to say what one is ``doing``; ``stream`` is stderr."""
        self._doing = doing
        self._stream, self._clock = stream or sys.stderr, clock
        self._say_at = clock() + LONG_S
        self._said = False

    def __call__(self, revision: Revision, end: Revision) -> None:
        """It is at ``revision`` of ``end``."""
        now = self._clock()
        if now < self._say_at or not self._stream.isatty():
            return
        self._say_at, self._said = now + SAY_EVERY_S, True
        share = revision / end if end else 1.0
        self._stream.write(
            f"\r\x1b[K{self._doing} {revision:,} of {end:,} ({share:.0%})"
        )
        self._stream.flush()

    def __enter__(self) -> Self:
        """Go on."""
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Leave no trace."""
        del kind
        self.clear()

    def clear(self) -> None:
        """Leave no trace."""
        if self._said:
            self._stream.write("\r\x1b[K")
            self._stream.flush()
