"""Taking turns: the event loop goes on while a file is read, block after block.

A file is read without waiting for anybody. Who reads one in an event loop reads it
through here: else no signal would be noticed before its end, and nobody stopped.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Generator
from contextlib import closing
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


async def in_turns(
    batches: Generator[list[T], None, None],
) -> AsyncGenerator[list[T], None]:
    """Yield those of ``batches`` that hold anything; others run after each of all."""
    with closing(batches):
        for batch in batches:
            if batch:
                yield batch
            await asyncio.sleep(0)


async def at_the_end(steps: Generator[object, None, R]) -> R:
    """What ``steps`` returns; others run after each of them."""
    with closing(steps):
        while True:
            try:
                next(steps)
            except StopIteration as end:
                result: R = end.value
                return result
            await asyncio.sleep(0)
