"""Some records of a log: by type, worker, host and span, in order, none twice."""

from datetime import timedelta

import pytest
from msgspec.structs import replace

from controlplane.playback import (
    Ends,
    EventNotFoundError,
    MomentAheadError,
    MomentTooEarlyError,
    RecordRemovedError,
    Selection,
    Sieve,
    Statistics,
    TypeUnknownError,
    last_selected,
    parse_point,
    parse_types,
    record_at,
    records_to,
    selected,
    state_at,
    type_of,
)
from tests.golden.stories import STORIES
from tests.support.fleet_builder import START, given, registered
from tests.support.histories import StoryHistory

UPDATE = STORIES["rolling_update"]()
POISON = STORIES["poison"]()


async def found(story, since=None, until=None, **wanted):
    sieve = Sieve(Selection(**wanted))
    batches = selected(StoryHistory(story), sieve, since, until)
    return [record.revision async for batch in batches for record in batch]


async def last(story, count, **wanted):
    sieve = Sieve(Selection(**wanted))
    records = await last_selected(StoryHistory(story), sieve, count)
    return [record.revision for record in records]


async def test_all_of_a_log_is_all_of_it():
    assert await found(UPDATE) == [record.revision for record in UPDATE]
    assert await found(given()) == []
    assert Selection().is_all
    assert not Selection(host="a").is_all


async def test_a_worker_s_records_are_those_that_are_about_it():
    """Its own, the holds on it, the claims for it and the releases of those."""
    of_w1 = await found(UPDATE, worker=("prod", "w1"))
    kinds = [type_of(UPDATE[revision - 1].event) for revision in of_w1]
    assert kinds == [
        "port_claimed.v1",
        "port_claimed.v1",
        "worker_registered.v1",
        "worker_status_changed.v1",
        "worker_status_changed.v1",
        "worker_deregistered.v1",
        "port_released.v1",
        "port_released.v1",
    ]
    held = await found(UPDATE, worker=("prod-v2", "w4"))
    kinds = [type_of(UPDATE[revision - 1].event) for revision in held]
    assert "worker_held.v1" in kinds
    assert "worker_resumed.v1" in kinds


async def test_what_cannot_be_read_belongs_to_the_worker_of_its_subject():
    revisions = await found(
        POISON, worker=("prod", "w1"), types=parse_types(["poison"])
    )
    assert len(revisions) == 7
    assert {POISON[r - 1].subject for r in revisions} == {"log.worker.prod.w1"}


async def test_a_host_s_records_are_those_of_its_ports_the_unreadable_too():
    revisions = await found(POISON, host="10.0.0.1")
    assert len(revisions) == 5
    assert await found(POISON, host="10.0.0.11") == []
    assert await found(POISON, host="::ffff:10.0.0.1") == revisions, "another spelling"
    assert await found(POISON, host="10.0.0.1 ") == [], "what no claim is called now"


async def test_types_are_named_with_or_without_their_version():
    for name in ("worker_expired", "worker_expired.v1"):
        revisions = await found(UPDATE, types=parse_types([name]))
        assert [type_of(UPDATE[r - 1].event) for r in revisions] == [
            "worker_expired.v1"
        ]
    both = parse_types(["unknown", "undecodable"])
    assert parse_types(["poison"]) == both == {"unknown", "undecodable"}
    with pytest.raises(TypeUnknownError, match=r"worker_expird.*worker_expired"):
        parse_types(["worker_expird"])


@pytest.mark.parametrize(
    ("since", "until", "first", "end"),
    [
        (5, None, 5, len(UPDATE)),
        (5, 7, 5, 7),
        (None, 7, 1, 7),
        (START + timedelta(seconds=4), None, 5, len(UPDATE)),
        (UPDATE[4].event.event_id, UPDATE[6].event.event_id, 5, 7),
        (None, UPDATE[6].recorded_at, 1, 7),
        (5, UPDATE[6].event.event_id, 5, 7),
        (0, 0, 1, 0),
        (7, 5, 1, 0),
        (START + timedelta(days=1), None, 1, 0),
    ],
)
async def test_both_ends_of_a_span_are_in_it(since, until, first, end):
    assert await found(UPDATE, since, until) == [*range(first, end + 1)]


async def test_a_time_before_the_end_begins_a_span():
    history = StoryHistory(UPDATE, now=UPDATE[-1].recorded_at)
    batches = selected(history, Sieve(Selection()), timedelta(seconds=-2))
    assert [r.revision async for batch in batches for r in batch] == [
        len(UPDATE) - 2,
        len(UPDATE) - 1,
        len(UPDATE),
    ]


