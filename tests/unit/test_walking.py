"""The records up to a moment are those that the state at it was folded of."""

from datetime import timedelta

import pytest

from controlplane.errors import HistoryTruncatedError
from controlplane.playback import (
    EventId,
    EventNotFoundError,
    MomentAheadError,
    MomentTooEarlyError,
    records_to,
    state_at,
)
from projections import FoldState, fold_all
from tests.support.fleet_builder import (
    START,
    claimed,
    draining,
    given,
    poison,
    registered,
)
from tests.support.histories import StoryHistory

STORY = given(
    registered("w1"),
    claimed("w1", 20000, 5),
    poison("log.worker.prod.w1", b"[]"),
    draining("w1"),
)
MOMENTS = [
    None,
    0,
    1,
    5,
    8,
    START,
    START + timedelta(seconds=4.5),
    START + timedelta(days=1),
    timedelta(seconds=-3),
    EventId(STORY[0].event.event_id),
    EventId(STORY[4].event.event_id),
    EventId(STORY[7].event.event_id),
]


@pytest.mark.parametrize("moment", MOMENTS, ids=str)
@pytest.mark.parametrize("size", [1, 3, 8])
async def test_folding_them_is_the_state(moment, size):
    history, said = StoryHistory(STORY, size=size), []
    records = [
        record
        async for batch in records_to(history, moment, lambda *at: said.append(at))
        for record in batch
    ]
    assert (
        fold_all(FoldState(), records) == (await state_at(history, moment)).fold_state
    )
    assert not records or said[-1][0] == records[-1].revision


@pytest.mark.parametrize(
    ("moment", "error"),
    [
        (9, MomentAheadError),
        (START - timedelta(seconds=1), MomentTooEarlyError),
        (timedelta(days=-1), MomentTooEarlyError),
        (EventId("0190aaaa-0000-7000-8000-000000000000"), EventNotFoundError),
    ],
)
async def test_they_end_with_the_same_errors(moment, error):
    history = StoryHistory(STORY)
    with pytest.raises(error) as one:
        await state_at(history, moment)
    with pytest.raises(error) as two:
        _ = [batch async for batch in records_to(history, moment)]
    assert str(one.value) == str(two.value)


async def test_an_empty_history_has_no_records():
    empty = StoryHistory([])
    assert [batch async for batch in records_to(empty, None)] == []
    assert [batch async for batch in records_to(empty, START)] == []
    with pytest.raises(EventNotFoundError):
        _ = [b async for b in records_to(empty, EventId(STORY[0].event.event_id))]


async def test_a_history_without_its_beginning_is_refused():
    with pytest.raises(HistoryTruncatedError):
        _ = [batch async for batch in records_to(StoryHistory(STORY[2:]), None)]
