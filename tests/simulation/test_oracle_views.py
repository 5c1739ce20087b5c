"""The oracle is right about the view stream, whatever becomes of it and of the log."""

import time
from contextlib import suppress

import msgspec
import pytest
from hypothesis import given as for_all
from hypothesis import settings

from projections import (
    AnomalyCounts,
    decode_view,
    encode_view,
)
from tests.property.logs import logs
from tests.simulation.outcome import Violation
from tests.simulation.telling import (
    DELTAS,
    NEW,
    OLD,
    START,
    Told,
    begun,
    epoch,
    replica_of,
    violation,
)
from tests.support.deriving import expected_deltas
from tests.support.fleet_builder import (
    draining,
    forked,
    given,
    held,
    ready,
    registered,
)


# ---- the stream ----------------------------------------------------------------
@settings(max_examples=50)
@for_all(logs())
def test_what_a_replay_derives_is_what_the_stream_may_hold(story):
    told = Told()
    for record in story:
        with suppress(Violation):  # any log at all: of these many are not lawful
            told.log([record])
    broken = {violation.invariant for violation in told.histories.violations}
    assert broken <= {"ended_life", "ports"}
    told.whole(story)
    assert told.views.missing() == []
    half = len(story) // 2
    told.whole(story, epoch(2, half))
    assert told.views.missing() == []
    told.views.check_replica("r1", replica_of(story, epoch()))
    base = told.views.last - len(expected_deltas(story, epoch(2, half)))
    told.views.check_replica("r1", replica_of(story, epoch(2, half), base=base))


def test_what_is_missing_at_the_end_is_named():
    told = Told(OLD)
    assert told.views.missing() == ["no epoch goes on"]
    start, *deltas = encode_view(begun(OLD, epoch())), *expected_deltas(OLD, epoch())
    told.view([start, *deltas[:-1]])
    assert told.views.missing() == ["the delta of 6"]
    told.forks()
    assert "lost since" in told.views.missing()[0]
    told.histories.log_deleted()
    told.histories.log_created("log-b")
    assert "not of log" in told.views.missing()[0]


def spoilt(payload, **fields):
    return encode_view(msgspec.structs.replace(decode_view(payload), **fields))


@pytest.mark.parametrize(
    "payloads",
    [
        [DELTAS[0]],
        [START, DELTAS[1]],
        [START, DELTAS[0], DELTAS[0]],
        [START, DELTAS[0], DELTAS[2]],
        [START, spoilt(DELTAS[0], digest="1" * 32)],
        [START, spoilt(DELTAS[0], anomalies=AnomalyCounts(stale=1))],
        [START, DELTAS[0], spoilt(DELTAS[1], previous_revision=0)],
        [START, DELTAS[0] + b" "],
        [START, *DELTAS, DELTAS[-1]],
        [START, START],
        [START, b"foreign"],
        [START, spoilt(START, epoch=epoch(2)), DELTAS[0]],
        [spoilt(START, epoch=epoch(1, 3))],
        [spoilt(START, digest="1" * 32)],
        [spoilt(START, epoch=epoch(version=99))],
        [spoilt(START, epoch=epoch(log_id="log-b"))],
        [encode_view(begun(OLD, epoch(2, 3))), START],
    ],
)
def test_any_other_message_is_a_violation(payloads):
    told = Told(OLD)
    told.view(payloads[:-1])
    violation("view", told.view, payloads[-1:])


def test_a_delta_must_not_come_before_its_record():
    told = Told(OLD[:4])
    told.view([START, *DELTAS[:3]])
    violation("view", told.view, [DELTAS[3]])


def test_the_sequence_goes_on_by_one():
    violation("view", Told(OLD).views.view_stored, 2, START)


# ---- losses of the stream ------------------------------------------------------
def test_a_lost_tail_is_filled_with_the_same_or_by_a_new_epoch():
    told = Told(OLD)
    told.view([START, *DELTAS])
    replica = replica_of(OLD, epoch())
    told.views.view_truncated(2)
    violation("view", told.view, [DELTAS[2]])
    told.views.check_replica("r1", replica)
    told.view(DELTAS[1:])
    told.views.view_truncated(3)
    told.whole(OLD, epoch(2, 6))
    violation("view", told.view, [DELTAS[2]])
    told.views.view_truncated(0)
    told.view([START, *DELTAS])
    assert told.views.missing() == []


