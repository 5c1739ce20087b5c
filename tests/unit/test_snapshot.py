"""A snapshot is used whole, or not at all and with a reason."""

from hashlib import blake2b

import msgspec
import pytest

from events import EVENT_TYPES
from projections import (
    Epoch,
    FoldState,
    Position,
    SnapshotUnusableError,
    decode_snapshot,
    encode_snapshot,
    fleet_of,
    restore,
    take,
)
from projections.snapshot import SEAL_BYTES
from tests.support.fleet_builder import (
    C2,
    claimed,
    deregistered,
    held,
    poison,
    registered,
    released,
    state_after,
)

TAGS = frozenset(EVENT_TYPES)
EPOCH = Epoch(count=2, fold_version=1, log_id="log-a", revision=0)
PLACE = Position(epoch=EPOCH, base=100, ordinal=7, delta_revision=9)
STATE = state_after(
    claimed("w1", 20000, 2),
    registered("w1", adapters=("lora",)),
    registered("w2", card=C2),
    released(20000),
    held("w1"),
    poison("log.port.h.80", b"x"),
    deregistered("w9"),
    registered("w1"),
)
SNAPSHOT = take(STATE, PLACE)
PAYLOAD = encode_snapshot(SNAPSHOT)


def sealed(packed: bytes) -> bytes:
    return packed + blake2b(packed, digest_size=SEAL_BYTES).digest()


def resealed(**changes) -> bytes:
    document = msgspec.msgpack.decode(PAYLOAD[:-SEAL_BYTES])
    return sealed(msgspec.msgpack.encode({**document, **changes}))


def refused(payload: bytes) -> str:
    with pytest.raises(SnapshotUnusableError) as caught:
        restore(decode_snapshot(payload), TAGS)
    assert caught.value.reason in str(caught.value)
    assert "replay" in str(caught.value)
    return caught.value.reason


def test_a_state_survives_its_snapshot():
    snapshot = decode_snapshot(PAYLOAD)
    assert encode_snapshot(snapshot) == PAYLOAD
    restored = restore(snapshot, TAGS)
    assert restored == STATE
    assert restored.fleet_state.digest == STATE.fleet_state.digest
    assert restored.ports.digest == STATE.ports.digest
    assert fleet_of(snapshot) == STATE.fleet_state


def test_equal_states_are_equal_snapshots():
    again = restore(decode_snapshot(PAYLOAD), TAGS)
    assert encode_snapshot(take(again, PLACE)) == PAYLOAD


def test_a_snapshot_says_where_it_stands():
    snapshot = decode_snapshot(PAYLOAD)
    assert snapshot.log_id == "log-a"
    assert (snapshot.revision, snapshot.fingerprint) == (9, STATE.fingerprint)
    assert snapshot.recorded_at == STATE.recorded_at
    assert snapshot.position == PLACE
    assert snapshot.position.view_seq == 107


def test_an_empty_state_has_a_whole_snapshot_too():
    payload = encode_snapshot(take(FoldState(), PLACE))
    assert restore(decode_snapshot(payload), TAGS) == FoldState()


def test_no_truncated_snapshot_is_used():
    for size in range(len(PAYLOAD)):
        assert refused(PAYLOAD[:size]).startswith("damaged")
    assert refused(PAYLOAD + b"\x00").startswith("damaged")


def test_no_damaged_snapshot_is_used():
    for place in range(len(PAYLOAD)):
        flipped = PAYLOAD[place] ^ 1
        damaged = PAYLOAD[:place] + bytes([flipped]) + PAYLOAD[place + 1 :]
        assert refused(damaged).startswith("damaged")


@pytest.mark.parametrize(
    "packed", [b"", b"\xc1", b"\x80", msgspec.msgpack.encode({"format": 1})]
)
def test_sealed_nonsense_is_no_snapshot(packed):
    assert refused(sealed(packed)).startswith("damaged")


def test_a_newer_format_is_named():
    assert refused(resealed(format=2)) == "format 2, this version reads 1"


def test_another_fold_version_is_named():
    assert refused(resealed(fold_version=2)) == "fold version 2, not 1"
    with pytest.raises(SnapshotUnusableError, match="fold version 2, not 1"):
        fleet_of(decode_snapshot(resealed(fold_version=2)))


def test_a_snapshot_with_something_missing_is_refused_by_its_digests():
    fleet = msgspec.msgpack.decode(PAYLOAD[:-SEAL_BYTES])["fleet"]
    for place in range(len(fleet)):
        fewer = fleet[:place] + fleet[place + 1 :]
        assert refused(resealed(fleet=fewer)).startswith("its digest is ")
    assert refused(resealed(fleet=[])).startswith("its digest is ")


def test_ports_with_something_missing_are_refused_by_their_digest():
    rest = msgspec.msgpack.decode(SNAPSHOT.rest)
    changed = {**rest, "ports": rest["ports"][1:]}
    assert refused(resealed(rest=changed)) == "the digest of its ports differs"


def test_a_rest_that_is_none_is_refused():
    assert refused(resealed(rest={"ports": 7})).startswith("damaged")


def test_a_snapshot_that_skipped_what_is_known_now_is_refused():
    skipping = state_after(
        poison("log.worker.prod.w1", b'{"type":"later.v1"}'),
        poison("log.worker.prod.w1", b'{"type":"even_later.v1"}'),
    )
    payload = encode_snapshot(take(skipping, PLACE))
    assert restore(decode_snapshot(payload), TAGS) == skipping
    for known, named in (({"later.v1"}, "later.v1"), ({"even_later.v1"}, "even_later")):
        with pytest.raises(SnapshotUnusableError, match=f"did not know {named}"):
            restore(decode_snapshot(payload), TAGS | known)
