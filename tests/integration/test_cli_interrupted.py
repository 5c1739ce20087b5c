"""Ctrl-C ends what reads a long archive, at once and without a traceback."""

import asyncio
import os
import signal
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import pytest

from controlplane.archive.form import FORMAT, Header
from controlplane.archive.writing import ArchiveWriter
from events import StoredRecord, encode, subject_of
from tests.support.commands import registration, running
from tests.support.waiting import eventually

LONG = 120_000
START = datetime(2026, 1, 1, tzinfo=UTC)
WORKER = "prod/w0"
LOOKING_BACK = {
    "replay": ("replay",),
    "diff": ("diff", "3", str(LONG)),
    "bisect": ("bisect", "--first", f"revision > {LONG}"),
    "stats": ("log", "stats"),
    "verify": ("log", "verify"),
    "tail": ("log", "tail", "--worker", WORKER),
    "explain": ("explain", WORKER),
}


@pytest.fixture(scope="module")
def long_archive(tmp_path_factory):
    """A hundred workers, again and again: made in a second, read in another."""
    path = tmp_path_factory.mktemp("long") / "log.jsonl.zst"
    asyncio.run(_write(path))
    return path


async def _write(path: Path) -> None:
    events = [registration(f"w{number}") for number in range(100)]
    told = [(subject_of(event), encode(event)) for event in events]
    header = Header(archive=FORMAT, cell="prod", log_id="long", first_revision=1)
    async with ArchiveWriter(path) as writer:
        writer.begin(header)
        for before in range(0, LONG, len(told)):
            numbered = enumerate(told, before + 1)
            writer.add([StoredRecord(n, START, *stored) for n, stored in numbered])
        writer.finish(LONG, START)


def _share_read(process, path: Path) -> float:
    """How much of the file a process has read; 0 when it has not opened it."""
    for descriptor in Path(f"/proc/{process.pid}/fd").iterdir():
        if descriptor.resolve() == path:
            told = Path(f"/proc/{process.pid}/fdinfo/{descriptor.name}").read_text()
            return int(told.split()[1]) / path.stat().st_size
    return 0.0


async def _amid(process, path: Path) -> None:
    """Wait until it is amid the file: at the beginning it looks at the end, too."""
    await eventually(
        lambda: 0.25 < _share_read(process, path) < 0.75,
        within_s=20,
        but_for=(FileNotFoundError,),  # it opened or closed another file just now
        poll_s=0.0005,
    )


@pytest.mark.parametrize("words", LOOKING_BACK.values(), ids=LOOKING_BACK.keys())
async def test_whatever_reads_an_archive_ends_at_a_signal(long_archive, words):
    async with running(*words, "--from-archive", str(long_archive)) as command:
        await _amid(command.process, long_archive)
        async with asyncio.timeout(2):
            ended = await command.end()
    assert (ended.code, ended.out, ended.err) == (130, "", "")


async def test_an_impatient_second_signal_leaves_no_traceback_either(long_archive):
    async with running("replay", "--from-archive", str(long_archive)) as command:
        process = command.process
        await _amid(process, long_archive)

        def ended():
            if process.returncode is None:
                with suppress(ProcessLookupError):  # nobody was told of its end yet
                    os.kill(process.pid, signal.SIGINT)
            return process.returncode is not None

        await eventually(ended, within_s=2)
        out, err = await process.communicate()
    assert (out, err) == (b"", b"")
    assert process.returncode in (130, -signal.SIGINT)  # 130 to a shell


async def test_a_command_that_is_still_starting_ends_as_quietly(long_archive):
    async with running("replay", "--from-archive", str(long_archive)) as command:
        maps = Path(f"/proc/{command.process.pid}/maps")
        await eventually(lambda: "msgspec" in maps.read_text(), poll_s=0.0005)
        ended = await command.end()
    assert (ended.code, ended.out, ended.err) == (130, "", "")