def test_a_foreign_message_ends_the_epoch_unless_nobody_could_read_it():
    told = Told(OLD)
    told.view([START, DELTAS[0]])
    told.views.view_planted(3)
    assert told.views.missing() == ["no epoch goes on"]
    violation("view", told.view, [DELTAS[1]])
    violation("view", told.view, [DELTAS[2]])
    told.views.view_trimmed(3)
    violation("view", told.view, [DELTAS[2]])
    told.views.view_trimmed(4)
    violation("view", told.view, [DELTAS[1]])
    told.view([DELTAS[2]])
    told.views.view_planted(told.views.last + 1)
    told.whole(OLD, epoch(2, 2))
    assert told.views.missing() == []


def test_what_nobody_could_read_is_thought_to_be_the_next_delta_wherever_it_is_asked():
    told = Told(OLD)
    told.view([START, *DELTAS[:-1]])
    foreign_at = told.views.last + 1
    told.views.view_planted(foreign_at)
    replica = replica_of(OLD, epoch())
    told.views.view_trimmed(foreign_at)
    violation("prefix", told.views.check_replica, "r1", replica)
    assert told.views.missing() == ["no epoch goes on"]
    told.views.view_trimmed(foreign_at + 1)
    told.views.check_replica("r1", replica)
    assert told.views.missing() == []
    told.views.view_planted(foreign_at + 1)
    told.views.view_trimmed(foreign_at + 2)
    assert told.views.missing() == ["no epoch goes on"]


# ---- lost histories ------------------------------------------------------------
def test_deltas_of_lost_records_may_come_until_a_new_epoch_starts():
    told = Told(OLD)
    told.view([START, *DELTAS[:4]])
    told.forks()
    told.view(DELTAS[4:])
    told.views.check_replica("r1", replica_of(OLD, epoch()))
    told.whole(NEW, epoch(2, 4))
    assert told.views.missing() == []


def test_an_epoch_that_holds_a_lost_record_cannot_go_on_with_the_new_history():
    told = Told(OLD)
    told.view([START, *DELTAS[:4]])
    told.forks()
    violation("view", told.view, [expected_deltas(NEW, epoch())[4]])


def test_an_epoch_that_holds_nothing_lost_goes_on_with_either_history():
    told = Told(OLD)
    told.view([START, *DELTAS[:3]])
    told.forks()
    new = expected_deltas(NEW, epoch())
    assert new[:3] == DELTAS[:3]
    told.view([new[3]])
    violation("view", told.view, [DELTAS[4]])
    told.view(new[4:])
    told.views.check_replica("r1", replica_of(NEW, epoch()))
    never_published = replica_of(OLD, epoch(), ordinals=4)
    violation("prefix", told.views.check_replica, "r2", never_published)
    assert told.views.missing() == []


def test_an_epoch_may_start_on_lost_records_but_holds_nothing_new():
    told = Told(OLD)
    told.forks()
    start = begun(OLD, epoch(1, 6))
    told.view([encode_view(start)])
    assert "lost since" in told.views.missing()[0]
    never = begun(NEW.then(forked("c"), held("w7")), epoch(2, 8))
    violation("view", told.view, [encode_view(never)])


# ---- speed ---------------------------------------------------------------------
def test_the_oracle_costs_microseconds():
    """About 30 µs a record and 5 a message; the bound is for a very busy machine."""
    workers = [f"w{n:02}" for n in range(20)]
    story = given(*(registered(name, model=f"m{name[-1]}") for name in workers))
    for turn in range(40):
        act = draining if turn % 2 == 0 else ready
        story = story.then(*(act(name) for name in workers))
    payloads = [encode_view(begun(story, epoch())), *expected_deltas(story, epoch())]
    told, began = Told(), time.perf_counter()
    told.log(story)
    logged = time.perf_counter()
    told.view(payloads)
    viewed = time.perf_counter()
    assert (logged - began) / len(story) < 1e-3
    assert (viewed - logged) / len(payloads) < 1e-3
