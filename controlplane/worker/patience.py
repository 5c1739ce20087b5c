"""How long a command waits for the log: for a broker that is away not very long."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, TypeVar

from controlplane.broker import Broker
from controlplane.settings import Settings

T = TypeVar("T")


class Patience:
    """The limits of waiting for one worker's answers."""

    def __init__(
        self, broker: Broker, settings: Settings, in_doubt: Callable[[], bool]
    ) -> None:
        """``in_doubt`` says whether something was sent that may yet be stored."""
        self._broker: Final = broker
        self._connect_s: Final = settings.connect_timeout_s
        self._append_s: Final = settings.append_timeout_s
        self._in_doubt: Final = in_doubt

    async def wait(self, answer: asyncio.Future[T]) -> T:
        """The answer, or what it raises. Raises `TimeoutError` for none in time.

        That is ``append_timeout_s``, but ``connect_timeout_s`` from the moment on at
        which the broker is away and nothing is in doubt.
        """
        loop = asyncio.get_running_loop()
        last = loop.time() + self._append_s

        def until() -> float:
            if self._broker.connected or self._in_doubt():
                return last
            return min(last, loop.time() + self._connect_s)

        async with asyncio.timeout_at(until()) as limit:

            def changed(connected: bool) -> None:  # noqa: FBT001
                del connected
                if not limit.expired():
                    limit.reschedule(until())

            stop_listening = self._broker.on_connection(changed)
            try:
                return await answer
            finally:
                stop_listening()
