"""Batches of one process that go to the log together.

An atomic batch costs the broker several writes to its disk, whatever its size, and it
does one at a time. So what is to be appended while a batch is under way waits for its
end and then goes as one; a claim that comes alone goes at once. If one of them lost a
race the log refuses all, and then each is tried by itself.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from controlplane.errors import AppendConflictError
from controlplane.eventlog import Appended, Pending

EVENTS_MAX: Final = 400
"""So many events go together; a larger batch goes alone."""


class _Waiting:
    """A batch that is to be appended, and whoever waits for it."""

    __slots__ = ("answer", "pending")

    def __init__(self, pending: Sequence[Pending]) -> None:
        self.pending = pending
        self.answer: asyncio.Future[Appended] = (
            asyncio.get_running_loop().create_future()
        )


class Together:
    """Appends batches by ``append``, in the order of their coming."""

    def __init__(
        self, append: Callable[[Sequence[Pending]], Awaitable[Appended]]
    ) -> None:
        """Nothing is under way."""
        self._append = append
        self._waiting: Final[deque[_Waiting]] = deque()
        self._task: asyncio.Task[None] | None = None

    def append(self, pending: Sequence[Pending]) -> asyncio.Future[Appended]:
        """The answer to ``pending``, all of it or none; as that of `append_all`.

        It comes whether anybody waits for it or not. One event goes by itself, for
        that is cheap.
        """
        if len(pending) == 1:
            return asyncio.ensure_future(self._append(pending))
        waiting = _Waiting(pending)
        self._waiting.append(waiting)
        if self._task is None:
            self._task = asyncio.create_task(self._run())
        return waiting.answer

    async def _run(self) -> None:
        try:
            while self._waiting:
                await self._append_all(self._next())
        finally:
            self._task = None

    def _next(self) -> list[_Waiting]:
        batch = [self._waiting.popleft()]
        events = len(batch[0].pending)
        while self._waiting:
            events += len(self._waiting[0].pending)
            if events > EVENTS_MAX:
                break
            batch.append(self._waiting.popleft())
        return batch

    async def _append_all(self, batch: Sequence[_Waiting]) -> None:
        events = [one for waiting in batch for one in waiting.pending]
        try:
            done = await self._append(events)
        except AppendConflictError as conflict:
            if len(batch) == 1:
                _fail(batch, conflict)
                return
            for waiting in batch:
                await self._append_all([waiting])
        except BaseException as error:
            # What kept all of them from the log is told to each.
            _fail(batch, error)
            if not isinstance(error, Exception):
                raise
        else:
            end = done.revision - len(events)
            for waiting in batch:
                end += len(waiting.pending)
                if not waiting.answer.done():
                    waiting.answer.set_result(Appended(end))


def _fail(batch: Sequence[_Waiting], error: BaseException) -> None:
    for waiting in batch:
        if waiting.answer.done():
            continue
        if isinstance(error, asyncio.CancelledError):
            waiting.answer.cancel()
        else:
            waiting.answer.set_exception(error)
