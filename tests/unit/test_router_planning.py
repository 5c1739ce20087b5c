"""How to reach the end of the view stream: every case of what a router may find."""

import msgspec
import pytest

from controlplane.router.planning import (
    BeginWith,
    LoadSnapshot,
    ReadTail,
    Wait,
    collected,
    plan,
)
from projections import SequenceGapError
from tests.support.fleet_builder import given, registered
from tests.support.view_line import ViewLine

STORY = given(*(registered(f"w{n}") for n in range(6)))


@pytest.fixture
def line():
    """An epoch's start and four deltas, at the sequences 1 to 5."""
    made = ViewLine()
    made.publish(STORY[:4])
    return made


def test_ones_own_replica_is_usable(line):
    assert plan(line.end(), line.replica(ordinal=2)) == ReadTail(3)


def test_ones_own_replica_at_the_end_reads_nothing(line):
    assert plan(line.end(), line.replica()) == ReadTail(5)


def test_ones_own_replica_beyond_the_end_reads_nothing(line):
    """The view stream lost its tail: its leader refills it with the same deltas."""
    own = line.replica()
    del line.entries[3:]
    assert plan(line.end(), own) == ReadTail(3)


def test_a_stream_trimmed_just_below_ones_own_replica_still_serves_it(line):
    line.first = 4
    assert plan(line.end(), line.replica(ordinal=2)) == ReadTail(3)


def test_a_stream_trimmed_beyond_ones_own_replica_needs_a_snapshot(line):
    own = line.replica(ordinal=1)
    line.first = 4
    assert isinstance(plan(line.end(), own), Wait)
    pointer = line.take_snapshot()
    assert plan(line.end(), own) == LoadSnapshot(pointer)


def test_a_snapshot_below_a_trimmed_stream_is_waited_out(line):
    line.take_snapshot()
    line.publish(STORY)
    line.first = 7
    assert isinstance(plan(line.end(), None), Wait)
    line.first = 6
    assert isinstance(plan(line.end(), None), LoadSnapshot)


def test_nothing_of_ones_own_takes_the_snapshot(line):
    pointer = line.take_snapshot()
    assert plan(line.end(), None) == LoadSnapshot(pointer)


def test_a_snapshot_ahead_of_the_stream_is_as_good(line):
    pointer = line.take_snapshot()
    del line.entries[3:]
    assert plan(line.end(), None) == LoadSnapshot(pointer)


def test_without_a_snapshot_an_epoch_that_began_empty_begins_empty(line):
    found = plan(line.end(), None)
    assert isinstance(found, BeginWith)
    assert found.replica.position.view_seq == 1
    assert not found.replica.fleet.workers


def test_a_snapshot_of_another_epoch_is_not_used(line):
    line.take_snapshot()
    line.begin()
    assert isinstance(plan(line.end(), None), Wait)


def test_a_new_epoch_with_the_same_digest_goes_on_from_ones_own_fleet(line):
    own = line.replica()
    line.begin()
    line.publish(STORY)
    found = plan(line.end(), own)
    assert isinstance(found, BeginWith)
    assert found.replica.fleet is own.fleet
    assert found.replica.position.ordinal == 0
    assert found.replica.position.view_seq == 6


def test_a_new_epoch_with_another_digest_waits_for_its_snapshot(line):
    own = line.replica(ordinal=2)
    line.begin()
    assert isinstance(plan(line.end(), own), Wait)
    pointer = line.take_snapshot()
    assert plan(line.end(), own) == LoadSnapshot(pointer)


def test_foreign_messages_at_the_end_are_passed_over(line):
    line.foreign()
    assert plan(line.end(), line.replica(ordinal=2)) == ReadTail(3)


# ---- an empty stream ---------------------------------------------------------------
def emptied(line):
    line.first = len(line.entries) + 1
    return line.end()


def test_nothing_yet_is_waited_out():
    line = ViewLine()
    assert isinstance(plan(line.end(), None), Wait)


def test_an_emptied_stream_without_a_snapshot_never_means_an_empty_fleet(line):
    assert isinstance(plan(emptied(line), None), Wait)


def test_an_emptied_stream_with_its_last_snapshot(line):
    pointer = line.take_snapshot()
    assert plan(emptied(line), None) == LoadSnapshot(pointer)
    assert plan(emptied(line), line.replica(ordinal=2)) == LoadSnapshot(pointer)


def test_an_emptied_stream_all_of_which_one_has(line):
    line.take_snapshot()
    line.publish(STORY)
    assert plan(emptied(line), line.replica()) == ReadTail(7)


def test_an_emptied_stream_beyond_the_snapshot_is_waited_out(line):
    line.take_snapshot()
    line.publish(STORY)
    assert isinstance(plan(emptied(line), None), Wait)


def test_an_emptied_stream_that_lost_its_tail_is_waited_out(line):
    line.take_snapshot()
    own = line.replica()
    line.entries.clear()
    line.first = 1
    assert isinstance(plan(line.end(), own), Wait)


def test_an_emptied_stream_of_another_epoch_takes_the_snapshot(line):
    own = line.replica()
    line.begin()
    pointer = line.take_snapshot()
    assert plan(emptied(line), own) == LoadSnapshot(pointer)


# ---- reading -----------------------------------------------------------------------
def test_reading_passes_over_what_is_applied(line):
    replica, changes = collected(line.replica(ordinal=3), line.entries)
    assert replica.position == line.position
    assert changes == line.entries[4].message.changes


def test_reading_over_a_hole_is_refused(line):
    with pytest.raises(SequenceGapError):
        collected(line.replica(ordinal=1), line.entries[3:])


def test_reading_into_another_epoch_is_refused(line):
    own = line.replica()
    start = line.begin()
    with pytest.raises(SequenceGapError):
        collected(own, [start])
    line.publish(STORY)
    with pytest.raises(SequenceGapError):
        collected(own, line.entries[6:])


def test_equal_places_are_equal_replicas(line):
    """However one got there: by deltas or by a snapshot and the rest."""
    line.take_snapshot()
    line.publish(STORY)
    by_snapshot = line.found(None, line.end()).replica
    by_deltas = line.replica()
    assert by_snapshot.position == by_deltas.position
    assert by_snapshot.fleet == by_deltas.fleet
    assert msgspec.structs.replace(by_snapshot, fleet=by_deltas.fleet) == by_deltas
