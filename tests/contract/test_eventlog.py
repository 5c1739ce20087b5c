"""What the log promises, over the broker in memory and the real one alike."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec
import pytest

from controlplane import topology
from controlplane.broker import Outgoing
from controlplane.errors import (
    AppendConflictError,
    AppendOutcomeUnknownError,
    HistoryForkedError,
    LogFullError,
    TopologyDriftError,
)
from controlplane.eventlog import EventLog, Pending
from controlplane.identifiers import new_uuid7
from controlplane.settings import Settings
from events import Undecodable, UnknownEvent, WorkerRegistered, encode, subject_of
from tests.support.dating import dated
from tests.support.fleet_builder import (
    claimed,
    deregistered,
    draining,
    expired,
    given,
    held,
    ready,
    registered,
    released,
    resumed,
    updated,
    weighted,
)
from tests.support.lossy import LossyBroker
from tests.support.servers import unique
from tests.support.waiting import eventually

SETTINGS = Settings()


@pytest.fixture
async def lossy(bench) -> LossyBroker:
    """A client whose acknowledgements may be lost."""
    return LossyBroker(await bench.broker())


@pytest.fixture
async def log(lossy) -> EventLog:
    """An empty log in a cell of its own."""
    return await new_log(lossy)


async def new_log(broker, settings: Settings = SETTINGS) -> EventLog:
    cell = unique("cell").lower()
    await topology.init(broker, cell, settings)
    return EventLog(broker, cell, settings)


def events(*steps):
    """Return the events of a story, with ids of their own."""
    return [
        msgspec.structs.replace(record.event, event_id=new_uuid7())
        for record in given(*steps)
    ]


async def everything(log: EventLog, after: int = 0, until: int | None = None):
    return [record async for record in log.read(after, until)]


async def append_until_full(log: EventLog, step) -> tuple[LogFullError, int]:
    """Append for one worker after another; the refusal, and the last revision."""
    last = 0
    for number in range(500):
        event = events(*step(f"w{number}"))[-1]
        try:
            last = (await log.append(event)).revision
        except LogFullError as refusal:
            return refusal, last
    raise AssertionError(last)


def arriving(worker: str):
    return (registered(worker),)


def leaving(worker: str):
    return (registered(worker), deregistered(worker))


async def test_what_is_appended_is_read_back_in_its_place(log):
    story = events(registered("w.1"), ready("w.1"), deregistered("w.1"))
    revisions = [(await log.append(event)).revision for event in story]
    records = await everything(log)
    assert revisions == [1, 2, 3] == [record.revision for record in records]
    assert [record.event for record in records] == story
    assert records[0].subject == "log.worker.prod.w%2E1"
    assert await everything(log, after=1, until=2) == records[1:2]
    assert await log.at(2) == records[1]
    assert await log.last(records[0].subject) == records[2]


async def test_an_expectation_is_the_subject_s_lock(log):
    first, second = events(registered("w1"), ready("w1"))
    await log.append(first, expected_revision=0)
    with pytest.raises(AppendConflictError) as conflict:
        await log.append(second, expected_revision=0)
    assert (conflict.value.subject, conflict.value.last) == ("log.worker.prod.w1", 1)
    assert (await log.append(second, expected_revision=1)).revision == 2


async def test_related_events_are_appended_all_or_none(log):
    one, two, three = events(registered("w1"), registered("w2"), registered("w3"))
    await log.append(one)
    with pytest.raises(AppendConflictError):
        await log.append_all([Pending(two, 0), Pending(one, 7)])
    assert (await log.state()).last_revision == 1
    assert (await log.append_all([Pending(two, 0), Pending(three, 0)])).revision == 3


async def test_a_lost_acknowledgement_leaves_one_event(log, lossy):
    """S22: the client repeats the same bytes and recognises its own event."""
    (event,) = events(registered("w1"))
    lossy.lose_acks = 1
    appended = await log.append(event, expected_revision=0)
    assert lossy.stores == 2
    assert appended.revision == 1 == (await log.state()).last_revision


async def test_a_lost_acknowledgement_without_expectation_leaves_one_event(log, lossy):
    (event,) = events(registered("w1"))
    lossy.lose_acks = 2
    assert (await log.append(event)).revision == 1
    assert (await log.state()).last_revision == 1


async def test_a_lost_acknowledgement_of_a_batch_leaves_one_batch(log, lossy):
    one, two = events(registered("w1"), registered("w2"))
    lossy.lose_acks = 2
    assert (await log.append_all([Pending(one, 0), Pending(two, 0)])).revision == 2
    assert (await log.state()).last_revision == 2


# ---- one's own, behind a refusal -----------------------------------------------------
IMPATIENT = Settings(append_timeout_s=1e-6)
"""Said to be unknown at the first answer that is lost: the test goes on in between."""


async def in_doubt(lossy, *pending) -> EventLog:
    """Return a log that holds ``pending``, as its appender does not know."""
    log = await new_log(lossy, IMPATIENT)
    lossy.lose_acks = 1
    with pytest.raises(AppendOutcomeUnknownError):
        await log.append_all(pending)
    return log


async def test_an_own_event_that_others_followed_is_stored_where_it_is(lossy):
    """The answer was lost, and the worker expired before the repeat."""
    first, second, end = events(registered("w1"), ready("w1"), expired("w1"))
    log = await in_doubt(lossy, Pending(first, 0))
    await log.append(second, expected_revision=1)
    await log.append(end, expected_revision=2)
    assert (await log.append(first, expected_revision=0)).revision == 1
    assert (await log.append(second, expected_revision=1)).revision == 2
    assert (await log.state()).last_revision == 3


async def test_an_own_batch_that_others_followed_is_stored_where_it_is(lossy):
    one, two, after, end = events(
        registered("w1"), registered("w2"), ready("w1"), expired("w2")
    )
    batch = (Pending(one, 0), Pending(two, 0))
    log = await in_doubt(lossy, *batch)
    await log.append(after, expected_revision=1)
    await log.append(end, expected_revision=2)
    assert (await log.append_all(batch)).revision == 2
    anyhow = (Pending(one), Pending(two))
    assert (await log.append_all(anyhow)).revision == 2
    assert (await log.state()).last_revision == 4


async def test_what_others_stored_instead_is_a_conflict(log):
    mine, theirs, later = events(
        registered("w1"), registered("w1", life=2), ready("w1", life=2)
    )
    await log.append(theirs, expected_revision=0)
    await log.append(later, expected_revision=1)
    with pytest.raises(AppendConflictError) as conflict:
        await log.append(mine, expected_revision=0)
    assert conflict.value.last in (None, 2)
    (free,) = events(registered("w2"))
    with pytest.raises(AppendConflictError):
        await log.append_all([Pending(free, 0), Pending(mine, 0)])


async def test_an_event_of_a_batch_that_stands_by_itself_is_no_proof(log):
    one, two, *others = events(*(registered(f"w{n}") for n in range(4)))
    await log.append(others[0])
    await log.append(one, expected_revision=0)
    await log.append(others[1])
    for batch in ((Pending(one, 0), Pending(two, 0)), (Pending(two), Pending(one, 0))):
        with pytest.raises(AppendConflictError):
            await log.append_all(batch)
    assert (await log.state()).last_revision == 3


async def test_an_own_claim_is_known_by_its_claim_id(lossy):
    """S22: said again in other words, and though another claimed in vain since."""
    claims = events(registered("w1"), claimed("w1", 20000, 2))[1:]
    log = await in_doubt(lossy, *(Pending(event, 0) for event in claims))
    again = [
        Pending(msgspec.structs.replace(event, event_id=new_uuid7()), 0)
        for event in claims
    ]
    assert (await log.append_all(again)).revision == 2
    (late, wrong) = events(registered("w2"), claimed("w2", 20001), released(20001))[1:]
    await log.append_all([Pending(late), Pending(wrong)])
    assert (await log.append_all(again)).revision == 2
    assert (await log.append(claims[1], expected_revision=0)).revision == 2
    with pytest.raises(AppendConflictError):
        await log.append(late, expected_revision=0)


@pytest.mark.parametrize("cause", ["released", "expired"])
async def test_an_own_claim_that_was_released_since_is_never_a_grant(lossy, cause):
    story = events(
        registered("w1"), claimed("w1", 20000, 2), released(20001, cause=cause)
    )
    claims, end = story[1:3], story[3]
    batch = [Pending(event, 0) for event in claims]
    log = await in_doubt(lossy, *batch)
    await log.append(end, expected_revision=2)
    for again in (batch, batch[1:], [Pending(claims[1])]):
        with pytest.raises(AppendConflictError):
            await log.append_all(again)
    assert (await log.append_all(batch[:1])).revision == 1
    (other,) = events(registered("w2"), claimed("w2", 20001))[1:]
    await log.append(other, expected_revision=3)
    with pytest.raises(AppendConflictError):
        await log.append_all(batch)
    assert (await log.append(end, expected_revision=2)).revision == 3


async def test_a_lost_send_is_repeated_until_it_is_stored(log, lossy):
    (event,) = events(registered("w1"))
    lossy.lose_sends = 3
    assert (await log.append(event, expected_revision=0)).revision == 1


async def test_an_unknown_outcome_that_stays_unknown_is_said_so(lossy):
    log = await new_log(lossy, Settings(append_timeout_s=0.3))
    (event,) = events(registered("w1"))
    lossy.lose_sends = 1_000
    with pytest.raises(AppendOutcomeUnknownError):
        await log.append(event, expected_revision=0)
    lossy.lose_sends = 0
    assert (await log.append(event, expected_revision=0)).revision == 1


async def test_a_duplicate_is_believed_only_if_it_is_one_s_own(log, lossy):
    """Another's message under one's own id is no acknowledgement."""
    mine, other = events(registered("w1"), registered("w2"))
    foreign = Outgoing(
        subject=log.names.absolute(subject_of(other)),
        payload=encode(other),
        message_id=mine.event_id,
    )
    await lossy.store(log.names.log_stream, foreign)
    with pytest.raises(AppendConflictError, match="stored at sequence 1, but it does"):
        await log.append(mine)


async def test_what_cannot_be_read_keeps_its_place(log, lossy):
    """S43: nothing is guessed, nothing is skipped."""
    for payload in (b"nope", b"", b'{"type":"later.v9"}', b"{}"):
        subject = log.names.absolute("log.worker.prod.w1")
        await lossy.store(
            log.names.log_stream, Outgoing(subject=subject, payload=payload)
        )
    kinds = [type(record.event) for record in await everything(log)]
    assert kinds == [Undecodable, Undecodable, UnknownEvent, Undecodable]


async def test_an_import_keeps_the_time_of_the_first_recording(log, lossy):
    (event,) = events(registered("w1"))
    moment = datetime(2026, 1, 2, 3, 4, 5, 6, UTC)
    message = Outgoing(
        subject=log.names.absolute(subject_of(event)),
        payload=encode(event),
        headers=dated(moment, 1),
    )
    await lossy.store(log.names.log_stream, message)
    (record,) = await everything(log)
    assert record.recorded_at == moment


async def test_a_full_log_keeps_room_for_every_farewell(lossy):
    """Arrivals and updates are refused; all that are in can leave or be expired."""
    log = await new_log(lossy, Settings(log_max_bytes=60_000, log_reserve=0.1))
    refusal, last = await append_until_full(log, arriving)
    assert "kept for deregistrations" in str(refusal)
    assert last > 20
    refused = (ready("w0"), updated("w0", labels={"zone": "b"}), resumed("w0"))
    for step in (*refused, weighted(1)):
        with pytest.raises(LogFullError):
            await log.append(events(registered("w0"), step)[1])
    for step in (draining("w0"), held("w0"), weighted(0)):
        await log.append(events(registered("w0"), step)[1])
    for number in range(last):
        end = expired if number % 2 else deregistered
        await log.append(events(registered(f"w{number}"), end(f"w{number}"))[1])
    assert len(await everything(log)) == 2 * last + 3


async def test_without_a_limit_nothing_is_refused_and_little_is_asked(log, lossy):
    asked = lossy.asked
    for number in range(20):
        await log.append(events(registered(f"w{number}"))[0])
    assert lossy.asked - asked <= 1


async def test_a_really_full_log_loses_nothing_that_it_acknowledged(lossy):
    settings = Settings(log_max_bytes=30_000, log_reserve=0.01)
    log = await new_log(lossy, settings)
    _, acknowledged = await append_until_full(log, leaving)
    assert len(await everything(log)) == acknowledged > 20


async def test_following_goes_on_where_reading_ends(log):
    story = events(registered("w1"), ready("w1"), registered("w2"))
    await log.append(story[0])
    seen = []
    records = log.follow(after=0)
    seen.append(await anext(records))
    for event in story[1:]:
        await log.append(event)
    seen += [await anext(records), await anext(records)]
    await records.aclose()
    assert [record.event for record in seen] == story


async def test_a_log_that_was_made_anew_is_noticed(fragile):
    """S26: the same stream name with other content is another log."""
    broker = await fragile.broker()
    log = await new_log(broker)
    (event,) = events(registered("w1"))
    await log.append(event)
    records = log.follow(after=0)
    assert (await anext(records)).revision == 1
    await broker.delete_stream(log.names.log_stream)
    await topology.init(broker, log.names.cell, SETTINGS)
    for number in range(3):
        await log.append(events(registered(f"x{number}"))[0])
    with pytest.raises(HistoryForkedError):
        await anext(records)


async def test_a_log_made_anew_before_it_is_followed_is_noticed(lossy, log):
    old = (await log.state()).log_id
    await lossy.delete_stream(log.names.log_stream)
    await topology.init(lossy, log.names.cell, SETTINGS)
    await log.append(events(registered("w1"))[0])
    with pytest.raises(HistoryForkedError, match="its id is"):
        await anext(log.follow_batches(0, old))


async def test_init_creates_a_cell_once_and_names_each_drift(lossy):
    cell = unique("cell").lower()
    assert await topology.init(lossy, cell, SETTINGS)
    log_id = (await EventLog(lossy, cell, SETTINGS).state()).log_id
    assert not await topology.init(lossy, cell, SETTINGS)
    assert (await EventLog(lossy, cell, SETTINGS).state()).log_id == log_id != ""
    other = msgspec.structs.replace(SETTINGS, view_max_age_s=60.0)
    with pytest.raises(TopologyDriftError) as drift:
        await topology.init(lossy, cell, other)
    differences = drift.value.differences
    assert all("_VIEW" in difference for difference in differences)
    assert any("60" in difference for difference in differences)


async def test_cells_do_not_see_each_other(lossy):
    one, two = await new_log(lossy), await new_log(lossy)
    (event,) = events(registered("w1"))
    await one.append(event)
    assert (await two.state()).last_revision == 0
    assert (await one.state()).log_id != (await two.state()).log_id
    record = (await everything(one))[0]
    assert isinstance(record.event, WorkerRegistered)
    await eventually(lambda: record.subject.startswith("log.worker."))
