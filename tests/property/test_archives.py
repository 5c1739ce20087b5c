"""An archive says what the log said: record by record, byte by byte, digest by digest.

And import after export is the identity, but for the numbers of the records.
"""

import asyncio
import tempfile
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from controlplane.archive import (
    ArchiveHistory,
    export_log,
    import_archive,
    read_archive,
)
from controlplane.broker.memory import MemoryServer
from tests.property.logs import SUBJECTS, logs
from tests.support.archived import LogCell, digests, small_pieces


@given(logs(), st.none() | SUBJECTS, st.integers(1, 9))
def test_import_after_export_is_the_identity(story, removed, size):
    with small_pieces(size), tempfile.TemporaryDirectory() as directory:
        asyncio.run(_there_and_back(story, removed, Path(directory) / "log.zst"))


async def _there_and_back(story, removed, path):
    server = MemoryServer()
    one, other = await LogCell.made("one", server), await LogCell.made("two", server)
    await one.tell(story)
    if removed is not None and len(story) > 1 and removed != story[0].subject:
        await one.remove(removed)
    whole = (await one.log.state()).first_revision == 1
    records, stored = await one.records(), await one.stored()
    exported = await export_log(one.log, path)
    assert list(read_archive(path)) == records
    assert exported.manifest.records == len(records)
    history = await ArchiveHistory.of(path)
    middle = len(story) // 2
    rest = [r async for batch in history.batches(middle, len(story)) for r in batch]
    assert rest == [record for record in records if record.revision > middle]
    if not whole:
        return
    await import_archive(other.broker, other.log, path)
    numbered = range(1, len(stored) + 1)
    assert await other.stored() == [
        replace(one, revision=n) for n, one in zip(numbered, stored, strict=True)
    ]
    assert _but_for_numbers(await other.records()) == _but_for_numbers(records)
    assert digests(await other.records()) == digests(records)


def _but_for_numbers(records):
    return [replace(record, revision=1) for record in records]
