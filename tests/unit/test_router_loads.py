"""Picks by load: reports that count, fade and are forgotten; limits; bursts."""

from collections import Counter
from random import Random

import pytest

from events import Capacity, Role
from projections import Wanted
from tests.support.fleet_builder import (
    MODEL,
    deregistered,
    fleet_after,
    fleet_of_story,
    given,
    registered,
    thresholds,
    weighted,
)
from tests.support.load_router import NAMED, WANTED, Router, three


# ---- least_loaded ------------------------------------------------------------------
def test_the_least_loaded_is_picked():
    router = Router(three())
    for worker, usage in (("w1", 0.9), ("w2", 0.2), ("w3", 0.5)):
        router.hear(worker, kv_usage=usage)
    assert router.pick() == "w2"
    router.hear("w2", kv_usage=0.8)
    assert router.pick() == "w3"


@pytest.mark.parametrize("weight", [5e-324, 1e-310, 1e-9, 1e308])
def test_any_weight_of_an_old_log_leaves_an_order(weight):
    router = Router(three(weighted(weight)))
    for worker, running in (("w1", 0), ("w2", 0), ("w3", 200)):
        router.hear(worker, running=running)
    assert router.picks(20) == {"w1": 10, "w2": 10}


@pytest.mark.parametrize("count", [1, 2, 3, 50])
def test_it_is_exactly_the_least_loaded_however_many_there_are(count):
    rng = Random(count)
    ids = [f"w{n}" for n in range(count)]
    router = Router(fleet_after(*map(registered, ids)))
    running = {}
    for _ in range(200):
        worker = rng.choice(ids) if len(running) == count else ids[len(running)]
        running[worker] = rng.randrange(1000)
        router.hear(worker, running=running[worker])
        if len(running) == count:
            picked = router.pick()
            assert running[picked] == min(running.values())
            router.hear(picked, running=running[picked])  # forget the pick


def test_without_reports_it_is_weighted_random():
    fleet = three()
    by_load, by_weight = Router(fleet), Router(fleet)
    assert [by_load.pick() for _ in range(50)] == [
        by_weight.pick("weighted_random") for _ in range(50)
    ]


def test_a_burst_spreads_between_reports():
    router = Router(three(capacity=Capacity(max_num_seqs=100)))
    for worker, running in (("w1", 10), ("w2", 0), ("w3", 0)):
        router.hear(worker, running=running)
    assert router.picks(20) == {"w2": 10, "w3": 10}
    assert router.picks(30) == {"w1": 10, "w2": 10, "w3": 10}


def test_a_burst_over_many_gives_each_its_turn():
    """Wherever in the order a worker's place is after each pick."""
    ids = [f"w{n:03}" for n in range(300)]
    router = Router(fleet_after(*map(registered, ids)))
    for n, worker in enumerate(ids):
        router.hear(worker, running=n % 2)
    assert router.picks(150) == dict.fromkeys(ids[::2], 1)
    assert router.picks(300) == dict.fromkeys(ids, 1)


def test_ties_go_by_chance():
    router = Router(three())
    for worker in ("w1", "w2", "w3"):
        router.hear(worker, running=0)
    first = Counter()
    for _ in range(300):
        picked = router.pick()
        first[picked] += 1
        router.hear(picked, running=0)
    assert min(first.values()) > 60


def test_two_routers_of_equal_fleets_loads_and_seeds_pick_the_same():
    """However the reports came: in another order, or one after the other."""
    ids = [f"w{n}" for n in range(20)]
    steps = [registered(w, namespace=f"ns-{n % 3}") for n, w in enumerate(ids)]
    one, other = Router(fleet_after(*steps)), Router(fleet_after(*reversed(steps)))
    one.pick(), other.pick()
    one.rng, other.rng = Random(5), Random(5)
    for n, worker in enumerate(ids):
        one.hear(worker, namespace=f"ns-{n % 3}", running=n % 4)
    for n, worker in reversed(list(enumerate(ids))):
        other.hear(worker, namespace=f"ns-{n % 3}", running=9)
        other.hear(worker, namespace=f"ns-{n % 3}", running=n % 4)
    assert [one.pick() for _ in range(100)] == [other.pick() for _ in range(100)]


