"""A port table as it is read: by blocks, at a moment, with the room that is left."""

import json
from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from projections import (
    FoldState,
    Moment,
    PortRange,
    PortTable,
    fold_all,
    list_ports,
    port_document,
)
from tests.golden.stories import STORIES
from tests.support.fleet_builder import (
    HOST,
    START,
    claimed,
    given,
    poison,
    released,
    silent_for,
    state_after,
    uuid7,
)
from tests.support.hash_seeds import printed_under

EIGHT = ("w1", 20000, 8)
KEYS = {"at", "blocks", "cooldown_s", "digest", "hosts", "within"}
BLOCK_KEYS = {
    "block_size",
    "block_start",
    "cause",
    "claim_id",
    "end",
    "free_at",
    "host",
    "lease_ttl_s",
    "owner",
    "reason",
    "size",
    "start",
    "state",
    "since",
}
PRINTING = """
import msgspec
from projections import FoldState, Moment, fold_all, list_ports, port_document
from tests.golden.cli.screens import a_host_in_use
state = fold_all(FoldState(), a_host_in_use())
listing = list_ports(state.ports, Moment(state.recorded_at, 5.0))
print(msgspec.json.encode(port_document(listing)).decode())
"""


def listed(*steps, cooldown_s=5.0, at=None, **options):
    """The listing after these steps, at the time of the last record."""
    state = state_after(*steps)
    moment = Moment(at or state.recorded_at, cooldown_s)
    return list_ports(state.ports, moment, **options)


def test_a_claim_is_one_stretch_with_all_that_it_said():
    (stretch,) = listed(claimed(*EIGHT, lease_ttl_s=30.0)).stretches
    assert (stretch.start, stretch.end, stretch.size) == (20000, 20007, 8)
    assert (stretch.state, stretch.reason) == ("held", "kv_events")
    assert (stretch.owner.namespace, stretch.owner.worker_id) == ("prod", "w1")
    assert stretch.since == START + timedelta(seconds=7), "since all of it is so"
    assert (stretch.lease_ttl_s, stretch.block_size) == (30.0, 8)


def test_two_claims_side_by_side_are_two():
    stretches = listed(claimed("w1", 20000, 2), claimed("w1", 20002, 2)).stretches
    assert [(s.start, s.end) for s in stretches] == [(20000, 20001), (20002, 20003)]


def test_a_block_that_is_not_all_there_shows_what_is():
    stretches = listed(claimed(*EIGHT), released(20003)).stretches
    assert [(s.start, s.size, s.state) for s in stretches] == [
        (20000, 3, "held"),
        (20003, 1, "resting"),
        (20004, 4, "held"),
    ]
    assert {s.block_size for s in stretches if s.state == "held"} == {8}
    rested = listed(claimed(*EIGHT), released(20003), cooldown_s=0.0).stretches
    assert [(s.start, s.end, s.size) for s in rested] == [
        (20000, 20002, 3),
        (20004, 20007, 4),
    ]


def test_what_was_let_go_rests_then_is_free_and_not_listed():
    steps = (claimed("w1", 20000), released(20000, cause="expired"))
    resting = listed(*steps)
    (stretch,) = resting.stretches
    assert (stretch.state, stretch.cause) == ("resting", "expired")
    assert stretch.free_at == stretch.since + timedelta(seconds=5)
    almost = stretch.free_at - timedelta(microseconds=1)
    assert len(listed(*steps, at=almost).stretches) == 1
    rested = listed(*steps, at=stretch.free_at)
    assert rested.stretches == ()
    assert rested.hosts[0].free == 10_001
    assert rested.digest == resting.digest, "the table did not change, time did"
    assert listed(*steps, cooldown_s=0.0).stretches == ()


def test_without_a_time_nothing_has_rested():
    ports = state_after(claimed("w1", 20000), released(20000)).ports
    assert len(list_ports(ports, Moment(None, 5.0)).stretches) == 1


@pytest.mark.parametrize("year", [1, 9999])
def test_a_time_from_an_import_may_be_any(year):
    story = given(claimed("w1", 20000), released(20000))
    then = datetime(year, 12, 31, 23, 59, 59, tzinfo=UTC)
    records = [msgspec.structs.replace(record, recorded_at=then) for record in story]
    ports = fold_all(FoldState(), records).ports
    listing = list_ports(ports, Moment(START, 5.0))
    assert len(listing.stretches) == (1 if year == 9999 else 0)
    json.dumps(port_document(listing))


