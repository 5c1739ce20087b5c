"""An import may be killed at any point, and refuses what would mix logs."""

from random import Random

import pytest
from msgspec.structs import replace

from controlplane.archive import (
    Archive,
    ArchiveDamagedError,
    ImportRefusedError,
    export_log,
    import_archive,
)
from controlplane.broker import Outgoing
from controlplane.broker.memory import MemoryServer
from controlplane.clock import SystemClock
from controlplane.errors import (
    AppendOutcomeUnknownError,
    ImportUnfinishedError,
    LogFullError,
)
from controlplane.origin import IMPORTED, RECORDED_AT, Origin
from controlplane.playback import replay_log
from controlplane.playback.ports import replay_ports
from controlplane.projector import service
from controlplane.projector.finding import find
from controlplane.projector.leadership import Leadership
from controlplane.projector.service import ProjectorService
from controlplane.viewfeed import ViewFeed
from tests.support.archived import (
    SETTINGS,
    KilledError,
    LogCell,
    digests,
    lines_of,
    rewrite,
    small_pieces,
)
from tests.support.fleet_builder import claimed, given, poison, registered
from tests.support.waiting import eventually

STORY = given(
    *(registered(f"w{n}") for n in range(20)),
    poison("log.worker.prod.w1", b"\xff\n"),
    *(claimed(f"w{n}", 20000 + n) for n in range(20)),
)
KILLS_OF_IMPORT = 30


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


async def looked_at(cell):
    """As a projector looks at a cell when it starts."""
    return await find(cell.log, ViewFeed(cell.broker, cell.log.names.cell))


async def test_an_import_that_was_killed_anywhere_goes_on(cell, server, path):
    stored = [replace(one, revision=n) for n, one in enumerate(await cell.stored(), 1)]
    chance = Random(30)
    for number in range(KILLS_OF_IMPORT):
        there = await LogCell.made(f"kill-{number}", server)
        there.broker.kill_at = chance.randrange(1, 15)
        there.broker.after = chance.random() < 0.5
        with pytest.raises(KilledError):
            await import_archive(there.broker, there.log, path)
        begun = (await there.log.state()).last_revision
        assert begun < len(stored) or there.broker.after
        if 0 < begun < len(stored):
            with pytest.raises(ImportUnfinishedError, match=f"{begun} of 41 records"):
                await looked_at(there)
            with pytest.raises(ImportUnfinishedError):
                await replay_log(there.log)
        imported = await import_archive(there.broker, there.log, path)
        assert imported.resumed_after == begun
        assert await there.stored() == stored
        await looked_at(there)
    assert digests(await there.records()) == digests(await cell.records())


async def test_lost_answers_store_nothing_twice(cell, other, path):
    other.broker.answers_to_lose = 1
    told = []
    await import_archive(
        other.broker, other.log, path, lambda *reached: told.append(reached)
    )
    assert len(await other.records()) == 41
    assert told[:2] == [(3, 41), (6, 41)]
    assert told[-1] == (41, 41)


async def test_without_any_answer_the_outcome_stays_unknown(other, path, monkeypatch):
    async def silent(*_, **__):
        raise AppendOutcomeUnknownError(subject="s", reason="no answer in time")

    monkeypatch.setattr(other.broker, "store_batch", silent)
    monkeypatch.setattr("controlplane.archive.importing.PATIENCE_S", 0.15)
    with pytest.raises(AppendOutcomeUnknownError):
        await import_archive(other.broker, other.log, path)


async def test_large_records_go_in_smaller_batches(other, path, monkeypatch):
    monkeypatch.setattr("controlplane.archive.importing.BATCH_BYTES_MAX", 1)
    told = []
    await import_archive(
        other.broker, other.log, path, lambda place, _: told.append(place)
    )
    assert told == list(range(1, 42))


async def test_an_import_that_is_complete_is_not_done_again(cell, other, path):
    await import_archive(other.broker, other.log, path)
    imported = await import_archive(other.broker, other.log, path)
    assert imported.resumed_after == imported.manifest.records == 41


async def test_only_an_empty_log_takes_an_archive(cell, other, path, tmp_path):
    with pytest.raises(ImportRefusedError, match="'prod' is not empty: its log is at"):
        await import_archive(cell.broker, cell.log, path)
    await other.tell(given(registered("w")))
    await other.broker.purge_stream(other.log.names.log_stream)
    with pytest.raises(ImportRefusedError, match="its log is at revision 1;"):
        await import_archive(other.broker, other.log, path)


async def test_a_part_of_another_archive_is_named(cell, other, server, path, tmp_path):
    other.broker.kill_at = 5
    with pytest.raises(KilledError):
        await import_archive(other.broker, other.log, path)
    await cell.tell(given(registered("late")))
    second = tmp_path / "second.zst"
    await export_log(cell.log, second)
    with pytest.raises(ImportRefusedError, match="holds 12 of 41 records of another"):
        await import_archive(other.broker, other.log, second)
    await import_archive(other.broker, other.log, path)
    with pytest.raises(ImportRefusedError, match="holds another archive, of 41"):
        await import_archive(other.broker, other.log, second)


