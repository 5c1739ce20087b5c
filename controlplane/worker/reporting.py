"""Load reports: the latest is sent, at a pace, and nobody waits for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import msgspec

from controlplane.broker import Broker
from controlplane.loads import LoadReport, encode_load
from controlplane.logs import get_logger
from events import ControlPlaneError, Incarnation

_log = get_logger("worker")


class LoadReporter:
    """Sends what one worker says of its load.

    A report that comes while another waits replaces it: an engine may speak at every
    step, and routers with thousands of workers still listen.
    """

    def __init__(self, broker: Broker, every_s: float) -> None:
        """Send through ``broker``, one report in ``every_s`` at most."""
        self._broker, self._every_s = broker, every_s
        self._news: Final = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._load: LoadReport | None = None
        self._task: asyncio.Task[None] | None = None

    def start(
        self,
        tasks: asyncio.TaskGroup,
        subject: str,
        incarnation: Callable[[], Incarnation],
    ) -> None:
        """Send on ``subject``, for the life that it is then, until stopped."""
        self._load, self._loop = None, asyncio.get_running_loop()
        self._task = tasks.create_task(self._run(subject, incarnation))

    def stop(self) -> None:
        """Send no more. Idempotent."""
        self._loop = None
        if self._task is not None:
            self._task.cancel()

    def report(self, load: LoadReport) -> None:
        """Have ``load`` sent soon; dropped while nothing runs. From any thread."""
        loop = self._loop
        if loop is not None:
            self._load = load
            with suppress(RuntimeError):  # it was closed just now
                loop.call_soon_threadsafe(self._news.set)

    async def _run(self, subject: str, incarnation: Callable[[], Incarnation]) -> None:
        while True:
            await self._news.wait()
            self._news.clear()
            load, self._load = self._load, None
            if load is not None:
                await self._send(subject, load, incarnation())
                await asyncio.sleep(self._every_s)

    async def _send(self, subject: str, load: LoadReport, life: Incarnation) -> None:
        """A report that cannot be sent is dropped: the next is better anyway."""
        report = msgspec.structs.replace(load, incarnation=life)
        try:
            await self._broker.publish(subject, encode_load(report))
        except ControlPlaneError as error:
            _log.debug("load not reported", reason=str(error))
