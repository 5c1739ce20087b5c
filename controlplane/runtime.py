"""Lifetimes: objects that run in the background between `start` and `stop`."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from types import TracebackType
from typing import Any, Self

from events import ControlPlaneError


class StoppedError(ControlPlaneError):
    """It was stopped before it could be used, or has ended. Stop it, then start it."""

    def __init__(self, *, name: str, reason: str) -> None:
        """Say what (``name``) is not running and the ``reason``."""
        self.name, self.reason = name, reason
        super().__init__(f"{name} does not run: {reason}; start it again to use it")


class Lifetime:
    """Runs `_run` in one task of its own; that task's group owns all others.

    ``async with`` binds the object itself; ``start`` and ``stop`` do the same without
    it. `_run` sets ``self._ready`` when the object may be used, and runs until it is
    cancelled. An error that ends it is kept in ``failure`` and raised by `join`.

    Starts and stops take turns, in the order of their calls. Starts that are called
    together are one, with one outcome. A stop ends the start that it finds, rather
    than wait for it. `_enter` and `_stop` run in such a turn: they call neither
    `start` nor `stop` of their own object.
    """

    def __init__(self) -> None:
        """Prepare; nothing runs yet."""
        self._ready = asyncio.Event()
        self._runner: asyncio.Task[None] | None = None
        self._turn = asyncio.Lock()
        self._attempt: _Attempt | None = None
        self.failure: BaseException | None = None

    async def _run(self, tasks: asyncio.TaskGroup) -> None:
        """Start what runs, set ``self._ready``, and return or go on."""
        raise NotImplementedError

    async def _close(self) -> None:
        """Tidy up after everything that ran has ended."""

    async def start(self) -> Self:
        """Begin; returns when the object may be used. Raises what prevented it.

        That is `StoppedError` if it was stopped meanwhile, or ended by itself before.
        """
        attempt = self._attempt
        if attempt is None or attempt.over:
            attempt = self._attempt = _Attempt(self._start_in_turn())
        if not await attempt.done():
            raise StoppedError(name=type(self).__name__, reason="it was stopped")
        return self

    async def _start_in_turn(self) -> None:
        async with self._turn:
            if self._runner is None:
                try:
                    await self._enter()
                except BaseException:
                    await through_cancellation(self._stop())
                    raise
            elif self._over:
                raise self._reason_of_end

    async def _enter(self) -> None:
        """Run, and return when the object may be used; `_stop` tidies up if not."""
        self._ready, self.failure = asyncio.Event(), None
        self._runner = asyncio.create_task(self._guarded(), name=type(self).__name__)
        ready = asyncio.create_task(self._ready.wait())
        try:
            await asyncio.wait(
                {ready, self._runner}, return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            ready.cancel()
        if not self._ready.is_set():
            raise self._reason_of_end

    @property
    def _over(self) -> bool:
        """Whether it runs no more, or not yet."""
        return self._runner is None or self._runner.done()

    @property
    def _reason_of_end(self) -> BaseException:
        """Why it runs no more, or never did."""
        reason = "it has ended"
        return self.failure or StoppedError(name=type(self).__name__, reason=reason)

    async def stop(self) -> None:
        """End everything that runs and tidy up, cancelled or not. Idempotent."""
        if self._attempt is not None:
            self._attempt.end()
        await through_cancellation(self._stop_in_turn())

    async def _stop_in_turn(self) -> None:
        async with self._turn:
            await self._stop()

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


class _Attempt:
    """One start, however many callers wait for it."""

    def __init__(self, work: Coroutine[Any, Any, None]) -> None:
        self._task = asyncio.create_task(work)
        self._waiting = 0
        self._ending = False

    @property
    def over(self) -> bool:
        """Whether it is too late to join it."""
        return self._ending or self._task.done()

    def end(self) -> None:
        """Have it give up and tidy up."""
        self._ending = True
        self._task.cancel()

    async def done(self) -> bool:
        """Wait for it; whether it came to its end. Raises what prevented it.

        When the last who waits is cancelled, it gives up before that goes on.
        """
        self._waiting += 1
        try:
            await asyncio.wait({self._task})
        except asyncio.CancelledError:
            if self._waiting == 1:
                self.end()
                await through_cancellation(self._ended())
            raise
        finally:
            self._waiting -= 1
        if self._task.cancelled():
            return False
        self._task.result()
        return True

    async def _ended(self) -> None:
        await asyncio.wait({self._task})
        if not self._task.cancelled():
            self._task.exception()  # it is nobody's any more


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