async def test_another_writer_is_noticed_before_anything_is_mixed(other, path):
    batches, intruders = other.broker.store_batch, [given(registered("intruder"))]

    async def disturbed(stream, messages, *, timeout_s=None):
        if intruders and other.broker.kill_at == -5:
            await other.tell(intruders.pop())
        return await batches(stream, messages, timeout_s=timeout_s)

    other.broker.store_batch = disturbed
    with pytest.raises(ImportRefusedError, match="at revision 13 instead of 12, with"):
        await import_archive(other.broker, other.log, path)
    records = await other.records()
    assert len(records) == 13
    says = "is not empty: its log holds 12 of 41 records of this archive, and then"
    with pytest.raises(ImportRefusedError, match=says):
        await import_archive(other.broker, other.log, path)
    assert await other.records() == records


async def test_a_projector_in_the_cell_would_expire_what_is_imported(other, path):
    lease = Leadership(other.broker, other.log.names, name="p1", ttl_s=2.0)
    assert await lease.acquire(0.0)
    with pytest.raises(ImportRefusedError, match="projector 'p1' leads cell 'other'"):
        await import_archive(other.broker, other.log, path)
    assert await other.records() == []


async def test_a_projector_waits_for_the_rest_of_an_import(other, path, monkeypatch):
    monkeypatch.setattr(service, "TRUNCATED_AGAIN_S", 0.05)
    other.broker.kill_at = 5
    with pytest.raises(KilledError):
        await import_archive(other.broker, other.log, path)
    async with ProjectorService(
        broker=other.broker,
        log=other.log,
        feed=ViewFeed(other.broker, "other"),
        settings=SETTINGS,
        clock=SystemClock(),
        name="p1",
    ) as projector:
        await eventually(lambda: projector.health.reasons)
        await eventually(lambda: "12 of 41 records" in projector.health.reasons[0])
        assert projector.health.status == "stuck"
        assert not projector.leading
        await import_archive(other.broker, other.log, path)
        await eventually(lambda: projector.leading)
        await eventually(lambda: projector.health.status == "ok")


async def test_nothing_of_a_damaged_archive_is_imported(other, path):
    lines, content = lines_of(path), bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1  # the manifest behind it is sound
    path.write_bytes(content)
    assert (await Archive(path).manifest()).records == 41
    with pytest.raises(ArchiveDamagedError):
        await import_archive(other.broker, other.log, path)
    rewrite(path, *lines[:-2], *lines[-1:])
    with pytest.raises(ArchiveDamagedError, match="the last block has no end"):
        await import_archive(other.broker, other.log, path)
    assert await other.records() == []


async def test_a_full_log_keeps_its_place(other, path, monkeypatch):
    batches = other.broker.store_batch

    async def full(stream, messages, *, timeout_s=None):
        if other.broker.kill_at == -4:
            raise LogFullError(stream=stream, reason="maximum bytes")
        return await batches(stream, messages, timeout_s=timeout_s)

    other.broker.store_batch = full
    with pytest.raises(LogFullError):
        await import_archive(other.broker, other.log, path)
    other.broker.store_batch = batches
    imported = await import_archive(other.broker, other.log, path)
    assert imported.resumed_after == 9


CHECKSUM = "0" * 32
NOW = "2026-01-01T00:00:00+00:00"


async def noise(cell, **headers):
    """A foreign message, with headers that another program may think of."""
    said = {name.replace("_", "-"): text for name, text in headers.items()}
    subject = cell.log.names.absolute("log.worker.prod.w")
    await cell.store(Outgoing(subject=subject, payload=b"", headers=said))


@pytest.mark.parametrize(
    "text",
    [
        *("", "a", "a b c", "a 1 c", "a 1 2 3", "a -1 2", "a 1 2"),
        *(f"{CHECKSUM} 2 3", f"{CHECKSUM} 1 0", f"{CHECKSUM} 1 {'9' * 5000}"),
        *(f"{CHECKSUM} 1 ²", f"{CHECKSUM}  1 2", f"{CHECKSUM} 1 2 "),
    ],
    ids=lambda text: text[-12:],
)
async def test_a_header_that_says_nothing_is_no_import(other, text):
    await noise(other, Cp_Imported=text, Cp_Recorded_At=NOW)
    assert await other.log.origin_at(1) is None
    await looked_at(other)


async def test_a_foreign_header_takes_no_healthy_log_down(cell, tmp_path):
    """Not even one that fits, behind records that were made here."""
    before = digests(await cell.records())
    for text in ("abc 1 2", f"{CHECKSUM} 1 2", f"{CHECKSUM} 44 45"):
        await noise(cell, Cp_Imported=text, Cp_Recorded_At=NOW)
        await looked_at(cell)
        assert (await replay_log(cell.log)).revision == len(await cell.records())
    assert digests(await cell.records())[: len(before)] == before
    await export_log(cell.log, tmp_path / "whole.zst")


