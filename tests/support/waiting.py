"""Awaiting a condition with a deadline, in place of sleeping and hoping."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import TypeVar, cast

T = TypeVar("T")

_POLL_S = 0.005


async def eventually(
    condition: Callable[[], T | Awaitable[T]],
    within_s: float = 5.0,
    *,
    but_for: tuple[type[Exception], ...] = (),
    poll_s: float = _POLL_S,
) -> T:
    """Return the condition's first true answer, or fail naming its last one.

    An error of a class in ``but_for`` is no answer yet.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + within_s
    while True:
        try:
            answer = condition()
            if inspect.isawaitable(answer):
                answer = await answer
        except but_for as error:
            told = f"{type(error).__name__}: {error}"
        else:
            if answer:
                return cast("T", answer)
            told = f"the last answer was {answer!r}"
        if loop.time() > deadline:
            message = f"not within {within_s} s; {told}"
            raise AssertionError(message)
        await asyncio.sleep(poll_s)
