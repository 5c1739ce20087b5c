"""What an archive promises of itself, and what is said when the file was hurt."""

import json
from random import Random

import pytest

from controlplane.archive import (
    Archive,
    ArchiveDamagedError,
    ArchiveHistory,
    ArchiveMissingError,
    ArchiveNewerError,
    ArchiveTruncatedError,
    ArchiveUnusableError,
    export_log,
    frames,
    read_archive,
)
from controlplane.archive.form import Chain
from controlplane.playback import state_at
from events import UnknownEvent
from projections import replay
from tests.golden.stories import STORIES
from tests.support.archived import (
    LogCell,
    edited,
    lines_of,
    rewrite,
    small_pieces,
)
from tests.support.fleet_builder import given, poison, registered

STORY = given(
    *(registered(f"w{n}") for n in range(8)),
    poison("log.worker.prod.w1", b'{"type":"later.v1"}'),
    poison("log.worker.prod.w2", b"\xff\n"),
)


@pytest.fixture(autouse=True)
def _many_blocks():
    with small_pieces():
        yield


@pytest.fixture
async def cell():
    made = await LogCell.made("prod")
    await made.tell(STORY)
    return made


@pytest.fixture
async def path(cell, tmp_path):
    made = tmp_path / "log.jsonl.zst"
    await export_log(cell.log, made)
    return made


async def test_the_manifest_says_what_the_archive_holds(cell, path):
    manifest = await Archive(path).manifest()
    assert manifest == await Archive(path).verified()
    log_id = (await cell.log.state()).log_id
    assert (manifest.cell, manifest.log_id) == ("prod", log_id)
    assert (manifest.first_revision, manifest.last_revision) == (1, 10)
    assert (manifest.records, manifest.blocks) == (10, 4)
    assert path.stat().st_mode & 0o777 == 0o600
    assert not path.with_name("log.jsonl.zst.part").exists()


async def test_people_and_jq_can_read_it(path):
    header, *lines, ending = map(json.loads, lines_of(path))
    assert header == {
        "archive": 1,
        "cell": "prod",
        "log_id": ending["manifest"]["log_id"],
        "first_revision": 1,
    }
    records = [line for line in lines if "revision" in line]
    assert [line["revision"] for line in records] == list(range(1, 11))
    assert records[0]["event"]["worker_id"] == "w0"
    assert records[0]["recorded_at"] == "2026-01-01T00:00:00Z"
    assert records[8]["payload"] == '{"type":"later.v1"}'
    assert records[9]["payload_base64"] == "/wo="


async def test_a_look_back_needs_no_broker(cell, path):
    history = await ArchiveHistory.of(path)
    records = await cell.records()
    assert list(read_archive(str(path))) == records
    for revision in range(11):
        state = await state_at(history, revision)
        assert state.revision == revision
        assert state.fleet.digest == replay(records, revision).digest
        found = records[revision - 1] if revision else None
        assert await history.at(revision) == found
    assert (state.cell, state.log_id) == ("prod", history.log_id)
    assert isinstance((await history.at(9)).event, UnknownEvent)
    assert await history.at(11) is None
    assert (await history.ends()).last == 10


async def test_an_empty_log_has_an_archive_too(tmp_path):
    cell, path = await LogCell.made(), tmp_path / "empty.zst"
    manifest = (await export_log(cell.log, path)).manifest
    assert (manifest.records, manifest.last_revision) == (0, 0)
    assert list(read_archive(path)) == []
    assert (await state_at(await ArchiveHistory.of(path), None)).revision == 0


async def test_whoever_packs_it_again_has_the_same_archive(cell, path):
    rewrite(path)
    assert frames.find_footer(path.open("rb")) is None
    assert list(read_archive(path)) == await cell.records()
    assert (await ArchiveHistory.of(path)).manifest.records == 10


@pytest.mark.parametrize("story", STORIES.values(), ids=STORIES.keys())
async def test_logs_that_are_kept_for_ever_go_into_an_archive(story, tmp_path):
    story = story()
    cell, path = await LogCell.made(), tmp_path / "log.zst"
    await cell.tell(story)
    await export_log(cell.log, path)
    assert list(read_archive(path)) == await cell.records()


# ---- hurt files ----------------------------------------------------------------------
def readable(path):
    """What can be read before the error, and the error."""
    found = []
    try:
        for record in read_archive(path):
            found.append(record)  # noqa: PERF402 - what came before an error counts
    except ArchiveUnusableError as error:
        return found, error
    return found, None


async def test_wherever_it_was_cut_it_is_called_truncated(cell, path):
    records, content = await cell.records(), path.read_bytes()
    signpost = 16
    for size in range(len(content)):
        path.write_bytes(content[:size])
        found, error = readable(path)
        if size == len(content) - signpost:
            assert (found, error) == (records, None)  # only the signpost is gone
            continue
        assert isinstance(error, ArchiveTruncatedError), size
        assert found == records[: len(found)]
        assert error.after == (found[-1].revision if found else 0)
        with pytest.raises(ArchiveTruncatedError):
            await ArchiveHistory.of(path)


