"""Waiting until a view has moved far enough, or has ended."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from controlplane.errors import LogUnavailableError


class Movement:
    """Wakes those who wait each time that the view moves, and when it ends."""

    def __init__(self, url: str) -> None:
        """Nothing runs yet, nor has moved; errors name ``url``."""
        self._url = url
        self.next = asyncio.Event()
        """Set at the next movement, and then another takes its place."""
        self.ended = True
        """It runs no more, or not yet."""
        self.failure: BaseException | None = None
        """What ended it, if that was not a stop."""

    def wake(self) -> None:
        """It moved."""
        moved, self.next = self.next, asyncio.Event()
        moved.set()

    def begin(self) -> None:
        """It runs."""
        self.ended, self.failure = False, None

    def end(self, failure: BaseException | None = None) -> None:
        """It runs no more."""
        self.ended, self.failure = True, failure
        self.wake()

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until ``condition`` holds. Raises `LogUnavailableError` at the end."""
        while not condition():
            if self.ended:
                failure = self.failure
                why = "not running" if failure is None else f"ended: {failure!r}"
                doing = "waiting for the view"
                raise LogUnavailableError(
                    url=self._url, doing=doing, reason=f"the view is {why}"
                )
            await self.next.wait()


@asynccontextmanager
async def in_time(
    timeout_s: float | None, whereabouts: Callable[[], str]
) -> AsyncIterator[None]:
    """Raise TimeoutError after ``timeout_s``, and say where things stood then."""
    try:
        async with asyncio.timeout(timeout_s) as bound:
            yield
    except TimeoutError as error:
        if not bound.expired():
            raise
        message = f"not within {timeout_s:g} s: {whereabouts()}"
        raise TimeoutError(message) from error
