"""A long replay begins with the projector's snapshot where that comes to the same."""

from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest

import controlplane as cp
from controlplane import topology
from controlplane.broker import Outgoing
from controlplane.cli.tables import replay_footer
from controlplane.playback import LogHistory, Starts, replay_log, starting, state_at
from projections import Anomalies, FoldState, PlaneState, fold_all
from tests.support.fleet_builder import forked, given, registered
from tests.support.port_cell import END, SETTINGS, STORY, Cell


@pytest.fixture(autouse=True)
def _soon_worth_it(monkeypatch):
    monkeypatch.setattr(starting, "RECORDS_MIN", 1)
    monkeypatch.setattr(starting, "BYTES_A_RECORD", 1 << 20)


@pytest.fixture
async def cell():
    made = Cell()
    await made.broker.start()
    await topology.init(made.broker, "default", SETTINGS)
    await made.tell(STORY)
    yield made
    await made.broker.stop()


async def played(cell, until=None):
    """The state at ``until``, and where it began."""
    cell.broker.afters.clear()
    history = await LogHistory.of(cell.log, Starts(cell.log, cell.broker))
    state = (await state_at(history, until)).fold_state
    assert history.started_at in {0, *cell.broker.afters, state.revision}
    return state, history.started_at


def whole(until=END, story=STORY):
    return fold_all(FoldState(), story[:until])


# ---- where it comes to the same ------------------------------------------------------
@pytest.mark.parametrize("at", range(1, END + 1))
async def test_from_any_snapshot_any_later_moment_is_the_same(cell, at):
    await cell.snapshot(at)
    for until in range(END + 1):
        state, began = await played(cell, until)
        assert state == whole(until)
        assert began == (at if until >= at else 0)
    assert await played(cell) == (whole(), at)


async def test_a_moment_before_the_latest_snapshot_begins_with_the_one_before(cell):
    for at in (3, 6, 9):
        await cell.snapshot(at)
    assert await played(cell, 12) == (whole(12), 9)
    assert await played(cell, 8) == (whole(8), 6)
    assert await played(cell, 5) == (whole(5), 0), "two are kept"


async def test_a_short_log_is_folded_from_its_first_record(cell, monkeypatch):
    await cell.snapshot(END)
    monkeypatch.setattr(starting, "RECORDS_MIN", END + 1)
    assert await played(cell) == (whole(), 0)
    monkeypatch.setattr(starting, "RECORDS_MIN", 1)
    monkeypatch.setattr(starting, "BYTES_A_RECORD", 1)
    assert await played(cell) == (whole(), 0), "a large snapshot of few records"


async def test_a_replay_that_is_to_prove_something_folds_every_record(cell):
    await cell.snapshot(END)
    cell.broker.afters.clear()
    assert (await replay_log(cell.log)).fold_state == whole()
    assert cell.broker.afters == [0]


async def test_a_time_and_an_event_are_looked_for_from_the_first_record_on(cell):
    await cell.snapshot(6)
    tenth = STORY[9]
    for moment in (tenth.recorded_at, tenth.event.event_id):
        assert await played(cell, moment) == (whole(10), 0)
    naive = tenth.recorded_at.replace(tzinfo=None)
    assert (await replay_log(cell.log, naive)).fold_state == whole(10)
    assert (await played(cell, timedelta(0)))[1] == 0


# ---- where it would not --------------------------------------------------------------
@pytest.mark.parametrize(
    "changes",
    [
        {"log_id": "another"},
        {"fold_version": 2},
        {"fingerprint": "another record"},
        {"revision": END + 1},
        {"rest": msgspec.Raw(b"\x80")},
        {"fleet": ()},
        {"anomalies": Anomalies(skipped_tags=frozenset({"port_claimed.v1"}))},
        {"pointer": {"checksum": "0" * 32}},
        {"pointer": {"base": 7}},
    ],
    ids=lambda changes: next(iter(changes)),
)
async def test_a_snapshot_that_does_not_fit_is_not_used(cell, changes):
    await cell.snapshot(END, **changes)
    assert await played(cell) == (whole(), 0)
    assert await played(cell, 7) == (whole(7), 0)


async def test_a_pointer_that_says_less_is_not_believed(cell):
    await cell.snapshot(END, pointer={"revision": 5})
    assert await played(cell, 7) == (whole(7), 0)


async def test_an_older_snapshot_that_is_damaged_is_not_used(cell):
    await cell.snapshot(6)
    pointer = await cell.feed.snapshot_pointer()
    await cell.snapshot(9)
    stream = cell.log.names.snapshot_stream
    chunk = cell.log.names.snapshot_chunk(pointer.snapshot_id, 0)
    await cell.broker.store(stream, Outgoing(subject=chunk, payload=b"half"))
    assert await played(cell, 8) == (whole(8), 0)


async def test_another_log_is_folded_by_itself(cell):
    await cell.snapshot(END)
    other = given(forked("b"), *(registered(f"w{n}") for n in range(END + 2)))
    await cell.lose(other)
    assert await played(cell) == (whole(len(other), other), 0)


async def test_what_was_removed_from_the_log_is_not_told_by_a_snapshot(cell):
    """S47b. Both know less than was; but a replay says what the log says."""
    await cell.snapshot(END)
    await cell.purge_port(20007)
    left = [record for record in STORY if not record.subject.endswith(".20007")]
    assert await played(cell) == (fold_all(FoldState(), left), 0)


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
    assert await played(cell) == (whole(), 0)


async def test_a_snapshot_that_does_not_come_is_not_waited_for(cell, monkeypatch):
    await cell.snapshot(END)
    monkeypatch.setattr(starting, "PATIENCE_S", 0.05)
    cell.broker.hangs = {cell.log.names.snapshot_stream}
    assert await played(cell) == (whole(), 0)


async def test_without_a_stream_of_snapshots_there_is_none(cell):
    await cell.broker.delete_stream(cell.log.names.snapshot_stream)
    assert await played(cell) == (whole(), 0)


# ---- and it is said ------------------------------------------------------------------
@pytest.mark.parametrize("width", [60, 100])
def test_a_table_says_which_snapshot_it_was_folded_on_from(width):
    state = PlaneState(whole())
    assert len(replay_footer(state, width)) + 1 == len(replay_footer(state, width, 6))
    said = replay_footer(state, width, 6)[-1].plain
    assert said.startswith("folded on from the snapshot at revision 6")
    assert len(said) <= width
    assert said.endswith("--no-snapshot") == (width == 100)