async def test_once_begun_a_span_goes_on_although_the_clock_stepped_back():
    story = given(registered("a"), registered("b"))
    story.now = START
    story = story.then(registered("c"))
    assert await found(story, START + timedelta(seconds=1)) == [2, 3]


async def test_a_span_that_is_not_there_yet_is_said():
    for span in ((99, None), (None, 99)):
        with pytest.raises(MomentAheadError):
            await found(UPDATE, *span)
    nobody = "00000000-0000-0000-0000-000000000000"
    for span in ((nobody, None), (None, nobody)):
        with pytest.raises(EventNotFoundError):
            await found(UPDATE, *span)


@pytest.mark.parametrize("count", [0, 1, 3, 1000])
@pytest.mark.parametrize("piece", [1, 2, 256])
async def test_the_last_records_are_the_end_of_all(count, piece, monkeypatch):
    monkeypatch.setattr("controlplane.playback.selecting.PIECE", piece)
    for wanted in (
        {},
        {"types": parse_types(["port_claimed", "port_released"])},
        {"worker": ("prod", "w2")},
    ):
        everything = await found(UPDATE, **wanted)
        expected = everything[-count:] if count else []
        assert await last(UPDATE, count, **wanted) == expected


async def test_the_last_records_are_found_beyond_holes():
    """S47b: what was removed is passed over, however much it is."""
    kept = [UPDATE[0], UPDATE[1], UPDATE[-1]]
    assert await last(kept, 3) == [1, 2, len(UPDATE)]


async def test_one_record_is_found_by_whatever_names_it():
    history = StoryHistory(UPDATE)
    for point in (7, UPDATE[6].event.event_id, UPDATE[6].recorded_at):
        assert (await record_at(history, point)).revision == 7


async def test_a_record_that_is_not_there_is_said_to_be_ahead_or_removed():
    holes = StoryHistory([UPDATE[1], UPDATE[3]])
    with pytest.raises(RecordRemovedError, match=r"revision 3: it was purged"):
        await record_at(holes, 3)
    for before in (0, 1):
        with pytest.raises(RecordRemovedError, match="the log begins at 2"):
            await record_at(holes, before)
    with pytest.raises(MomentAheadError):
        await record_at(holes, 9)


async def test_a_time_before_the_log_is_said_as_a_replay_says_it():
    for early in (START - timedelta(days=1), timedelta(days=-999_999)):
        with pytest.raises(MomentTooEarlyError, match="is before the log's first rec"):
            await record_at(StoryHistory(UPDATE), early)
    for nothing in (START, timedelta(days=-1)):
        with pytest.raises(RecordRemovedError, match="no record: the log is empty"):
            await record_at(StoryHistory([]), nothing)
    ended = Ends(8, 7, None)
    purged = StoryHistory([], first=ended.first, last=ended.last)
    with pytest.raises(RecordRemovedError, match="no record: the log is empty"):
        await record_at(purged, START)


async def test_an_event_is_found_however_its_producer_wrote_its_id():
    """S56: in capitals, too; what is asked for may be in any case anyway."""
    event_id = "019AE2B4-0000-7000-8000-00000000000A"
    there = UPDATE[4]
    loud = replace(there, event=replace(there.event, event_id=event_id))
    story = [*UPDATE[:4], loud, *UPDATE[5:]]
    for text in (event_id, event_id.lower()):
        point = parse_point(text)
        history = StoryHistory(story)
        assert (await record_at(history, point)).revision == 5
        assert (await state_at(history, point)).revision == 5
        assert [r async for batch in records_to(history, point) for r in batch] == (
            story[:5]
        )
        assert (await found(story, since=point))[0] == 5
        assert (await found(story, until=point))[-1] == 5


# ---- counting ----------------------------------------------------------------------
def counted(story, ends=None):
    statistics = Statistics(ends or Ends(1, len(story), None))
    history = StoryHistory(story)
    statistics.add(history.as_stored(record) for record in story)
    return statistics.document(None)


def test_every_record_is_counted_once_by_type_and_once_by_hour():
    for story in (UPDATE, POISON):
        document = counted(story)
        assert document["records"] == len(story)
        assert document["removed"] == 0
        for key in ("types", "hours"):
            for what in ("records", "bytes"):
                total = sum(one[what] for one in document[key])
                assert total == document[what]
        sizes = [one["largest"] for one in document["types"]]
        assert max(sizes) == document["largest"]


def test_revisions_without_a_record_are_counted_as_removed():
    """S47b."""
    document = counted([UPDATE[1], UPDATE[5]], Ends(2, 10, None))
    assert document["removed"] == 7
    assert counted([], Ends(1, 0, None))["removed"] == 0
