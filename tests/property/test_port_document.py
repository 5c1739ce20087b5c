"""The listing of a port table, over logs in which anything may stand anywhere."""

from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from events import PortSubject, parse_subject
from projections import (
    FoldState,
    Held,
    Moment,
    PortRange,
    Resting,
    Unreadable,
    fold_all,
    host_ports,
    list_ports,
    room,
)
from tests.property.logs import logs
from tests.support.fleet_builder import START, claimed, poison, released
from tests.support.fleet_builder import given as told

WITHIN = PortRange(20002, 20015)
SIZES = st.integers(1, 3)
NEAR = {"host": st.sampled_from(["h1", "h1", "h2"])}
PORTS = st.integers(20000, 20007)
CLAIMS = st.builds(claimed, st.sampled_from(["w1", "w2"]), PORTS, SIZES, **NEAR)
RELEASES = st.builds(
    released, PORTS, SIZES, cause=st.sampled_from(["released", "expired"]), **NEAR
)
POISONS = PORTS.map(lambda port: poison(f"log.port.h1.{port}", b"[]"))
BUSY = st.lists(st.one_of(CLAIMS, CLAIMS, RELEASES, POISONS), min_size=6, max_size=20)
LOGS = logs() | BUSY.map(lambda steps: told(*steps))
MOMENTS = st.builds(
    Moment,
    st.none() | st.integers(0, 60).map(lambda s: START + timedelta(seconds=s)),
    st.sampled_from([0.0, 0.5, 5.0, 30.0]),
)


def of_ports(log, host=None):
    """The records on the subjects of ports, or of one host's."""
    named = ((record, parse_subject(record.subject)) for record in log)
    return [
        record
        for record, subject in named
        if isinstance(subject, PortSubject) and host in {None, subject.host}
    ]


@given(LOGS)
def test_the_records_of_ports_alone_give_the_whole_logs_table(log):
    assert (
        fold_all(FoldState(), of_ports(log)).ports == fold_all(FoldState(), log).ports
    )


@given(LOGS, st.sampled_from(["h1", "h2", "10.0.0.2"]))
def test_the_records_of_one_host_give_its_part_of_the_table(log, host):
    alone = fold_all(FoldState(), of_ports(log, host)).ports
    whole = fold_all(FoldState(), log).ports
    assert dict(alone.ports) == {k: v for k, v in whole.ports.items() if k[0] == host}
    moment = Moment(START, 5.0)
    assert list_ports(alone, moment) == list_ports(whole, moment, host=host)


@given(LOGS, MOMENTS)
def test_stretches_cover_exactly_what_is_not_free_each_port_once(log, moment):
    table = fold_all(FoldState(), log).ports
    listed = {}
    for stretch in list_ports(table, moment).stretches:
        assert stretch.size == stretch.end - stretch.start + 1
        for port in range(stretch.start, stretch.end + 1):
            assert (stretch.host, port) not in listed
            listed[stretch.host, port] = stretch
    assert list(listed) == sorted(listed)
    for key, state in table.ports.items():
        assert (key in listed) == (not moment.is_free(state))
        if key in listed:
            check_says(listed[key], state, moment)
    assert set(listed) <= set(table.ports)


def check_says(stretch, state, moment):
    """The stretch says of a port what its state says."""
    assert stretch.since >= state.since
    match state:
        case Held():
            assert stretch.state == "held"
            said = (stretch.claim_id, stretch.owner, stretch.reason)
            assert said == (state.claim_id, state.owner, state.reason)
            assert stretch.block_size == state.block_size
            assert (stretch.cause, stretch.free_at) == (None, None)
        case Resting():
            assert stretch.state == "resting"
            assert (stretch.claim_id, stretch.cause) == (state.claim_id, state.cause)
            assert stretch.free_at >= moment.free_at(state)
            assert (stretch.owner, stretch.block_size) == (None, None)
        case Unreadable():
            assert (stretch.state, stretch.size) == ("unreadable", 1)
            assert (stretch.claim_id, stretch.owner, stretch.cause) == (None,) * 3


@given(LOGS, MOMENTS)
def test_a_host_has_the_room_that_a_claimant_finds(log, moment):
    table = fold_all(FoldState(), log).ports
    for summary in list_ports(table, moment, within=WITHIN).hosts:
        found = room(
            host_ports(table, summary.host),
            WITHIN,
            now=moment.at,
            cooldown_s=moment.cooldown_s,
        )
        assert (summary.free, summary.largest_hole) == (found.free, found.largest_hole)
        assert summary.resting == found.resting
        taken = summary.held + summary.resting + summary.unreadable
        assert taken + summary.free == len(WITHIN)
        start = summary.largest_hole_start
        assert (start is None) == (summary.largest_hole == 0)
        hole = range(start or 0, (start or 0) + summary.largest_hole)
        states = [table.ports.get((summary.host, port)) for port in hole]
        assert all(state is None or moment.is_free(state) for state in states)


@given(LOGS, MOMENTS)
def test_counts_are_the_sums_of_the_stretches(log, moment):
    listing = list_ports(fold_all(FoldState(), log).ports, moment)
    for summary in listing.hosts:
        for state in ("held", "resting", "unreadable"):
            sizes = (
                stretch.size
                for stretch in listing.stretches
                if (stretch.host, stretch.state) == (summary.host, state)
            )
            assert getattr(summary, state) == sum(sizes)
