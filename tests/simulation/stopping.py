"""Being told to stop: SIGINT and SIGTERM, remembered until somebody looks.

This is imported before anything that takes long, so it imports next to nothing.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final, Self

SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


class Stop:
    """The first signal is remembered; the second raises `KeyboardInterrupt`."""

    def __init__(self) -> None:
        self.signal: signal.Signals | None = None
        self._before: dict[int, Any] = {}
        self._at_once = False

    def __enter__(self) -> Self:
        self._before = {each: signal.signal(each, self._note) for each in SIGNALS}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number: int, _frame: FrameType | None) -> None:
        is_second = self.signal is not None
        self.signal = self.signal or signal.Signals(number)
        if is_second or self._at_once:
            raise KeyboardInterrupt

    @property
    def asked(self) -> bool:
        """Whether a signal came."""
        return self.signal is not None

    @contextmanager
    def at_once(self) -> Iterator[None]:
        """What looks for no signal is interrupted by the first, also by an earlier."""
        self._at_once = True
        try:
            if self.asked:
                raise KeyboardInterrupt
            yield
        finally:
            self._at_once = False

    @property
    def exit_code(self) -> int:
        """What a shell expects of a process that a signal ended; 0 if none came."""
        return 0 if self.signal is None else 128 + self.signal


STOP: Final = Stop()
"""Signals are the process's, and so is this."""
