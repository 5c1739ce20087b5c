"""Consistent hashing: even shares, by weight, and no key moves that need not."""

import random
from collections import Counter

import pytest

from projections import Ring, Wanted, candidates, hashing, rendezvous
from projections.hashing import POINTS
from tests.support.fleet_builder import (
    MODEL,
    fleet_after,
    registered,
    starting,
    updated,
    weighted,
)
from tests.support.hash_seeds import printed_under

KEYS = [f"session-{n}" for n in range(4000)]


def found(*steps):
    return candidates(fleet_after(*steps), Wanted(model=MODEL))


def ring(*steps):
    laid = Ring()
    laid.match(found(*steps))
    return laid


def owners(laid):
    return {key: laid.owner(key).worker_id for key in KEYS}


def workers(count, first=0):
    return [registered(f"w{n}", namespace=f"ns-{n % 3}") for n in range(first, count)]


def ids_of(story):
    return Counter(story.values())


# ---- movement ----------------------------------------------------------------------
@pytest.mark.parametrize("count", [2, 3, 5, 10, 40, 100])
def test_one_that_goes_moves_its_own_keys_only_and_few(count):
    laid = ring(*workers(count))
    before = owners(laid)
    share = ids_of(before)
    for gone in (0, count // 2, count - 1):
        rest = [step for n, step in enumerate(workers(count)) if n != gone]
        laid.match(found(*rest))
        after = owners(laid)
        moved = {key for key in KEYS if before[key] != after[key]}
        assert {before[key] for key in moved} == {f"w{gone}"}
        assert len(moved) == share[f"w{gone}"]
        assert len(moved) <= 1.5 / count * len(KEYS)


@pytest.mark.parametrize("count", [2, 10, 100])
def test_one_that_comes_takes_its_own_keys_only_and_few(count):
    laid = ring(*workers(count - 1))
    before = owners(laid)
    laid.match(found(*workers(count)))
    after = owners(laid)
    taken = [key for key in KEYS if before[key] != after[key]]
    assert {after[key] for key in taken} == {f"w{count - 1}"}
    assert len(taken) <= 1.5 / count * len(KEYS)


def test_however_it_came_to_be_the_ring_is_the_same():
    """Grown one by one, shrunk from more, in another order, or laid at once."""
    grown, shrunk = Ring(), ring(*workers(60))
    for count in range(1, 21):
        grown.match(found(*workers(count)))
    shrunk.match(found(*workers(20)))
    other_order = ring(*reversed(workers(20)))
    at_once = owners(ring(*workers(20)))
    assert owners(grown) == owners(shrunk) == owners(other_order) == at_once


def test_the_hash_seed_of_the_process_does_not_matter():
    script = (
        "from tests.unit.test_hashing import *\n"
        "laid = ring(*workers(30), weighted(0.3, namespace='ns-1'))\n"
        "print([laid.owner(key, n % 3).worker_id for n, key in enumerate(KEYS)])\n"
        "print([rendezvous(found(*workers(9)), key).worker_id for key in KEYS[:99]])"
    )
    assert len({printed_under(seed, "-c", script) for seed in ("1", "2")}) == 1


def test_keys_keep_their_workers_in_the_next_version():
    """Routers of two versions must agree while one is rolled out."""
    laid = ring(*workers(10))
    assert [laid.owner(f"user-{n}").worker_id for n in range(8)] == PINNED
    few = found(*workers(10))
    assert [rendezvous(few, f"user-{n}").worker_id for n in range(8)] == PINNED_CLOSELY


PINNED = ["w4", "w9", "w8", "w4", "w1", "w3", "w4", "w9"]
PINNED_CLOSELY = ["w3", "w0", "w5", "w1", "w5", "w4", "w6", "w2"]


# ---- shares ------------------------------------------------------------------------
@pytest.mark.parametrize("count", [1, 2, 7, 60])
def test_shares_are_even(count):
    share = ids_of(owners(ring(*workers(count))))
    assert len(share) == count
    assert max(share.values()) <= 1.5 * len(KEYS) / count
    assert min(share.values()) >= 0.5 * len(KEYS) / count


def test_a_tenth_of_the_weight_gets_a_tenth_of_the_keys():
    steps = [registered(f"a{n}", namespace="a") for n in range(20)]
    steps += [registered(f"b{n}", namespace="b") for n in range(20)]
    share = Counter(
        name[0] for name in owners(ring(*steps, weighted(0.1, namespace="b"))).values()
    )
    assert share["b"] / share["a"] == pytest.approx(0.1, abs=0.025)


@pytest.mark.parametrize("weight", [1e-9, 0.3, 0.5, 1.0, 7.0, 1e300])
def test_a_weight_that_all_have_is_none(weight):
    """Whatever it is, everybody has an even share, and every key an owner."""
    weights = [weighted(weight, namespace=f"ns-{n}") for n in range(3)]
    share = ids_of(owners(ring(*workers(6), *weights)))
    assert len(share) == 6
    assert max(share.values()) <= 1.5 * len(KEYS) / 6


def test_a_lighter_one_that_goes_moves_its_own_keys_only():
    light = weighted(0.25, namespace="ns-1")
    laid = ring(*workers(12), light)
    before = owners(laid)
    laid.match(found(*workers(12)[:-2], workers(12)[-1], light))  # w10 is one of them
    after = owners(laid)
    assert {before[k] for k in KEYS if before[k] != after[k]} == {"w10"}


def test_more_weight_only_brings_keys():
    laid = ring(*workers(12), weighted(0.25, namespace="ns-1"))
    before = owners(laid)
    laid.match(found(*workers(12), weighted(0.75, namespace="ns-1")))
    after = owners(laid)
    gained = {after[k] for k in KEYS if before[k] != after[k]}
    assert gained == {"w1", "w4", "w7", "w10"}
    laid.match(found(*workers(12), weighted(0.25, namespace="ns-1")))
    assert owners(laid) == before


# ---- the rest ----------------------------------------------------------------------
def test_another_attempt_is_mostly_another_worker_and_always_the_same():
    laid = ring(*workers(20))
    second = [laid.owner(key, 1).worker_id for key in KEYS]
    same = sum(a == b for a, b in zip(second, owners(laid).values(), strict=True))
    assert same / len(KEYS) == pytest.approx(1 / 20, abs=0.02)
    assert second == [laid.owner(key, 1).worker_id for key in KEYS]


def test_an_owner_is_given_as_it_is_now():
    laid = ring(*workers(3))
    laid.match(found(*workers(3), updated("w1", namespace="ns-1", address="http://n")))
    addresses = {laid.owner(key).address for key in KEYS}
    assert "http://n" in addresses
    assert len(addresses) == 3


def test_one_that_changes_its_set_keeps_its_keys():
    laid = ring(*workers(5))
    before = owners(laid)
    moved = registered("w1", namespace="ns-1", component="other")
    laid.match(found(*workers(5), moved))
    assert owners(laid) == before
    assert len(laid._owners) == 5


def test_any_text_is_a_key():
    laid = ring(*workers(3))
    for key in ("", "\0", "\ud800", "x" * 100_000, "ключ"):
        assert laid.owner(key) is laid.owner(key)
        assert rendezvous(found(*workers(3)), key).worker_id in {"w0", "w1", "w2"}


def test_looking_at_each_gives_shares_by_weight_too():
    some = found(*workers(9), weighted(0.5, namespace="ns-1"))
    share = Counter(rendezvous(some, key).namespace for key in KEYS)
    assert share["ns-1"] / share["ns-0"] == pytest.approx(0.5, abs=0.1)
    assert share["ns-2"] / share["ns-0"] == pytest.approx(1.0, abs=0.15)


def test_nobody_is_left_on_the_ring_but_the_candidates():
    rng, laid = random.Random(3), Ring()
    for _ in range(30):
        chosen = rng.sample(range(40), rng.randrange(1, 40))
        steps = [registered(f"w{n}", namespace=f"ns-{n % 3}") for n in chosen]
        for _ in range(2):
            laid.match(some := found(*steps, starting("idle")))
            laid.match(some)
        points = list(laid._points)
        assert points == sorted(points)
        assert len(points) == len(chosen) * POINTS
        assert {laid.owner(key).worker_id for key in KEYS[:500]} <= {
            f"w{n}" for n in chosen
        }


@pytest.mark.parametrize("bits", [4, 10])
def test_equal_points_are_told_apart_by_names(monkeypatch, bits):
    """On a ring so small that points fall together, its past does not matter either."""
    mask = (1 << bits) - 1 << 32 - bits

    def coarse(digest):
        return tuple(point & mask for point in _points_of(digest))

    _points_of = hashing._points_of
    monkeypatch.setattr(hashing, "_points_of", coarse)
    grown, shrunk = Ring(), ring(*workers(40))
    for count in (30, 29, 28, 20, 21, 25):
        shrunk.match(found(*workers(count)))
    for count in (1, 3, 20, 22, 24, 25):
        grown.match(found(*workers(count)))
    at_once = owners(ring(*workers(25)))
    assert owners(grown) == owners(shrunk) == at_once


def test_how_the_ring_is_cut_does_not_matter(monkeypatch):
    """Also where most of its arcs are empty."""
    whole = owners(ring(*workers(3), weighted(0.5, namespace="ns-1")))
    even = owners(ring(*workers(3)))
    for owners_an_arc in (1 / 512, 1000):
        monkeypatch.setattr(hashing, "ARC_OWNERS", owners_an_arc)
        assert owners(ring(*workers(3), weighted(0.5, namespace="ns-1"))) == whole
        assert owners(ring(*workers(3))) == even