async def test_a_part_stays_a_part_whatever_comes_behind_it(other, path, tmp_path):
    """Half a fleet is never taken for the fleet, however many records follow."""
    other.broker.kill_at = 5
    with pytest.raises(KilledError):
        await import_archive(other.broker, other.log, path)
    for behind in range(1, 40):
        await noise(other)
        if behind not in (1, 2, 28, 29, 30, 39):  # 41 records are the archive's
            continue
        says = "holds 12 of 41 records of an archive, and then what others wrote"
        for looking in (
            looked_at(other),
            replay_log(other.log),
            replay_ports(other.broker, other.log),
            export_log(other.log, tmp_path / "part.zst"),
        ):
            with pytest.raises(ImportUnfinishedError, match=says):
                await looking
        with pytest.raises(ImportRefusedError, match="12 of 41 records of this arch"):
            await import_archive(other.broker, other.log, path)
    assert not (tmp_path / "part.zst").exists()


async def test_a_part_is_neither_exported_nor_are_its_ports_shown(other, path):
    other.broker.kill_at = 5
    with pytest.raises(KilledError):
        await import_archive(other.broker, other.log, path)
    with pytest.raises(ImportUnfinishedError, match="12 of 41"):
        await export_log(other.log, path.with_name("part.zst"))
    with pytest.raises(ImportUnfinishedError, match="12 of 41"):
        await replay_ports(other.broker, other.log)
    assert [one.name for one in path.parent.iterdir()] == [path.name]


async def test_a_cell_lives_on_behind_an_import(other, path, tmp_path):
    """Records behind it, and purges of some of it, do not make it a part."""
    await import_archive(other.broker, other.log, path)
    await other.tell(given(registered("late")))
    assert (await replay_log(other.log)).revision == 42
    await export_log(other.log, tmp_path / "more.zst")
    await other.remove("log.port.10%2E0%2E0%2E1.20019")  # the archive's last record
    assert await other.log.at(41) is None
    await looked_at(other)
    await other.remove("log.worker.prod.w0")
    assert (await other.log.state()).first_revision == 2
    await other.log.whole_state()
    await other.broker.purge_stream(other.log.names.log_stream)
    await other.log.whole_state()
    with pytest.raises(ImportRefusedError, match="its log is at revision 42;"):
        await import_archive(other.broker, other.log, path)


async def test_an_archive_of_an_emptied_log_leaves_an_empty_log(cell, other, tmp_path):
    await cell.broker.purge_stream(cell.log.names.log_stream)
    await export_log(cell.log, tmp_path / "empty.zst")
    await import_archive(other.broker, other.log, tmp_path / "empty.zst")
    assert (await other.log.whole_state()).last_revision == 0


@pytest.mark.parametrize(
    "text",
    [
        *("0001-01-01T00:00:00+23:00", "9999-12-31T23:59:59-23:00"),
        *("0001-01-01T00:00:00+00:00", "9999-12-31T23:59:59+00:00"),
        *("1969-12-31T23:59:59+00:00", "2262-01-01T00:00:00Z"),
        *("2026-01-01T00:00:00", "2026-01-01", "12:00", "", "garbage", "x" * 5000),
        *("2026-01-01T00:00:00+24:00", "2026-13-01T00:00:00Z", "\x00"),
    ],
    ids=lambda text: ascii(text)[-30:],
)
async def test_a_time_that_no_broker_recorded_counts_for_nothing(other, text):
    """Neither the projector nor anybody who looks back stumbles over it."""
    origin = Origin(CHECKSUM, 1, 1)
    await noise(other, Cp_Imported=origin.text, Cp_Recorded_At=text)
    stored = await other.broker.get(other.log.names.log_stream, 1)
    (record,) = await other.records()
    assert record.recorded_at == stored.stored_at
    assert (await other.stored())[0].recorded_at == stored.stored_at
    await looked_at(other)


async def test_only_an_imported_record_says_when_it_was_recorded(other):
    """A producer's word on it would let it date what it did at will."""
    for said in ({}, {"Cp_Imported": f"{CHECKSUM} 1 9"}, {"Cp_Imported": "x"}):
        await noise(other, Cp_Recorded_At=NOW, **said)
    first, *rest = [r.recorded_at for r in await other.records()]
    assert [at.isoformat() == NOW for at in (first, *rest)] == [False] * 3
    await noise(other, Cp_Recorded_At=NOW, Cp_Imported=f"{CHECKSUM} 4 9")
    assert (await other.records())[-1].recorded_at.isoformat() == NOW
    assert RECORDED_AT == "Cp-Recorded-At"
    assert IMPORTED == "Cp-Imported"
