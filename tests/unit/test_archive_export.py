"""An export may be killed at any point, and refuses what would mix logs."""

import resource
from contextlib import contextmanager
from random import Random

import pytest

from controlplane.archive import (
    ArchiveBeheadedError,
    ArchiveHistory,
    ExportRefusedError,
    ExportStoppedError,
    export_log,
    import_archive,
    read_archive,
)
from controlplane.archive.frames import frame
from controlplane.archive.writing import ArchiveWriter
from controlplane.broker.memory import MemoryServer
from controlplane.cli.exits import exit_code
from controlplane.errors import HistoryTruncatedError
from controlplane.playback import LogHistory, state_at
from projections import replay
from tests.support.archived import (
    KilledError,
    LogCell,
    edited,
    lines_of,
    rewrite,
    small_pieces,
)
from tests.support.fleet_builder import claimed, given, poison, registered

STORY = given(
    *(registered(f"w{n}") for n in range(20)),
    poison("log.worker.prod.w1", b"\xff\n"),
    *(claimed(f"w{n}", 20000 + n) for n in range(20)),
)
KILLS_OF_EXPORT = 60


@pytest.fixture(autouse=True)
def _many_pieces():
    with small_pieces():
        yield


@pytest.fixture
async def server():
    return MemoryServer()


@pytest.fixture
async def cell(server):
    made = await LogCell.made("prod", server)
    await made.tell(STORY)
    return made


@pytest.fixture
async def other(server):
    return await LogCell.made("other", server)


@pytest.fixture
async def path(cell, tmp_path):
    made = tmp_path / "log.zst"
    await export_log(cell.log, made)
    return made


def part_of(path):
    return path.with_name(f"{path.name}.part")


async def test_an_export_that_was_killed_anywhere_goes_on_to_the_same_file(cell, path):
    lines, content = lines_of(path), path.read_bytes()
    chance = Random(60)
    points = [0, 1, len(content), *(chance.randrange(len(content)) for _ in range(57))]
    assert len(points) == KILLS_OF_EXPORT
    for point in points:
        path.unlink()
        part_of(path).write_bytes(content[:point])
        exported = await export_log(cell.log, path)
        assert lines_of(path)[:-1] == lines[:-1]  # the last one says when it ended
        assert exported.manifest.checksum in lines[-1].decode()
        assert list(read_archive(path)) == await cell.records()
        assert not part_of(path).exists()


async def test_power_may_fail_where_a_kill_would_leave_no_trace(cell, path):
    content, chance = path.read_bytes(), Random(7)
    header = len(frame(lines_of(path)[0]))
    for _ in range(10):
        path.unlink()
        point, hole = chance.randrange(header, len(content)), chance.randrange(200)
        part_of(path).write_bytes(content[: max(header, point - hole)] + bytes(hole))
        await export_log(cell.log, path)
        assert list(read_archive(path)) == await cell.records()


async def test_what_is_in_complete_blocks_is_not_read_again(cell, tmp_path):
    path = tmp_path / "log.zst"
    told = []

    def die(revision, end):
        told.append((revision, end))
        raise KilledError

    with pytest.raises(KilledError):
        await export_log(cell.log, path, die)
    assert told == [(41, 41)]
    exported = await export_log(cell.log, path, lambda *reached: told.append(reached))
    assert exported.resumed_after == 39  # the last block was not complete
    assert len(told) == 2
    assert list(read_archive(path)) == await cell.records()


