"""Running a command: the event loop, logging, and signals."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Callable, Coroutine
from typing import Any, Final

import uvloop

from controlplane.logs import configure_logging

from .exits import OK
from .options import Common, LogLevel

SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
SIGNALLED: Final = 128


def run(
    work: Callable[[], Coroutine[Any, Any, int]],
    options: Common,
    *,
    endless: bool = False,
    own_signals: bool = False,
    log_level: LogLevel | None = None,
) -> int:
    """Run ``work`` in an event loop of its own; the exit code is what it returns.

    SIGINT and SIGTERM cancel it; it tidies up and the process ends: with 0 when it is
    ``endless`` (that is how such a command ends), else as the shell expects. A second
    signal cuts the tidying up short. With ``own_signals`` the work minds them itself.
    """
    # Who waits for one answer gets one line when there is none.
    usual: LogLevel = log_level or ("warning" if endless else "error")
    style = "console" if sys.stderr.isatty() else "json"
    configure_logging(options.log_level or usual, style)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        if own_signals:
            return runner.run(work())
        return runner.run(_until_signalled(work(), endless=endless))


async def _until_signalled(work: Coroutine[Any, Any, int], *, endless: bool) -> int:
    loop = asyncio.get_running_loop()
    task = asyncio.ensure_future(work)
    received: list[int] = []

    def stop(number: int) -> None:
        received.append(number)
        task.cancel()

    for number in SIGNALS:
        loop.add_signal_handler(number, stop, number)
    try:
        return await task
    except asyncio.CancelledError:
        if not received:
            raise
        return OK if endless else SIGNALLED + received[0]
