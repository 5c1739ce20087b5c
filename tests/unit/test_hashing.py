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


@pytest.fixture(autouse=True)
def one_by_one(monkeypatch):
    """Small as they are, these rings follow changes as large ones do."""
    monkeypatch.setattr(hashing, "ANEW", 2)


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
        "print([laid.owner(key).worker_id for key in KEYS])\n"
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


def test_a_worker_gets_its_share_as_closely_as_is_promised():
    """By its name, whatever the fleet: the README tells of these bounds."""
    keys = [f"k{n}" for n in range(4000)]
    had = []
    for fleet, count in enumerate((4, 8, 8, 20, 20, 20)):
        names = [f"f{fleet}-{n}" for n in range(count)]
        laid = ring(*map(registered, names))
        share = Counter(laid.owner(key).worker_id for key in keys)
        had += [share[name] * count / len(keys) for name in names]
    assert 0.6 <= min(had) <= max(had) <= 1.45
    near = sum(0.75 <= part <= 1.25 for part in had)
    assert near >= 0.9 * len(had)


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


def old_and_new(old, new, weight, fleet=0):
    """Workers of weight 1 and others of ``weight``."""
    steps = [registered(f"o{fleet}-{n}", namespace="old") for n in range(old)]
    steps += [registered(f"n{fleet}-{n}", namespace="new") for n in range(new)]
    return *steps, weighted(weight, namespace="new")


@pytest.mark.parametrize(
    ("old", "new", "weight"),
    [
        (1, 1, 0.5),
        (1, 4, 0.1),
        (4, 1, 0.1),
        (2, 2, 0.5),
        (1, 8, 0.1),
        (10, 10, 0.1),
        (1, 1, 3.0),
        (4, 1, 1.0),
        (2, 30, 0.03),
    ],
)
def test_shares_follow_workers_times_weight_in_small_fleets(old, new, weight):
    """Over many fleets: where a few points lie is chance, and chance evens out."""
    fleets, keys, seen = 40, KEYS[:500], Counter()
    for fleet in range(fleets):
        laid = ring(*old_and_new(old, new, weight, fleet))
        seen.update(laid.owner(key).namespace for key in keys)
    fair = new * weight / (old + new * weight)
    assert seen["new"] / (fleets * len(keys)) == pytest.approx(fair, rel=0.06, abs=3e-3)


# ---- movement by weight ------------------------------------------------------------
@pytest.mark.parametrize("weight", [0.1, 1.5, 2.0, 3.0, 4.0])
def test_whoever_is_heaviest_comes_and_goes_with_its_own_keys_only(weight):
    """Nobody's place depends on the weights of the others."""
    laid = ring(*old_and_new(20, 0, weight))
    before = owners(laid)
    laid.match(found(*old_and_new(20, 1, weight)))
    within = owners(laid)
    assert {within[key] for key in KEYS if before[key] != within[key]} == {"n0-0"}
    laid.match(found(*old_and_new(20, 0, weight)))
    assert owners(laid) == before
    taken = ids_of(within)["n0-0"] / len(KEYS)
    assert taken <= 1.5 * weight / (20 + weight)


def test_the_last_of_the_old_goes_with_its_own_keys_only():
    for weight in (0.4, 0.1, 0.002):
        laid = ring(*old_and_new(1, 18, weight))
        before = owners(laid)
        laid.match(found(*old_and_new(0, 18, weight)))
        after = owners(laid)
        moved = {before[key] for key in KEYS if before[key] != after[key]}
        assert moved == {"o0-0"}, weight
        assert len(set(after.values())) == 18


@pytest.mark.parametrize(
    ("weight", "light", "heavy"),
    [(0.05, 16, 1), (2.0, 16, 32), (4.0, 16, 64), (5.0, 16, 48), (1e6, 1, 64)],
)
def test_points_stay_few_whatever_the_weights(weight, light, heavy):
    """Only above the heaviest are all scaled; and 5 halved makes 32 and part of 16."""
    laid = ring(*old_and_new(3, 2, weight))
    assert len(laid._points) == 3 * light + 2 * heavy


def test_a_light_worker_gets_its_share_in_each_small_fleet():
    """Not by the luck of a point or two."""
    for fleet in range(20):
        laid = ring(*old_and_new(1, 4, 0.1, fleet))
        share = sum(laid.owner(key).namespace == "new" for key in KEYS) / len(KEYS)
        assert share == pytest.approx(0.4 / 1.4, rel=0.25), fleet


def test_those_left_out_lose_their_keys_as_if_they_were_gone():
    for light in ([], [weighted(0.3, namespace="ns-1")]):
        laid = ring(*workers(12), *light)
        before = owners(laid)
        out = {("ns-1", "w4"), ("ns-2", "w8")}
        without = [laid.owner(key, out.__contains__).worker_id for key in KEYS]
        assert owners(laid) == before
        rest = [w for n, w in enumerate(workers(12)) if n not in {4, 8}]
        laid.match(found(*rest, *light))
        assert without == list(owners(laid).values())


def test_with_all_left_out_there_is_no_owner():
    for light in ([], [weighted(0.01, namespace="ns-1")]):
        assert ring(*workers(5), *light).owner("any", lambda _: True) is None


def test_a_weight_beyond_seeing_gets_what_the_others_leave():
    """It has no point that any of these keys sees; but it serves if nobody else may."""
    laid = ring(*old_and_new(2, 1, 1e-300))
    assert set(owners(laid).values()) == {"o0-0", "o0-1"}
    only_new = laid.owner("any", lambda key: key[0] == "old")
    assert only_new.worker_id == "n0-0"


# ---- the rest ----------------------------------------------------------------------
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