async def test_all_before_the_damage_can_be_read(path):
    content = bytearray(path.read_bytes())
    with path.open("rb") as file:
        ends = [end for _, end in frames.whole_frames(file)]
    content[(ends[2] + ends[3]) // 2] ^= 1
    path.write_bytes(content)
    found, error = readable(path)
    assert len(found) == error.after == 6


async def test_no_byte_can_be_altered_and_believed(cell, path):
    records, content = await cell.records(), path.read_bytes()
    chance = Random(6)
    noticed = 0
    for _ in range(300):
        hurt = bytearray(content)
        place = chance.randrange(len(content) - 16)  # the footer is only a signpost
        hurt[place] ^= 1 << chance.randrange(8)
        path.write_bytes(hurt)
        found, error = readable(path)
        assert found == records[: len(found)]
        assert isinstance(error, ArchiveDamagedError) or found == records
        noticed += error is not None
    assert noticed > 280  # some bits of a frame's header say nothing


@pytest.mark.parametrize("offset", [0, 1, 99, 2**63])
async def test_a_signpost_that_leads_astray_is_not_followed(path, offset):
    content, manifest = path.read_bytes(), await Archive(path).manifest()
    path.write_bytes(content[:-8] + offset.to_bytes(8, "little"))
    assert await Archive(path).manifest() == manifest


def _moved(lines):
    return [*lines[:1], *lines[5:9], *lines[1:5], *lines[9:]]


HURTS = {
    "an altered record": lambda s: [*s[:2], edited(s[2], revision=9), *s[3:]],
    "an altered time": lambda s: [*s[:1], s[1].replace(b"T00:", b"T01:"), *s[2:]],
    "a record less": lambda s: [*s[:2], *s[3:]],
    "a record more": lambda s: [*s[:2], s[2], *s[2:]],
    "a block less": lambda s: [*s[:1], *s[5:]],
    "blocks moved": _moved,
    "the last block less": lambda s: [*s[:13], *s[15:]],
    "an altered mark": lambda s: [*s[:4], edited(s[4], last_revision=9), *s[5:]],
    "another header": lambda s: [edited(s[0], cell="other"), *s[1:]],
    "an altered manifest": lambda s: [
        *s[:-1],
        s[-1].replace(b'"records":10', b'"records":9'),
    ],
    "something behind": lambda s: [*s, b"more\n"],
    "no header": lambda s: s[1:],
    "no archive": lambda _: [b"hello\n"],
    "format 0": lambda s: [edited(s[0], archive=0), *s[1:]],
}


@pytest.mark.parametrize("hurt", HURTS.values(), ids=HURTS.keys())
async def test_lines_that_were_altered_and_packed_again_are_noticed(cell, path, hurt):
    before = lines_of(path)
    lines = hurt(before)
    assert lines != before
    rewrite(path, *lines)
    found, error = readable(path)
    assert isinstance(error, ArchiveDamagedError)
    assert found == (await cell.records())[: len(found)]
    assert error.after == (found[-1].revision if found else 0)


async def test_lines_that_lack_the_end_are_called_truncated(path):
    rewrite(path, *lines_of(path)[:-1])
    assert isinstance(readable(path)[1], ArchiveTruncatedError)
    rewrite(path, *lines_of(path)[:7])
    assert isinstance(readable(path)[1], ArchiveTruncatedError)


async def test_a_block_that_was_forged_with_its_checksum_is_still_read_with_care(path):
    header, line, *_ = lines_of(path)
    for forged, says in ((b'{"revision":1}\n', "recorded_at"), (line * 2, "block 1")):
        count = forged.count(b"\n")
        mark = Chain(header).next(forged, records=count, last_revision=2)
        values = {name: getattr(mark, name) for name in mark.__struct_fields__}
        rewrite(path, header, forged, json.dumps(values).encode() + b"\n")
        marked = lines_of(path)[-1].replace(b'{"block": ', b'{"block":')
        rewrite(path, header, forged, marked)
        found, error = readable(path)
        assert not found
        assert isinstance(error, ArchiveDamagedError)
        assert says in str(error)


async def test_a_format_of_tomorrow_is_named(path):
    lines = lines_of(path)
    rewrite(path, edited(lines[0], archive=2, shards=[1]), *lines[1:])
    with pytest.raises(ArchiveNewerError, match="has format 2, this version reads up"):
        await ArchiveHistory.of(path)


async def test_a_piece_without_end_is_not_unpacked_into_memory(path, monkeypatch):
    header = lines_of(path)[0]
    rewrite(path, header, b" " * 3_000_000)
    monkeypatch.setattr(frames, "FRAME_BYTES_MAX", 1_000_000)
    found, error = readable(path)
    assert not found
    assert "more than 1000000 bytes without a mark" in str(error)


@pytest.mark.parametrize("name", ["nosuch.zst", ".", "\0", "x" * 5000])
async def test_what_is_no_file_is_said(tmp_path, name):
    with pytest.raises(ArchiveMissingError, match="cannot be opened"):
        await ArchiveHistory.of(tmp_path / name)
