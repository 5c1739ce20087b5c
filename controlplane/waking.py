"""Sleep that can be cut short: for shells whose cores say when time is next due."""

from __future__ import annotations

import asyncio
import math
from typing import Final

from .clock import Clock

NAP_S_MIN: Final = 0.001
"""A timer may fire a little before its time: so long until it is asked again."""


class Nap:
    """One sleeper. Costs one timer each time, as a plain sleep does; none for ever."""

    def __init__(self, clock: Clock) -> None:
        """Sleep by ``clock``."""
        self._clock = clock
        self._sleeper: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._until = math.inf

    async def until(self, at: float) -> None:
        """Sleep until ``at``, or what `not_after` says meanwhile; infinity: for ever.

        It may end a little early. It always takes a moment, so that others get a turn.
        """
        self._sleeper = asyncio.get_running_loop().create_future()
        try:
            self._set(at)
            await self._sleeper
        finally:
            self._unset()
            self._sleeper = None

    def not_after(self, at: float) -> None:
        """Whoever sleeps now sleeps until ``at`` at most; if nobody does, nothing."""
        sleeper = self._sleeper
        if sleeper is not None and at < self._until and not sleeper.done():
            self._unset()
            self._set(at)

    def _set(self, at: float) -> None:
        self._until = at
        if at < math.inf and self._sleeper is not None:
            loop = self._sleeper.get_loop()
            delay_s = max(at - self._clock.monotonic(), NAP_S_MIN)
            self._timer = loop.call_later(delay_s, _wake, self._sleeper)

    def _unset(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _wake(sleeper: asyncio.Future[None]) -> None:
    if not sleeper.done():
        sleeper.set_result(None)
