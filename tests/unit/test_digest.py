"""A digest of a set: order leaves no trace, and what goes takes its hash along."""

from projections import KnownPut
from projections.digest import add, digest_text, entity_hash, remove, total_of
from tests.support.fleet_builder import (
    C2,
    deregistered,
    forgotten,
    held,
    loaded,
    registered,
    resumed,
    starting,
    state_after,
    weighted,
)

A, B = KnownPut("a"), KnownPut("b")


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


def test_the_order_of_cohorts_is_covered():
    one, two, three = registered("w1"), registered("w2", card=C2), registered("w3")
    ends = [deregistered("w1"), deregistered("w3")]
    assert digest(one, two, three, ends[0]) == digest(one, two, three, ends[0])
    first, second = state_after(one, two).fleet_state, state_after(two, one).fleet_state
    assert first.models != second.models


def test_what_is_undone_leaves_no_trace():
    assert digest(held("w1"), resumed("w1")) == digest()
    gone = [registered("w1"), deregistered("w1"), forgotten()]
    assert digest(*gone) == digest()


def test_positions_and_reasons_of_others_are_not_covered():
    assert digest(registered("w1"), deregistered("w9")) == digest(registered("w1"))