def test_a_refused_claim_is_not_the_holder():
    (stretch,) = listed(claimed("w1", 20000), claimed("w2", 20000)).stretches
    assert stretch.owner.worker_id == "w1"


def test_the_last_records_of_ports_do_not_tell_who_holds_them():
    """Why a listing folds all records of ports: the last one may have been refused."""
    port = "log.port.10%2E0%2E0%2E1.20000"
    for last in (
        claimed("w2", 20000),
        released(20000, claim=uuid7("of somebody else")),
        poison(port, b"[]"),
    ):
        story = given(claimed("w1", 20000), last)
        right = fold_all(FoldState(), story).ports
        alone = fold_all(FoldState(), [story[-1]]).ports
        assert right.ports[HOST, 20000].owner.worker_id == "w1"
        assert alone.ports != right.ports


def test_what_cannot_be_read_is_a_line_for_each_port():
    port = "log.port.10%2E0%2E0%2E1.{}"
    listing = listed(*(poison(port.format(n), b"[]") for n in (20000, 20001)))
    assert [(s.start, s.size) for s in listing.stretches] == [(20000, 1), (20001, 1)]
    assert listing.hosts[0].unreadable == 2


@pytest.mark.parametrize(
    ("steps", "hole", "start"),
    [
        ([claimed("w1", 2000, 3)], 4, 2003),
        ([claimed("w1", 2003)], 3, 2000),
        ([claimed("w1", 2002, 2)], 3, 2004),
        ([claimed("w1", 1998, 20)], 0, None),
        ([claimed("w1", 2000, 7)], 0, None),
        ([claimed("w1", 30000, 7)], 7, 2000),
    ],
)
def test_the_largest_hole_is_the_first_of_the_largest(steps, hole, start):
    (summary,) = listed(*steps, within=PortRange(2000, 2006)).hosts
    assert (summary.largest_hole, summary.largest_hole_start) == (hole, start)


def test_of_a_range_only_what_touches_it_is_listed_and_counted():
    steps = [
        claimed("w1", 2000, 4),
        claimed("w2", 2004, 2),
        claimed("w3", 2008, 4),
        claimed("w4", 3000, 2, host="elsewhere"),
        released(3000, 2, host="elsewhere"),
    ]
    listing = listed(*steps, within=PortRange(2003, 2008))
    found = [(s.start, s.end, s.block_size) for s in listing.stretches]
    assert found == [(2000, 2003, 4), (2004, 2005, 2), (2008, 2011, 4)], "whole"
    here, elsewhere = listing.hosts
    assert (here.held, here.resting, here.free) == (4, 0, 2), "in the range"
    assert (elsewhere.resting, elsewhere.free) == (0, 6), "it has room there"
    assert [
        s.start for s in listed(*steps, within=PortRange(2006, 2007)).stretches
    ] == []
    everything = listed(*steps)
    assert everything.digest == listing.digest, "of the whole table"
    assert len(everything.stretches) == 4, "all, though not in the default range"
    assert everything.hosts[0].free == 10_001


def test_hosts_are_told_apart_and_in_order():
    steps = [claimed("w1", 20000, 2, host=h) for h in ("b", "a")]
    listing = listed(*steps, silent_for(s=9))
    assert [summary.host for summary in listing.hosts] == ["a", "b"]
    assert [stretch.host for stretch in listing.stretches] == ["a", "b"]
    only = listed(*steps, host="b")
    assert [summary.host for summary in only.hosts] == ["b"]
    assert only.digest not in {listing.digest, PortTable().digest}
    nobody = listed(*steps, host="c")
    assert (nobody.hosts, nobody.stretches) == ((), ())
    assert nobody.digest == PortTable().digest


def test_a_document_has_the_same_keys_whatever_is_in_it():
    empty = port_document(list_ports(PortTable(), Moment(None, 5.0)))
    assert set(empty) == KEYS
    assert (empty["at"], empty["blocks"], empty["hosts"]) == (None, [], [])
    assert empty["within"] == [20000, 30000]
    for story in STORIES.values():
        state = fold_all(FoldState(), story())
        listing = list_ports(state.ports, Moment(state.recorded_at, 5.0))
        document = port_document(listing)
        assert set(document) == KEYS
        assert all(set(block) == BLOCK_KEYS for block in document["blocks"])
        assert json.loads(json.dumps(document)) == document, "plain data"


def test_the_hash_seed_leaves_no_trace():
    one, two = (printed_under(seed, "-c", PRINTING) for seed in ("1", "2"))
    assert one == two
    assert len(json.loads(one)["blocks"]) > 5