async def test_what_came_meanwhile_is_in_it_too(cell, path):
    content = path.read_bytes()
    path.unlink()
    part_of(path).write_bytes(content[: len(content) // 2])
    longer = STORY.then(registered("late"))
    later = longer.then()
    later.records, later.payloads = longer.records[-1:], longer.payloads[-1:]
    await cell.tell(later)
    exported = await export_log(cell.log, path)
    assert exported.manifest.last_revision == len(longer)
    assert list(read_archive(path)) == await cell.records()


async def test_a_finished_export_is_not_done_again(cell, path):
    before = path.read_bytes()
    exported = await export_log(cell.log, path)
    assert exported.already
    assert path.read_bytes() == before


async def test_an_export_overwrites_nothing(cell, other, path, tmp_path):
    with pytest.raises(ExportRefusedError, match="there already: an archive of log"):
        await export_log(other.log, path)
    await cell.tell(given(registered("late")))
    with pytest.raises(ExportRefusedError, match="to revision 41, the log is at 42;"):
        await export_log(cell.log, path)
    notes = tmp_path / "notes.txt"
    notes.write_text("mine")
    with pytest.raises(ExportRefusedError, match="not as an archive"):
        await export_log(cell.log, notes)
    part_of(tmp_path / "new").write_text("mine")
    with pytest.raises(ExportRefusedError, match="was not begun by"):
        await export_log(cell.log, tmp_path / "new")
    assert notes.read_text() == part_of(tmp_path / "new").read_text() == "mine"
    newer = part_of(tmp_path / "newer")
    rewrite(newer, edited(lines_of(path)[0], archive=2))
    with pytest.raises(ExportRefusedError, match="was not begun by"):
        await export_log(cell.log, tmp_path / "newer")


@pytest.mark.parametrize("name", ["no/such/directory", "\0", "x" * 300])
async def test_a_name_that_cannot_be_written_is_said(cell, tmp_path, name):
    with pytest.raises(ExportRefusedError, match=r"cannot write .*; name another"):
        await export_log(cell.log, tmp_path / name)


@contextmanager
def room_for(size):
    """No file of this process may grow beyond ``size`` bytes."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.9, 0.999])
async def test_where_room_ends_the_export_says_so_and_goes_on(cell, path, share):
    """Whatever could not be written: the first line, a block, the manifest."""
    lines, size = lines_of(path), path.stat().st_size
    path.unlink()
    part = part_of(path)
    for _ in range(2):  # the second time there is a part already
        with room_for(int(size * share)), pytest.raises(ExportStoppedError) as stopped:
            await export_log(cell.log, path)
        assert f"cannot write {part}: File too large; it keeps" in str(stopped.value)
        assert exit_code(stopped.value) == 75
    await export_log(cell.log, path)
    assert lines_of(path)[:-1] == lines[:-1]


async def test_what_stops_the_last_step_is_said_as_well(cell, tmp_path):
    path = tmp_path / "log.zst"
    with pytest.raises(ExportStoppedError, match="it keeps what is there"):
        await export_log(cell.log, path, lambda *_: path.mkdir(exist_ok=True))
    path.rmdir()
    await export_log(cell.log, path)
    assert list(read_archive(path)) == await cell.records()


async def test_what_is_whole_is_read_as_such(cell, path, tmp_path):
    assert list(read_archive(path)) == await cell.records()
    await cell.broker.purge_stream(cell.log.names.log_stream)
    empty = tmp_path / "empty.zst"
    await export_log(cell.log, empty)
    assert list(read_archive(empty)) == []


async def test_two_exports_do_not_write_one_file(cell, tmp_path):
    path = tmp_path / "log.zst"
    async with ArchiveWriter(path):
        with pytest.raises(ExportRefusedError, match="is writing"):
            await export_log(cell.log, path)
    await export_log(cell.log, path)


async def test_a_part_of_another_history_is_refused(cell, other, path):
    content = path.read_bytes()
    path.unlink()
    part_of(path).write_bytes(content)
    with pytest.raises(ExportRefusedError, match=r"is of log .*, not of"):
        await export_log(other.log, path)
    name = cell.log.names.log_stream
    spec = cell.server.streams[name].spec
    for story, says in (
        (given(registered("w")), "up to revision 41, the log to 1"),
        (given(*[poison("log.worker.prod.w", b"?")] * 41), "another record at"),
    ):
        await cell.broker.delete_stream(name)
        await cell.broker.create_stream(spec)
        await cell.tell(story)
        with pytest.raises(ExportRefusedError, match=says):
            await export_log(cell.log, path)
    assert part_of(path).read_bytes()[:100] == content[:100]


async def test_a_part_whose_last_record_was_purged_is_vouched_for_by_the_one_before(
    cell, path
):
    """A fork is not mixed in because a purge hid where it began."""
    part, content, name = part_of(path), path.read_bytes(), cell.log.names.log_stream
    spec, half = cell.server.streams[name].spec, len(content) // 2
    path.unlink()
    part.write_bytes(content[:half])
    async with ArchiveWriter(path) as writer:
        *_, before, last = writer.last_block
    await cell.remove(last.subject)
    assert await cell.log.at(last.revision) is None
    await export_log(cell.log, path)
    path.unlink()

    def forked(count, worker="w"):
        return given(*[poison(f"log.worker.prod.{worker}", b"?")] * count)

    await cell.broker.delete_stream(name)
    await cell.broker.create_stream(spec)
    await cell.tell(forked(last.revision - 1))
    await cell.tell(forked(1, "gone"))
    await cell.tell(forked(9))
    await cell.remove("log.worker.prod.gone")
    part.write_bytes(content[:half])
    says = f"another record at revision {before.revision};"
    with pytest.raises(ExportRefusedError, match=says):
        await export_log(cell.log, path)
    await cell.broker.purge_stream(name, up_to=last.revision + 1)
    with pytest.raises(ExportRefusedError, match=r"the last 3 records of .*; remove"):
        await export_log(cell.log, path)


async def test_a_purge_between_or_amid_is_noticed(cell, path):
    content, stream = path.read_bytes(), cell.log.names.log_stream
    path.unlink()
    part_of(path).write_bytes(content[: len(content) // 2])
    await cell.broker.purge_stream(stream, up_to=38)
    with pytest.raises(ExportRefusedError, match="begins at revision 38 now"):
        await export_log(cell.log, path)
    part_of(path).unlink()
    reading = cell.log.read_stored

    async def purged(after, until):
        async for batch in reading(after, until):
            yield batch
            await cell.broker.purge_stream(stream, up_to=40)

    cell.log.read_stored = purged
    with pytest.raises(ExportRefusedError, match="purged up to revision 40 while"):
        await export_log(cell.log, path)


async def test_a_log_without_its_beginning_is_kept_but_not_taken_for_whole(
    cell, other, tmp_path
):
    await cell.broker.purge_stream(cell.log.names.log_stream, up_to=20)
    path = tmp_path / "rest.zst"
    exported = await export_log(cell.log, path)
    assert exported.manifest.first_revision == 20
    assert list(read_archive(path, whole=False)) == await cell.records()
    says = "begins at revision 20: .* it can be read .* neither replayed nor imported"
    with pytest.raises(ArchiveBeheadedError, match=says):
        await import_archive(other.broker, other.log, path)
    with pytest.raises(ArchiveBeheadedError, match=says):
        await state_at(await ArchiveHistory.of(path), None)
    with pytest.raises(HistoryTruncatedError, match=says):
        replay(read_archive(path))
    with pytest.raises(HistoryTruncatedError, match="restore the stream"):
        await state_at(LogHistory(cell.log), None)
    assert await other.records() == []
