"""Whoever reads an archive lets others have their turn, block after block.

Without that a signal is noticed when all is read: nobody could stop it.
"""

import asyncio

import pytest

from controlplane.archive import (
    Archive,
    ArchiveHistory,
    export_log,
    import_archive,
)
from controlplane.playback import Selection, Sieve, last_selected, state_at
from tests.support.archived import LogCell, rewrite, small_pieces
from tests.support.fleet_builder import given, poison

RECORDS = 60
BLOCKS = 20
TURNS = BLOCKS - 2
"""At least: none is needed before the first block and after the last."""


@pytest.fixture(autouse=True)
def _many_blocks():
    with small_pieces():
        yield


@pytest.fixture
async def cell():
    made = await LogCell.made("prod")
    await made.tell(given(*[poison("log.worker.prod.w", b"?")] * RECORDS))
    return made


@pytest.fixture
async def path(cell, tmp_path):
    made = tmp_path / "log.jsonl.zst"
    await export_log(cell.log, made)
    return made


async def turns_during(reading):
    """How often others had their turn while ``reading`` was awaited."""
    turns = 0

    async def others():
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    ticking = asyncio.ensure_future(others())
    await reading
    ticking.cancel()
    return turns


async def drained(batches):
    async for _ in batches:
        pass


async def test_a_manifest_that_must_be_looked_for_takes_turns(path):
    rewrite(path)  # it has no footer now
    assert await turns_during(ArchiveHistory.of(path)) >= TURNS
    assert await turns_during(Archive(path).verified()) >= TURNS


READINGS = {
    "folding it": lambda history: state_at(history, None),
    "its payloads": lambda history: drained(history.stored()),
    "its last record": lambda history: history.at(RECORDS),
    "no more than its end": lambda history: drained(history.batches(RECORDS - 1)),
    "its tail": lambda history: last_selected(history, Sieve(Selection()), 1),
}


@pytest.mark.parametrize("reading", READINGS.values(), ids=READINGS.keys())
async def test_a_look_back_takes_turns(path, reading):
    assert await turns_during(reading(await ArchiveHistory.of(path))) >= TURNS


async def test_an_import_takes_turns_before_it_writes_and_where_it_passes_over(path):
    other = await LogCell.made("other")
    await import_archive(other.broker, other.log, path)
    again = import_archive(other.broker, other.log, path)
    assert await turns_during(again) >= 2 * TURNS


async def test_an_export_that_goes_on_takes_turns(cell, path):
    part = path.with_name(f"{path.name}.part")
    part.write_bytes(path.read_bytes()[:-20])  # all but the end of the manifest
    path.unlink()
    assert await turns_during(export_log(cell.log, path)) >= TURNS


async def test_who_is_told_to_stop_amid_an_archive_stops_there(cell, path):
    seen = 0

    async def read():
        nonlocal seen
        async for records in (await ArchiveHistory.of(path)).batches():
            seen += len(records)
            asyncio.current_task().cancel()

    with pytest.raises(asyncio.CancelledError):
        await asyncio.ensure_future(read())
    assert seen == RECORDS // BLOCKS
