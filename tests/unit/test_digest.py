"""A digest of a set: order leaves no trace, and what goes takes its hash along."""

from projections import (
    Epoch,
    Fleet,
    KnownPut,
    Position,
    SetPut,
    apply,
    encode_snapshot,
    take,
)
from projections.digest import add, digest_text, entity_hash, remove, total_of
from tests.support.fleet_builder import (
    C2,
    MODEL,
    deregistered,
    forgotten,
    given,
    held,
    loaded,
    poison,
    registered,
    resumed,
    starting,
    state_after,
    weighted,
)

A, B = KnownPut("a"), KnownPut("b")
SUBJECT = "log.worker.prod.w1"
EPOCH = Epoch(count=1, fold_version=1, log_id="log-a", revision=0)
PLACE = Position(epoch=EPOCH, base=1, ordinal=1, delta_revision=1)


def test_the_order_of_adding_leaves_no_trace():
    assert add(add(0, A), B) == add(add(0, B), A) == total_of([A, B])


def test_removing_undoes_adding_also_around_zero():
    assert remove(add(add(0, A), B), A) == add(0, B)
    assert add(remove(0, A), A) == 0
    assert 0 <= remove(0, A) < 2**128


def test_twice_is_not_once_and_not_never():
    assert total_of([A, A]) not in (0, total_of([A]))


def test_a_digest_is_32_hex_digits():
    assert digest_text(0) == "0" * 32
    assert digest_text(255) == "0" * 30 + "ff"
    assert digest_text(2**128 - 1) == "f" * 32


def test_hashes_never_change():
    assert f"{entity_hash(A):032x}" == "ff73ebc4f6738575e220fef9d414e9ba"


def digest(*steps):
    return state_after(*steps).fleet_state.digest


def test_everything_that_routers_see_is_covered():
    one = registered("w1")
    digests = [
        digest(),
        digest(one),
        digest(starting("w1")),
        digest(registered("w1", labels={"a": "b"})),
        digest(registered("w1", address="http://b")),
        digest(registered("w1", card=C2)),
        digest(registered("w1", model="other")),
        digest(registered("w1", namespace="other")),
        digest(registered("w1", lease_ttl_s=11)),
        digest(one, loaded("w1", "lora")),
        digest(one, held("w1")),
        digest(one, weighted(1)),
        digest(one, deregistered("w1")),
        digest(one, one),
    ]
    assert len(set(digests)) == len(digests)


def test_the_order_in_which_a_producer_wrote_labels_is_not_covered():
    (payload,) = given(registered("w1", labels={"a": "1", "b": "2"})).payloads
    turned = payload.replace(b'"a":"1","b":"2"', b'"b":"2","a":"1"')
    assert turned != payload
    one, two = (state_after(poison(SUBJECT, p)) for p in (payload, turned))
    assert one.fleet_state == two.fleet_state
    assert one.fleet_state.digest == two.fleet_state.digest
    assert encode_snapshot(take(one, PLACE)) == encode_snapshot(take(two, PLACE))
    assert Fleet(one.fleet_state).to_json() == Fleet(two.fleet_state).to_json()


def test_the_order_of_cohorts_is_covered():
    state = state_after(registered("w1"), registered("w2", card=C2)).fleet_state
    ((key, members),) = state.models[MODEL].items()
    turned = apply(state, [SetPut(key, tuple(reversed(members.cohorts)))])
    assert turned.workers == state.workers
    assert turned.digest != state.digest


def test_what_is_undone_leaves_no_trace():
    assert digest(held("w1"), resumed("w1")) == digest()
    gone = [registered("w1"), deregistered("w1"), forgotten()]
    assert digest(*gone) == digest()


def test_positions_and_reasons_of_others_are_not_covered():
    assert digest(registered("w1"), deregistered("w9")) == digest(registered("w1"))
