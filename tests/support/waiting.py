"""Awaiting a condition with a deadline, in place of sleeping and hoping."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import TypeVar, cast

T = TypeVar("T")

_POLL_S = 0.005


async def eventually(
    condition: Callable[[], T | Awaitable[T]], within_s: float = 5.0
) -> T:
    """Return the condition's first true answer, or fail naming its last one."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + within_s
    while True:
        answer = condition()
        if inspect.isawaitable(answer):
            answer = await answer
        if answer:
            return cast("T", answer)
        if loop.time() > deadline:
            message = f"not within {within_s} s; the last answer was {answer!r}"
            raise AssertionError(message)
        await asyncio.sleep(_POLL_S)
