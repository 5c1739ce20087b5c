"""``replay --step``: walking through a log in a terminal."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import termios
import tty
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from rich.text import Text

from controlplane.playback import PointInTime, Walk, state_at
from events import Revision

from .exits import OK, UsageError
from .histories import opened_history
from .keys import Keys
from .lens import Lens
from .options import Listing
from .printing import Screen
from .progress import Progress
from .running import run
from .walker import Walker

ENTER: Final = "\x1b[?1049h\x1b[?25l"
"""To a screen of its own, without a cursor; what was there comes back."""
LEAVE: Final = "\x1b[?25h\x1b[?1049l"
ESCAPE_S: Final = 0.15
"""So long may the rest of a key be on its way, also over a slow ssh."""
READ_BYTES: Final = 1024
REDRAW: Final = b"\x0c"
NO_KEY: Final = b"\0"
COLUMNS: Final = 80
LINES: Final = 24
"""Of a terminal that does not know its size."""


def walk(
    until: PointInTime | None,
    from_archive: Path | None,
    lens: Lens,
    options: Listing,
) -> int:
    """Walk through the log, from ``until`` or its first record. Raises `UsageError`."""
    if options.output != "table":
        message = f"output {options.output!r} is not valid with --step: it is a screen"
        raise UsageError(message)
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        message = (
            "--step needs a terminal; for a program: controlplane log tail -o ndjson"
        )
        raise UsageError(message)
    if os.environ.get("TERM", "") in ("", "dumb"):
        message = (
            "--step needs a terminal with a cursor, and TERM says that it has none"
        )
        raise UsageError(message)
    return run(lambda: _walk(until, from_archive, lens, options), options)


async def _walk(
    until: PointInTime | None,
    from_archive: Path | None,
    lens: Lens,
    options: Listing,
) -> int:
    async with opened_history(options, from_archive) as history:
        with Progress() as progress:
            at: Revision | None = None
            if until is not None:
                at = (await state_at(history, until, progress)).revision
            steps = Walk(history, progress)
            await steps.begin(at)
        walker = Walker(steps, lens)
        with _own_screen():
            await _serve(walker)
    return OK


async def _serve(walker: Walker) -> None:
    """Draw, wait for keys, do what they say, until it is enough."""
    loop, keys = asyncio.get_running_loop(), Keys()
    typed: asyncio.Queue[bytes] = asyncio.Queue(maxsize=READ_BYTES)
    descriptor = sys.stdin.fileno()
    loop.add_reader(descriptor, lambda: _read(descriptor, typed))
    loop.add_signal_handler(signal.SIGWINCH, lambda: _put(typed, REDRAW))
    try:
        while True:
            _draw(walker.screen(*_size()))
            for key in await _next(typed, keys):
                if not await walker.press(key):
                    return
    finally:
        loop.remove_reader(descriptor)
        loop.remove_signal_handler(signal.SIGWINCH)


async def _next(typed: asyncio.Queue[bytes], keys: Keys) -> list[str]:
    """What was pressed next. The end of the input is a way to leave, too."""
    try:
        async with asyncio.timeout(ESCAPE_S if keys.is_open else None):
            received = await typed.get()
    except TimeoutError:
        return keys.close()
    return keys.feed(received) if received else ["quit"]


def _read(descriptor: int, typed: asyncio.Queue[bytes]) -> None:
    try:
        received = os.read(descriptor, READ_BYTES)
    except OSError:  # the terminal is gone
        received = b""
    _put(typed, received)


def _put(typed: asyncio.Queue[bytes], received: bytes) -> None:
    if not typed.full():
        typed.put_nowait(received)


def _size() -> tuple[int, int]:
    """The terminal's own; ``COLUMNS`` and ``LINES`` do not follow when it changes."""
    size = os.get_terminal_size(sys.stdout.fileno())
    return size.columns or COLUMNS, size.lines or LINES


def _draw(lines: list[Text]) -> None:
    """The whole screen in one write, so that it does not flicker."""
    console = Screen()
    drawn: list[str] = []
    for line in lines:
        with console.capture() as capture:
            console.print(line, end="", soft_wrap=True)
        drawn.append(capture.get())
    sys.stdout.write("\x1b[H" + "\x1b[K\r\n".join(drawn) + "\x1b[K\x1b[J")
    sys.stdout.flush()


@contextmanager
def _own_screen() -> Iterator[None]:
    """Keys one by one, on another screen; all as it was afterwards, come what may."""
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    sys.stdout.write(ENTER)
    sys.stdout.flush()
    try:
        tty.setcbreak(descriptor)
        _disable_suspending(descriptor)
        yield
    finally:
        termios.tcsetattr(descriptor, termios.TCSANOW, before)
        sys.stdout.write(LEAVE)
        sys.stdout.flush()


def _disable_suspending(descriptor: int) -> None:
    """Ctrl-Z would leave the shell on a screen that is not its own."""
    attributes = termios.tcgetattr(descriptor)
    attributes[-1][termios.VSUSP] = NO_KEY
    termios.tcsetattr(descriptor, termios.TCSANOW, attributes)
