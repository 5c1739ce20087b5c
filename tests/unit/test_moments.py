"""Moments are said in one word, and each means one state of the log."""

from datetime import UTC, datetime, timedelta

import pytest

from controlplane.errors import HistoryTruncatedError
from controlplane.playback import (
    EventNotFoundError,
    MomentAheadError,
    MomentInvalidError,
    MomentTooEarlyError,
    parse_moment,
    state_at,
)
from events import Status
from projections import replay
from tests.support.fleet_builder import (
    SECOND,
    START,
    given,
    registered,
    status,
)
from tests.support.histories import StoryHistory

STORY = given(*(registered(f"w{n}") for n in range(5)), status("w1", Status.DRAINING))
HISTORY = StoryHistory(STORY)


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("0", 0),
        ("812", 812),
        ("20260131", 20_260_131),
        ("2026-01-31", datetime(2026, 1, 31, tzinfo=UTC)),
        ("2026-01-31T12:00:00", datetime(2026, 1, 31, 12, tzinfo=UTC)),
        ("2026-01-31T13:00:00+01:00", datetime(2026, 1, 31, 12, tzinfo=UTC)),
        ("-10m", timedelta(minutes=-10)),
        ("-90s", timedelta(seconds=-90)),
        ("-2h", timedelta(hours=-2)),
        ("-1d", timedelta(days=-1)),
        (
            "019AE2B4-0000-7000-8000-00000000000A",
            "019ae2b4-0000-7000-8000-00000000000a",
        ),
    ],
)
def test_a_word_means_a_moment(text, moment):
    assert parse_moment(text) == moment


def test_a_name_of_a_file_means_the_file(tmp_path):
    path = tmp_path / "router.ckpt"
    path.write_bytes(b"")
    assert parse_moment(str(path)) == path


@pytest.mark.parametrize(
    "text",
    [
        *("", "-5", "10m", "yesterday", "no/such/file", "/", "2026-13-01"),
        *("-99999999999d", f"-{'9' * 5000}s", "9" * 5000),
        *("²", "\0", "x" * 5000, "g" * 36),
    ],
    ids=lambda text: text[:12],
)
def test_any_other_word_is_refused_with_the_forms(text):
    with pytest.raises(MomentInvalidError, match="a revision, a time as"):
        parse_moment(text)


@pytest.mark.parametrize("size", [1, 2, 3, 100])
async def test_each_kind_of_moment_finds_its_state(size):
    history = StoryHistory(STORY, size=size, now=START + 10 * SECOND)
    for record in STORY:
        at = record.recorded_at
        moments = [record.revision, at, at + SECOND / 2, record.event.event_id]
        moments.append(at - history.now)
        for moment in moments:
            state = await state_at(history, moment)
            assert state.revision == record.revision
            assert state.fleet.digest == replay(STORY, record.revision).digest
    assert (await state_at(history, None)).revision == len(STORY)
    assert (await state_at(history, 0)).revision == 0


async def test_a_time_after_the_end_is_the_end():
    assert (await state_at(HISTORY, START + 99 * SECOND)).revision == len(STORY)


async def test_without_a_clock_the_last_record_is_the_end():
    state = await state_at(HISTORY, timedelta(seconds=-2))
    assert state.revision == len(STORY) - 2


async def test_a_revision_in_a_hole_shows_what_was_before_it():
    history = StoryHistory([*STORY[:2], *STORY[4:]])
    assert (await state_at(history, 4)).revision == 2


async def test_what_is_not_there_is_said():
    with pytest.raises(MomentAheadError, match="ends at revision 6, before 7"):
        await state_at(HISTORY, 7)
    with pytest.raises(MomentTooEarlyError, match="first record, of 2026-01-01T00"):
        await state_at(HISTORY, START - SECOND)
    with pytest.raises(MomentTooEarlyError, match="is before the log's first record"):
        await state_at(HISTORY, timedelta(days=-999_999))
    with pytest.raises(EventNotFoundError, match="up to revision 6"):
        await state_at(HISTORY, "019ae2b4-0000-7000-8000-00000000000a")
    with pytest.raises(HistoryTruncatedError, match="begins at revision 3"):
        await state_at(StoryHistory(STORY[2:]), None)


async def test_an_empty_log_has_one_state_at_every_time():
    empty = StoryHistory([])
    for moment in (None, 0, START, timedelta(seconds=-1)):
        assert (await state_at(empty, moment)).revision == 0
    with pytest.raises(MomentAheadError, match="ends at revision 0, before 1"):
        await state_at(empty, 1)


async def test_progress_is_told_batch_by_batch():
    told = []
    await state_at(HISTORY, 5, lambda revision, end: told.append((revision, end)))
    assert told == [(3, 5), (5, 5)]