def test_less_weight_is_full_sooner():
    """At a tenth of the weight a worker is kept at a tenth of the others' load."""
    fleet = fleet_after(
        registered("big", namespace="a"),
        registered("small", namespace="b"),
        weighted(0.1, namespace="b"),
    )
    router = Router(fleet)
    router.hear("big", namespace="a", running=0)
    router.hear("small", namespace="b", running=0)
    picks = router.picks(110)
    assert 8 <= picks["small"] <= 12


def test_requests_that_are_soon_over_weigh_little():
    """Of fifty that were sent two are still there: the next fifty are no load of 50."""
    router = Router(fleet_after(registered("short"), registered("loaded")))
    router.hear("short", running=0)
    router.hear("loaded", running=20)
    assert router.picks(50)["short"] > 20
    router.hear("short", running=2)
    router.hear("loaded", running=20)
    assert router.picks(50) == {"short": 50}


def test_requests_that_stay_weigh_as_much_as_they_are():
    router = Router(fleet_after(registered("long"), registered("loaded")))
    router.hear("long", running=0)
    router.hear("loaded", running=20)
    assert router.picks(20) == {"long": 20}
    router.hear("long", running=20)
    router.hear("loaded", running=30)
    assert router.picks(10) == {"long": 10}
    assert router.picks(10) == {"long": 5, "loaded": 5}


# ---- which reports count -----------------------------------------------------------
def test_a_worker_without_a_report_gets_what_it_would_by_weight():
    router = Router(three())
    router.hear("w1", kv_usage=0.9)
    router.hear("w2", kv_usage=0.1)
    picks = router.picks(900)
    assert picks["w3"] == pytest.approx(300, abs=60)
    assert picks["w2"] > 250


def test_reports_fade_and_are_forgotten():
    router = Router(three())
    for worker, usage in (("w1", 0.9), ("w2", 0.0), ("w3", 0.9)):
        router.hear(worker, kv_usage=usage)

    router.clock.time = 5.0
    assert router.pick() == "w2"
    router.clock.time = 10.0
    faded = router.picks(600)
    assert faded["w1"] / 600 == pytest.approx(1 / 6, abs=0.06)
    router.clock.time = 15.0
    router.loads.forget()
    assert router.tally.reporting == 0
    assert router.picks(600)["w2"] / 600 == pytest.approx(1 / 3, abs=0.08)


def test_a_report_of_another_life_does_not_count():
    story = given(registered("w1"), registered("w2"))
    router = Router(fleet_of_story(story))
    old = router.fleet.state.workers["prod", "w1"].incarnation
    router.hear("w1", kv_usage=0.0)
    router.hear("w2", kv_usage=0.5)
    assert set(router.picks(20)) == {"w1"}
    router.fleet = fleet_of_story(story.then(registered("w1")))
    assert set(router.picks(50)) == {"w1", "w2"}  # the new life is not known yet
    router.hear("w1", life=old, kv_usage=0.0)
    router.hear("w1", kv_usage=0.9)
    router.hear("w1", life=old, kv_usage=0.0)
    assert set(router.picks(20)) == {"w2"}
    assert router.tally.heard == {"taken": 3, "other_life": 2, "unreadable": 0}


def test_what_is_no_report_is_counted_and_dropped():
    router = Router(three())
    router.loads.hear("load.prod.w1", b"\xff", router.fleet)
    router.loads.hear("load.prod", b"", router.fleet)
    router.hear("nobody", life="x", running=1)
    assert router.tally.heard == {"taken": 0, "other_life": 1, "unreadable": 2}
    assert router.tally.reporting == 0


def test_a_report_of_nothing_takes_the_last_back():
    router = Router(three())
    router.hear("w1", kv_usage=0.0)
    router.hear("w1")
    router.hear("w2")
    assert router.tally.reporting == 0
    assert len(router.picks(60)) == 3


def test_workers_come_go_and_change_their_weight_between_picks():
    story = given(*(registered(f"w{n}") for n in range(12)))
    router = Router(fleet_of_story(story))
    for n in range(12):
        router.hear(f"w{n}", running=n)
    assert router.pick() == "w0"
    story = story.then(deregistered("w0"), registered("w12"))
    router.fleet = fleet_of_story(story)
    router.hear("w12", running=0)
    assert router.pick() == "w12"
    router.fleet = fleet_of_story(story.then(weighted(0.5)))
    assert set(router.picks(2)) == {"w1", "w12"}


