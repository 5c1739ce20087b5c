"""What the demo's processes have in common: how they begin, speak up and end."""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

import msgspec
import uvloop

from controlplane.logs import configure_logging
from controlplane.runtime import first_of
from events import ControlPlaneError

FAILED: Final = 1

Main: TypeAlias = Callable[[argparse.Namespace, asyncio.Event], Awaitable[None]]
"""Runs until the event is set, which a signal does."""


class Announcement(msgspec.Struct, frozen=True, kw_only=True):
    """The line that a process writes to its standard output when it is up."""

    name: str
    pid: int
    url: str
    """Where it answers over HTTP."""
    namespace: str = ""
    incarnation: str = ""
    source: str = ""
    """Where a router's view came from at first."""
    revision: int = 0
    """Where a worker was registered, or where a router's view began."""


def announce(
    *,
    name: str,
    url: str,
    namespace: str = "",
    incarnation: str = "",
    source: str = "",
    revision: int = 0,
) -> None:
    """Say on standard output that this process is up."""
    line = Announcement(
        name=name,
        pid=os.getpid(),
        url=url,
        namespace=namespace,
        incarnation=incarnation,
        source=source,
        revision=revision,
    )
    sys.stdout.write(msgspec.json.encode(line).decode() + "\n")
    sys.stdout.flush()


def run_process(main: Main, options: argparse.Namespace) -> int:
    """Run ``main`` until it ends or SIGTERM or SIGINT comes; the exit code.

    What it cannot do is said in one line on standard error.
    """
    configure_logging("info", "console")
    try:
        uvloop.run(_run(main, options))
    except (ControlPlaneError, OSError, BaseExceptionGroup) as raised:
        error: BaseException = raised
        if isinstance(raised, BaseExceptionGroup):
            error = first_of(raised)
        if not isinstance(error, ControlPlaneError | OSError):
            raise
        sys.stderr.write(f"{error}\n")
        return FAILED
    return 0


async def _run(main: Main, options: argparse.Namespace) -> None:
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    await main(options, stopping)


async def first_to_end(*waits: Awaitable[object]) -> None:
    """Wait until one of ``waits`` is over; raise what it raised, drop the others."""
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
