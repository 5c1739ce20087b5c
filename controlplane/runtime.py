"""Lifetimes: objects that run in the background between `start` and `stop`."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from types import TracebackType
from typing import Any, Self


class Lifetime:
    """Runs `_run` in one task of its own; that task's group owns all others.

    ``async with`` binds the object itself; ``start`` and ``stop`` do the same without
    it. `_run` sets ``self._ready`` when the object may be used, and runs until it is
    cancelled. An error that ends it is kept in ``failure`` and raised by `join`.
    """

    def __init__(self) -> None:
        """Prepare; nothing runs yet."""
        self._ready = asyncio.Event()
        self._runner: asyncio.Task[None] | None = None
        self.failure: BaseException | None = None

    async def _run(self, tasks: asyncio.TaskGroup) -> None:
        """Start what runs, set ``self._ready``, and return or go on."""
        raise NotImplementedError

    async def _close(self) -> None:
        """Tidy up after everything that ran has ended."""

    async def start(self) -> Self:
        """Begin; returns when the object may be used. Raises what prevented it."""
        if self._runner is not None:
            return self
        self._ready.clear()
        self.failure = None
        self._runner = asyncio.create_task(self._guarded(), name=type(self).__name__)
        ready = asyncio.create_task(self._ready.wait())
        try:
            await asyncio.wait(
                {ready, self._runner}, return_when=asyncio.FIRST_COMPLETED
            )
        except asyncio.CancelledError:
            await self.stop()
            raise
        finally:
            ready.cancel()
        if self.failure is not None and not self._ready.is_set():
            await self.stop()
            raise self.failure
        return self

    async def stop(self) -> None:
        """End everything that runs and tidy up, cancelled or not. Idempotent."""
        await through_cancellation(self._stop())

    async def _stop(self) -> None:
        runner, self._runner = self._runner, None
        if runner is None:
            return
        runner.cancel()
        await asyncio.wait({runner})
        await self._close()

    async def join(self) -> None:
        """Wait until it ends by itself. Raises what ended it."""
        if self._runner is not None:
            await asyncio.wait({self._runner})
        if self.failure is not None:
            raise self.failure

    async def _guarded(self) -> None:
        try:
            async with asyncio.TaskGroup() as tasks:
                await self._run(tasks)
        except asyncio.CancelledError:
            return
        except BaseExceptionGroup as group:
            self.failure = first_of(group)
        except Exception as error:  # noqa: BLE001 - kept, and raised by start or join
            self.failure = error

    async def __aenter__(self) -> Self:
        """Start."""
        return await self.start()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Stop."""
        await self.stop()


async def through_cancellation(work: Coroutine[Any, Any, None]) -> None:
    """Finish ``work`` whoever cancels meanwhile, then let the cancellation go on."""
    task = asyncio.create_task(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError as error:
            if task.cancelled():
                raise
            cancelled = error
    if cancelled is not None:
        raise cancelled
    task.result()


def first_of(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The first error in a group that is not a group itself."""
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
