"""Claims that nobody waits for any more: settled, so that none of them leaks.

Whoever gives up on an append, or is cancelled in it, does not know whether it is
stored, or will be: a publish that waits in a buffer may land much later. So the same
bytes are repeated until the answer is definite, and what landed is released.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from random import Random
from typing import Any, Final

from controlplane.errors import AppendConflictError
from controlplane.eventlog import Appended, EventLog, Pending
from controlplane.logs import get_logger
from events import ControlPlaneError
from projections import PortBlock

_log = get_logger("ports")

PAUSE_S_MAX: Final = 2.0
PAUSE_S_MIN: Final = 0.1


class Settling:
    """Settles claims in the background until it is closed with its plane.

    ``release`` lets blocks go that landed; ``done`` hears of blocks that are settled.
    Its tasks are its own, for they have to outlive whoever was cancelled. What comes
    after the close is left to its lease, as what was not settled by then.
    """

    def __init__(
        self,
        log: EventLog,
        release: Callable[[Sequence[PortBlock]], Awaitable[None]],
        done: Callable[[Sequence[PortBlock]], None],
        chance: Random,
    ) -> None:
        """Append to ``log``."""
        self._log, self._release, self._done = log, release, done
        self._chance = chance
        # A dict, for its order: what began first is waited for first.
        self._tasks: Final[dict[asyncio.Task[None], Sequence[PortBlock]]] = {}
        self._closed = False

    def adopt(
        self,
        pending: Sequence[Pending],
        blocks: Sequence[PortBlock],
        under_way: asyncio.Future[Appended] | None = None,
    ) -> None:
        """Settle the claim ``pending`` on ``blocks``; ``under_way``: its append is."""
        self._begin(self._settle(pending, blocks, under_way), blocks)

    def let_go(self, blocks: Sequence[PortBlock], then: Callable[[], None]) -> None:
        """Release ``blocks``, however long that takes, and call ``then``."""
        self._begin(self._let_go_and(blocks, then), blocks)

    async def _let_go_and(
        self, blocks: Sequence[PortBlock], then: Callable[[], None]
    ) -> None:
        await self._let_go(blocks)
        then()

    def _begin(
        self, work: Coroutine[Any, Any, None], blocks: Sequence[PortBlock]
    ) -> None:
        if self._closed:
            work.close()
            _leave(blocks)
            return
        task = asyncio.create_task(work)
        self._tasks[task] = blocks
        task.add_done_callback(lambda ended: self._tasks.pop(ended, None))

    async def _settle(
        self,
        pending: Sequence[Pending],
        blocks: Sequence[PortBlock],
        under_way: asyncio.Future[Appended] | None,
    ) -> None:
        try:
            if await self._landed(pending, under_way):
                await self._let_go(blocks)
        finally:
            self._done(blocks)

    async def _landed(
        self,
        pending: Sequence[Pending],
        under_way: asyncio.Future[Appended] | None,
    ) -> bool:
        """Whether the claim is stored, once that is certain."""
        pause_s = PAUSE_S_MIN
        while True:
            try:
                if under_way is None:
                    await self._log.append_all(pending)
                else:
                    await under_way
            except AppendConflictError:
                return False
            except ControlPlaneError as error:
                _log.warning("a claim is in doubt", reason=str(error))
            else:
                return True
            under_way = None
            pause_s = await self._rest(pause_s)

    async def _let_go(self, blocks: Sequence[PortBlock]) -> None:
        pause_s = PAUSE_S_MIN
        while True:
            try:
                await self._release(blocks)
            except ControlPlaneError as error:
                _log.warning("blocks are not released yet", reason=str(error))
                pause_s = await self._rest(pause_s)
            else:
                _log.info(
                    "blocks released late",
                    host=blocks[0].host,
                    ports=[block.start for block in blocks],
                )
                return

    async def _rest(self, pause_s: float) -> float:
        await asyncio.sleep(pause_s * (0.5 + self._chance.random() / 2))
        return min(2 * pause_s, PAUSE_S_MAX)

    async def close(self, within_s: float) -> None:
        """Wait for all, at most so long; then give up: the lease does the rest."""
        loop = asyncio.get_running_loop()
        ends_at = loop.time() + within_s
        try:
            while self._tasks and (left_s := ends_at - loop.time()) > 0:
                await asyncio.wait(tuple(self._tasks), timeout=left_s)
        finally:
            self._closed = True
            left = dict(self._tasks)
            for task in left:
                task.cancel()
        if left:
            _leave([block for blocks in left.values() for block in blocks])
            await asyncio.wait(tuple(left))


def _leave(blocks: Sequence[PortBlock]) -> None:
    _log.warning(
        "ports left to their leases",
        reason="the plane was left before it was certain who holds them",
        blocks=[f"{block.host} {block.start}+{block.size}" for block in blocks],
    )
