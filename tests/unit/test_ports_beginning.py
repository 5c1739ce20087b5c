"""A first look begins with the projector's snapshot where that pays and is safe."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

import controlplane as cp
from controlplane import topology
from controlplane.ports import beginning, reading
from projections import (
    Anomalies,
    HostPorts,
)
from tests.support.fleet_builder import (
    claimed,
    forked,
    given,
    released,
)
from tests.support.port_cell import BRIEF, END, HOST, SETTINGS, STORY, Cell, told
from tests.support.waiting import eventually


@pytest.fixture(autouse=True)
def _soon_worth_it(monkeypatch):
    monkeypatch.setattr(beginning, "RECORDS_MIN", 0)
    monkeypatch.setattr(beginning, "BYTES_A_RECORD", 1 << 20)
    monkeypatch.setattr(reading, "LONG", 1)


@pytest.fixture
async def cell():
    made = Cell()
    await made.broker.start()
    await topology.init(made.broker, "default", SETTINGS)
    await made.tell(STORY)
    yield made
    await made.broker.stop()


# ---- where that pays -----------------------------------------------------------------
@pytest.mark.parametrize("at", range(1, END + 1))
async def test_a_snapshot_and_the_tail_are_what_the_whole_log_says(cell, at):
    await cell.snapshot(at)
    await cell.watch.look()
    assert cell.watch.known == told(STORY)
    assert cell.broker.afters == ([] if at == END else [at])
    await cell.tell(given(released(20009), claimed("w7", 20010)))
    await cell.watch.look()
    assert [cell.watch.known.expected(port) for port in (20009, 20010)] == [15, 16]


async def test_a_short_log_is_read_from_its_beginning(cell, monkeypatch):
    await cell.snapshot(END)
    monkeypatch.setattr(beginning, "RECORDS_MIN", END + 1)
    await cell.watch.look()
    assert cell.broker.afters == [0]
    assert cell.watch.known == told(STORY)


async def test_few_records_of_a_long_log_are_read_from_its_beginning(cell, monkeypatch):
    await cell.snapshot(END)
    of_host = sum(record.subject.startswith("log.port.10") for record in STORY)
    monkeypatch.setattr(beginning, "RECORDS_MIN", of_host + 1)
    assert of_host + 1 < END
    await cell.watch.look()
    assert cell.broker.afters == [0]


async def test_a_snapshot_that_spares_less_than_it_costs_is_left(cell, monkeypatch):
    await cell.snapshot(END)
    monkeypatch.setattr(beginning, "BYTES_A_RECORD", 10)
    await cell.watch.look()
    assert cell.broker.afters == [0]


async def test_a_snapshot_behind_what_is_known_is_left(cell):
    await cell.watch.look()
    await cell.snapshot(3)
    await cell.tell(given(claimed("w7", 20010)))
    await cell.watch.look()
    assert cell.broker.afters == [0, END]


async def test_who_looked_long_ago_goes_on_from_the_snapshot(cell):
    await cell.watch.look()
    more = STORY.then(released(20009), claimed("w7", 20010), claimed("w8", 20011))
    await cell.lose(more)
    await cell.snapshot(END + 2, more)
    await cell.watch.look()
    assert cell.broker.afters == [0, END + 2]
    assert cell.watch.known == told(more)


# ---- where it is not safe ------------------------------------------------------------
@pytest.mark.parametrize(
    "changes",
    [
        {"log_id": "another"},
        {"fold_version": 2},
        {"fingerprint": "another record"},
        {"revision": END + 1},
        {"rest": msgspec.Raw(b"\x80")},
        {"pointer": {"checksum": "0" * 32}},
        {"pointer": {"base": 7}},
    ],
    ids=lambda changes: next(iter(changes)),
)
async def test_a_snapshot_that_does_not_fit_is_not_used(cell, changes):
    await cell.snapshot(END, **changes)
    await cell.watch.look()
    assert cell.broker.afters == [0]
    assert cell.watch.known == told(STORY)
    await cell.purge(3)
    with pytest.raises(cp.HistoryTruncatedError):
        await cell.another().look()


async def test_a_maker_who_knew_less_is_not_believed(cell):
    anomalies = Anomalies(skipped_tags=frozenset({"port_claimed.v1"}))
    await cell.snapshot(END, anomalies=anomalies)
    await cell.watch.look()
    assert cell.broker.afters == [0]


async def test_a_record_that_was_purged_vouches_for_nothing_and_denies_nothing(cell):
    await cell.purge_port(20009)
    await cell.snapshot(END)
    await cell.watch.look()
    assert cell.broker.afters == []
    assert cell.watch.known == told(STORY)


@pytest.mark.parametrize(
    "failure",
    [
        cp.SettingsError(field="permissions", value="it", rule="allowed"),
        cp.LogUnavailableError(url="nats://x", doing="reading"),
        TimeoutError(),
    ],
    ids=lambda error: type(error).__name__,
)
async def test_a_snapshot_that_cannot_be_read_is_done_without(cell, failure):
    await cell.snapshot(END)
    cell.broker.fails[cell.log.names.snapshot_stream] = failure
    await cell.watch.look()
    assert cell.broker.afters == [0]
    assert cell.watch.known == told(STORY)


async def test_who_waits_too_long_for_a_snapshot_reads_the_log(cell):
    await cell.snapshot(END)
    cell.broker.hangs = {cell.log.names.snapshot_stream}
    watch = cell.another(BRIEF)
    await watch.look()
    assert cell.broker.afters == [0]
    assert watch.known == told(STORY)
    watch = cell.another()
    looking = asyncio.create_task(watch.look())
    await eventually(lambda: cell.broker.hung == 2)
    looking.cancel()
    await asyncio.wait([looking])
    await watch.look()
    assert cell.broker.hung == 2
    assert cell.broker.afters == [0]


async def test_without_a_stream_of_snapshots_there_is_none(cell):
    await cell.broker.delete_stream(cell.log.names.snapshot_stream)
    await cell.watch.look()
    assert cell.watch.known == told(STORY)
    await cell.purge(3)
    with pytest.raises(cp.HistoryTruncatedError):
        await cell.another().look()


async def test_what_is_asked_anew_is_read_from_the_log(cell):
    """The snapshot knows records that were removed; the log does not."""
    await cell.snapshot(END)
    await cell.watch.look()
    await cell.purge_port(20001)
    assert 20001 in cell.watch.known.ports
    await cell.watch.look(anew=True)
    assert cell.broker.afters == [0]
    assert 20001 not in cell.watch.known.ports


# ---- a log that was replaced, cut or purged ------------------------------------------
async def test_a_log_that_lost_what_the_snapshot_knew_is_read_anew(cell):
    await cell.snapshot(END)
    await cell.watch.look()
    await cell.lose(given(claimed("w1", 20000, 3)))
    await cell.watch.look()
    assert cell.watch.known == told(given(claimed("w1", 20000, 3)))
    assert cell.broker.afters == [0]


async def test_records_of_others_behind_the_host_s_last_are_no_loss_but_theirs_is(cell):
    more = STORY.then(claimed("w9", 20000, host="a third"))
    await cell.lose(more)
    await cell.snapshot(END + 1, more)
    for _ in range(3):
        await cell.watch.look()
    assert cell.broker.afters == []
    assert cell.watch.known == told(STORY)
    await cell.lose(STORY)
    await cell.watch.look()
    assert cell.broker.afters == [0]
    assert cell.watch.known == told(STORY)


async def test_a_log_that_went_another_way_is_read_anew(cell):
    await cell.snapshot(8)
    await cell.watch.look()
    other = given(forked("b"), *(claimed("w9", 20000 + n) for n in range(END + 2)))
    await cell.lose(other)
    await cell.watch.look()
    assert cell.broker.afters == [8, 0]
    assert cell.watch.known == told(other)


async def test_another_log_is_another_table_though_a_snapshot_was_read(cell):
    await cell.snapshot(END)
    await cell.watch.look()
    await cell.broker.delete_stream(cell.log.names.log_stream)
    await topology.init(cell.broker, "default", SETTINGS)
    await cell.watch.look()
    assert cell.watch.known == HostPorts(host=HOST)


@pytest.mark.parametrize("at", range(1, END + 1))
async def test_a_snapshot_that_reaches_what_is_left_vouches_for_the_rest(cell, at):
    await cell.snapshot(at)
    whole = told(STORY)
    for first in range(2, END + 2):
        await cell.purge(first)
        watch = cell.another()
        if at < first - 1:
            with pytest.raises(cp.HistoryTruncatedError) as refused:
                await watch.look()
            assert refused.value.first == first
            assert not watch.looked
            continue
        for _ in range(2):
            await watch.look(anew=True)
            assert watch.known.ports == whole.ports
            left = {port: r for port, r in whole.revisions.items() if r >= first}
            assert dict(watch.known.revisions) == left, "on a purged subject is nothing"


async def test_what_is_purged_while_it_is_read_the_snapshot_tells(cell):
    async def purging() -> None:
        await cell.snapshot(6)
        await cell.purge(6)

    cell.broker.first_batch = purging
    await cell.watch.look()
    assert cell.broker.afters == [0, 6]
    assert cell.watch.known.ports == told(STORY).ports


async def test_a_purged_log_says_why_its_snapshot_is_not_read(cell):
    await cell.snapshot(END)
    await cell.purge(5)
    failure = cp.SettingsError(field="permissions", value="it", rule="allowed")
    cell.broker.fails[cell.log.names.snapshot_stream] = failure
    with pytest.raises(cp.SettingsError):
        await cell.watch.look()
    failure = cp.LogUnavailableError(url="nats://x", doing="reading")
    cell.broker.fails[cell.log.names.snapshot_stream] = failure
    with pytest.raises(cp.LogUnavailableError):
        await cell.another(BRIEF).look()
