"""A host's ports are the same however one comes to know them."""

from functools import reduce

from hypothesis import given
from hypothesis import strategies as st

from events import EVENT_TYPES
from projections import (
    Epoch,
    FoldState,
    HostPorts,
    PortTable,
    Position,
    decode_snapshot,
    encode_snapshot,
    host_ports,
    restore,
    restore_ports,
    step,
    take,
)
from tests.property.logs import claims, logs, poisons
from tests.support import fleet_builder

TAGS = frozenset(EVENT_TYPES)
EPOCH = Epoch(count=1, fold_version=1, log_id="log-a", revision=0)
PLACE = Position(epoch=EPOCH, base=1, ordinal=0, delta_revision=0)
HOSTS = ("h1", "10.0.0.2", "never heard of")


def port_logs():
    """Logs of next to nothing but claims, releases and what cannot be read."""
    steps = st.lists(st.one_of(claims(), claims(), claims(), poisons()), max_size=30)
    return steps.map(lambda each: fleet_builder.given(*each))


def told(known: HostPorts, records) -> HostPorts:
    return reduce(HostPorts.after, records, known)


@given(logs() | port_logs())
def test_a_snapshot_and_what_follows_are_as_good_as_all_from_the_beginning(log):
    state = FoldState()
    whole = {host: told(HostPorts(host=host), log) for host in HOSTS}
    for place in range(len(log) + 1):
        if place:
            state = step(state, log[place - 1]).state
        snapshot = decode_snapshot(encode_snapshot(take(state, PLACE)))
        assert restore_ports(snapshot, frozenset()) == state.ports
        for host in HOSTS:
            table = restore_ports(snapshot, frozenset(), host)
            known = host_ports(table, host)
            assert known == host_ports(state.ports, host)
            assert told(known, log[place:]) == whole[host], (host, place)


@given(logs() | port_logs(), st.sampled_from(HOSTS))
def test_a_host_s_part_is_a_table_of_its_own(log, host):
    """Its total is of its ports, so that it can be folded on and compared."""
    alone, state = FoldState(), FoldState()
    for record in log:
        state = step(state, record).state
        if record.subject.startswith(f"log.port.{host.replace('.', '%2E')}."):
            alone = step(alone, record).state
    snapshot = take(state, PLACE)
    part = restore_ports(snapshot, TAGS, host)
    assert part == alone.ports
    assert part.digest == alone.ports.digest
    assert restore_ports(snapshot, TAGS) == restore(snapshot, TAGS).ports
    if all(key[0] == host for key in state.ports.ports):
        assert part == state.ports
    assert restore_ports(snapshot, TAGS, "x" * 9) == PortTable()
