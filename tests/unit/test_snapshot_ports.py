"""The ports of a snapshot are used whole, or not at all and with a reason."""

import msgspec
import pytest

from events import EVENT_TYPES
from projections import (
    Epoch,
    Position,
    SnapshotUnusableError,
    restore,
    restore_ports,
    take,
)
from tests.support.fleet_builder import (
    claimed,
    poison,
    registered,
    released,
    state_after,
)

TAGS = frozenset(EVENT_TYPES)
EPOCH = Epoch(count=2, fold_version=1, log_id="log-a", revision=0)
PLACE = Position(epoch=EPOCH, base=100, ordinal=7, delta_revision=9)
HOST, OTHER = "10.0.0.1", "other"
SNAPSHOT = take(
    state_after(
        registered("w1"),
        claimed("w1", 20000, 3),
        claimed("w1", 20000, host=OTHER),
        released(20001),
        released(20002, claim="somebody else's"),
        poison("log.port.10%2E0%2E0%2E1.20009", b"x"),
    ),
    PLACE,
)


def refused(snapshot, host=HOST) -> str:
    with pytest.raises(SnapshotUnusableError) as caught:
        restore_ports(snapshot, TAGS, host)
    return caught.value.reason


def with_rest(**changes):
    rest = msgspec.msgpack.decode(SNAPSHOT.rest)
    packed = msgspec.Raw(msgspec.msgpack.encode({**rest, **changes}))
    return msgspec.structs.replace(SNAPSHOT, rest=packed)


def test_the_ports_are_those_of_the_whole_state():
    whole = restore(SNAPSHOT, TAGS).ports
    assert restore_ports(SNAPSHOT, TAGS) == whole
    part = restore_ports(SNAPSHOT, TAGS, OTHER)
    assert dict(part.ports) == {(OTHER, 20000): whole.ports[OTHER, 20000]}
    assert dict(part.revisions) == {(OTHER, 20000): 5}


def test_another_fold_version_is_named():
    other = msgspec.structs.replace(SNAPSHOT, fold_version=2)
    assert refused(other) == "fold version 2, not 1"


def test_a_maker_who_skipped_what_is_known_now_is_not_believed():
    skipping = take(state_after(poison("log.port.h.80", b'{"type":"later.v1"}')), PLACE)
    assert restore_ports(skipping, TAGS, "h").digest != "0" * 32
    with pytest.raises(SnapshotUnusableError, match=r"did not know later\.v1"):
        restore_ports(skipping, TAGS | {"later.v1"}, "h")


def test_one_port_less_is_noticed_whichever_host_is_asked_for():
    ports = msgspec.msgpack.decode(SNAPSHOT.rest)["ports"]
    for place in range(len(ports)):
        fewer = with_rest(ports=ports[:place] + ports[place + 1 :])
        assert refused(fewer) == "the digest of its ports differs"
        assert refused(fewer, None) == "the digest of its ports differs"


def test_revisions_that_are_not_of_these_ports_are_refused():
    revisions = msgspec.msgpack.decode(SNAPSHOT.rest)["port_revisions"]
    assert refused(with_rest(port_revisions=revisions[1:])).startswith("damaged")
    swapped = [revisions[1], revisions[0], *revisions[2:]]
    reason = refused(with_rest(port_revisions=swapped))
    assert reason == f"damaged: {HOST} 20000 stands where {HOST} 20001 should"


def test_a_rest_that_is_none_is_refused():
    assert refused(with_rest(ports=7)).startswith("damaged")
    assert refused(msgspec.structs.replace(SNAPSHOT, rest=msgspec.Raw(b""))).startswith(
        "damaged"
    )