# ---- limits ------------------------------------------------------------------------
@pytest.mark.parametrize("policy", NAMED)
def test_a_busy_worker_is_passed_over_while_another_is_not(policy):
    router = Router(three(thresholds(busy_kv_usage=0.8)))
    router.hear("w1", kv_usage=0.9)
    router.hear("w2", kv_usage=0.1)
    assert set(router.picks(200, policy)) == {"w2", "w3"}
    router.hear("w3", kv_usage=0.8)
    assert set(router.picks(100, policy)) == {"w2"}
    assert router.tally.all_busy == 0


@pytest.mark.parametrize("policy", NAMED)
def test_when_all_are_busy_nobody_is_passed_over(policy):
    router = Router(three(thresholds(busy_waiting=1)))
    for worker in ("w1", "w2", "w3"):
        router.hear(worker, waiting=5)
    assert len(router.picks(60, policy)) == 3
    assert router.tally.all_busy == 60


@pytest.mark.parametrize("policy", NAMED)
def test_the_last_free_one_of_many_is_found(policy):
    ids = [f"w{n}" for n in range(200)]
    router = Router(fleet_after(*map(registered, ids), thresholds(busy_running=5)))
    for worker in ids[:-1]:
        router.hear(worker, running=9)
    assert set(router.picks(20, policy)) == {"w199"}  # it said nothing
    router.hear("w199", running=4)
    assert set(router.picks(20, policy)) == {"w199"}


@pytest.mark.parametrize("policy", NAMED)
def test_limits_hold_beside_exclusion_and_ejection(policy):
    router = Router(three(thresholds(busy_running=5)))
    router.hear("w1", running=9)
    router.hear("w2", running=0)
    router.picker.eject(router.fleet.worker("prod", "w2"), 60)
    assert set(router.picks(50, policy)) == {"w3"}
    out = [router.fleet.worker("prod", "w3")]
    assert set(router.picks(10, policy, exclude=out)) == {"w1"}
    assert router.tally.all_busy == 10


def test_the_least_loaded_one_that_is_ejected_is_passed_over():
    router = Router(three())
    for n, worker in enumerate(("w1", "w2", "w3")):
        router.hear(worker, running=100 * n)
    router.picker.eject(router.fleet.worker("prod", "w1"), 60)
    assert set(router.picks(20)) == {"w2"}


def test_a_callers_policy_gets_the_busy_too():
    router = Router(three(thresholds(busy_running=5)))
    router.hear("w1", running=9)
    assert router.pick(lambda workers: workers[0]) == "w1"


def test_limits_of_another_model_do_not_hold():
    router = Router(three(thresholds(model="other", busy_running=5)))
    router.hear("w1", running=9)
    assert len(router.picks(60, "weighted_random")) == 3


# ---- memory ------------------------------------------------------------------------
def test_rankings_and_rings_do_not_pile_up(monkeypatch):
    monkeypatch.setattr("controlplane.router.loads.RANKINGS_MAX", 2)
    monkeypatch.setattr("controlplane.router.picker.RINGS_MAX", 2)
    router = Router(three())
    router.hear("w1", running=0)
    router.hear("w2", running=9)
    router.hear("w3", running=9)
    wishes = [
        WANTED,
        Wanted(model=MODEL, namespace="prod"),
        Wanted(model=MODEL, role=Role.AGGREGATED),
    ]
    for wanted in wishes * 3:
        router.pick(wanted=wanted)
        router.pick("consistent_hash", wanted=wanted)
    assert len(router.loads._rankings) <= 2
    assert len(router.picker._rings) <= 2
    watchers = {r for seen in router.loads.known.values() for r in seen.watchers}
    assert watchers <= set(router.loads._rankings.values())
    router.hear("w2", running=0)
    router.hear("w1", running=9)
    assert router.pick() == "w2"


def test_candidates_that_are_asked_for_once_are_not_remembered():
    router = Router(three(thresholds(busy_running=5)))
    router.hear("w1", running=9)
    out = [router.fleet.worker("prod", w) for w in ("w2", "w3")]
    assert set(router.picks(5, "weighted_random", exclude=out)) == {"w1"}
    assert len(router.loads._rankings) == 1
    watchers = [r for seen in router.loads.known.values() for r in seen.watchers]
    assert watchers == list(router.loads._rankings.values())
