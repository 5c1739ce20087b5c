"""``replay --step`` in a real terminal: a pty with a size, and nobody to render it."""

import asyncio
import fcntl
import os
import pty
import re
import signal
import struct
import termios
from contextlib import asynccontextmanager

import pytest

from controlplane.archive import export_log
from tests.golden.stories import STORIES
from tests.support.archived import LogCell
from tests.support.commands import COMMAND, OURS, ROOT, spawn

PATIENCE_S = 20.0
BREAKS = re.compile("\r*\n")
CONTROLS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


@pytest.fixture
async def archive(tmp_path):
    cell = await LogCell.made("default")
    await cell.tell(STORIES["rolling_update"]())
    path = tmp_path / "log.jsonl.zst"
    await export_log(cell.log, path)
    return str(path)


class Terminal:
    """The other end of a pty, on which a command runs."""

    def __init__(self, descriptor, process):
        self._descriptor, self.process = descriptor, process
        self.raw, self._changed = "", asyncio.Event()
        asyncio.get_running_loop().add_reader(descriptor, self._read)

    def _read(self):
        try:
            received = os.read(self._descriptor, 65536)
        except OSError:
            received = b""
        if not received:
            asyncio.get_running_loop().remove_reader(self._descriptor)
        self.raw += received.decode(errors="replace")
        self._changed.set()

    def type(self, keys):
        """Forget what was drawn, and hit these keys."""
        self.raw = ""
        os.write(self._descriptor, keys.encode())

    def resize(self, columns, lines):
        self.raw = ""
        size = struct.pack("HHHH", lines, columns, 0, 0)
        fcntl.ioctl(self._descriptor, termios.TIOCSWINSZ, size)
        self.process.send_signal(signal.SIGWINCH)

    async def shows(self, text, *, height=24):
        """Wait until a screen of this height with this text was drawn; its lines."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                for screen in reversed(self.raw.split("\x1b[H")):
                    lines = BREAKS.split(CONTROLS.sub("", screen))
                    whole = screen.endswith("\x1b[J") and len(lines) == height
                    if whole and any(text in line for line in lines):
                        return lines
                self._changed.clear()
                await self._changed.wait()

    async def ends(self):
        async with asyncio.timeout(PATIENCE_S):
            code = await self.process.wait()
        attributes = termios.tcgetattr(self._descriptor)
        assert attributes[3] & termios.ICANON, "the terminal is as it was"
        assert attributes[3] & termios.ECHO
        return code


@asynccontextmanager
async def terminal(*arguments, columns=80, lines=24, **environ):
    """Run ``controlplane ARGUMENTS`` on a pty of this size."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
    inherited = {k: v for k, v in os.environ.items() if k not in OURS}
    process = await asyncio.create_subprocess_exec(
        *COMMAND,
        *arguments,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env={**inherited, "TERM": "xterm-256color", **environ},
        cwd=ROOT,
        start_new_session=True,
    )
    try:
        yield Terminal(ours, process)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        asyncio.get_running_loop().remove_reader(ours)
        os.close(ours)
        os.close(theirs)


async def test_a_log_is_walked_through_with_keys(archive):
    async with terminal("replay", "--step", "--from-archive", archive) as screen:
        await screen.shows("revision 1 of 26")
        assert "\x1b[?1049h" in screen.raw, "a screen of its own"
        screen.type("\x1b[C\x1b[C")
        assert "+ prod/w1 comes: ready" in await screen.shows("revision 3 of 26")
        assert "\x1b[32m" in screen.raw, "in colour"
        screen.type("\x1a\x1b[F")
        await screen.shows("revision 26 of 26")  # not stopped by Ctrl-Z
        screen.type("\x1bOD")
        await screen.shows("revision 25 of 26")
        screen.type("/expired\r")
        await screen.shows("is not in any record behind")
        screen.type("NN")
        await screen.shows("revision 20 of 26")
        screen.type("N")
        lines = await screen.shows("revision 19 of 26")
        assert "- prod/w2 goes: ready" in lines
        screen.resize(60, 10)
        small = await screen.shows("revision 19 of 26", height=10)
        assert max(map(len, small)) <= 60
        screen.type("?")
        await screen.shows("any key: back", height=10)
        screen.type("x")
        await screen.shows("revision 19 of 26", height=10)
        screen.type("\x1b")
        assert await screen.ends() == 0
        assert screen.raw.endswith("\x1b[?25h\x1b[?1049l"), "what was there comes back"


async def test_without_colour_marks_tell_and_a_signal_leaves_all_as_it_was(archive):
    arguments = ("replay", "--step", "--from-archive", archive, "--until", "12")
    async with terminal(*arguments, columns=60, NO_COLOR="1") as screen:
        lines = await screen.shows("revision 12 of 26")
        assert "~ prod/w1 status ready -> draining" in lines
        assert any(line.startswith("~  prod/w1") for line in lines)
        assert not re.search(r"\x1b\[[0-9;]*3[0-7]m", screen.raw)
        screen.process.send_signal(signal.SIGTERM)
        assert await screen.ends() == 128 + signal.SIGTERM
        assert screen.raw.endswith("\x1b[?25h\x1b[?1049l")


async def test_a_terminal_that_cannot_be_drawn_on_is_refused(archive):
    arguments = ("replay", "--step", "--from-archive", archive)
    async with terminal(*arguments, TERM="dumb") as screen:
        assert await screen.ends() == 64
        assert "TERM says that it has none" in screen.raw


@pytest.mark.parametrize("arguments", ["tail --since 1", "stats", "verify"])
async def test_whoever_stops_reading_ends_it_quietly(arguments, archive):
    read_end, write_end = os.pipe()
    os.close(read_end)
    where = ("--from-archive", archive)
    process = await spawn("log", *arguments.split(), *where, stdout=write_end)
    os.close(write_end)
    async with asyncio.timeout(PATIENCE_S):
        _, err = await process.communicate()
    assert err == b""
    assert process.returncode == 0
