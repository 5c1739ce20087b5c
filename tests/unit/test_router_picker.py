"""A router's picks: policies, ejections, exclusions, and what is kept of them."""

from collections import Counter
from math import inf, nan
from random import Random

import pytest

from controlplane.errors import SettingsError
from controlplane.router.loads import Loads
from controlplane.router.picker import POLICIES, Ask, Picker
from controlplane.telemetry import PickTally
from events import Role
from projections import Fleet, ModelNotFoundError, ModelUnavailableError, Wanted
from tests.support.fleet_builder import (
    MODEL,
    fleet_after,
    held,
    loaded,
    registered,
    thresholds,
    weighted,
)
from tests.support.load_router import HandClock, Router

WANTED = Wanted(model=MODEL)
FOUR = fleet_after(
    registered("a1", namespace="a"),
    registered("a2", namespace="a"),
    registered("b1", namespace="b"),
    registered("b2", namespace="b"),
    registered("q1", model="qwen"),
    registered("q2", model="qwen"),
)


def seeded(number):
    return Random(number)


@pytest.fixture
def clock():
    return HandClock()


def picker_of(clock):
    tally = PickTally()
    return Picker(clock, tally, Loads(clock, tally, fresh_s=5.0, forget_s=15.0))


@pytest.fixture
def picker(clock):
    return picker_of(clock)


def pick(picker, fleet=FOUR, wanted=WANTED, policy="weighted_random", **options):
    return picker.pick(fleet, wanted, Ask(policy, **options))


def workers_of(fleet):
    return [fleet.worker(*key) for key in sorted(fleet.state.workers)]


def ids(picker, count, **options):
    return [pick(picker, **options).worker_id for _ in range(count)]


def test_equal_seeds_pick_the_same_in_two_routers(clock):
    routers = [picker_of(clock) for _ in range(2)]
    fleets = [FOUR, Fleet(FOUR.state, revision=FOUR.revision)]
    picks = [
        ids(router, 50, fleet=fleet, rng=seeded(7), exclude=[FOUR.worker("a", "a2")])
        for router, fleet in zip(routers, fleets, strict=True)
    ]
    assert picks[0] == picks[1]
    assert len(set(picks[0])) == 3


def test_each_wish_has_turns_of_its_own(picker):
    """Picks for one model in between must not make another's skip its workers."""
    qwen, seen = Wanted(model="qwen"), Counter()
    for _ in range(8):
        seen[pick(picker, policy="round_robin").worker_id] += 1
        seen[pick(picker, wanted=qwen, policy="round_robin").worker_id] += 1
    assert seen == {"a1": 2, "a2": 2, "b1": 2, "b2": 2, "q1": 4, "q2": 4}


def test_a_callers_policy_gets_those_who_will_do(picker):
    offered = []

    def last(workers):
        offered.extend(worker.worker_id for worker in workers)
        return workers[-1]

    picker.eject(FOUR.worker("b", "b2"), 5)
    worker = pick(picker, policy=last, exclude=[FOUR.worker("a", "a1")])
    assert offered == ["a2", "b1"]
    assert worker.worker_id == "b1"


def test_an_unknown_policy_is_a_wrong_setting(picker):
    with pytest.raises(SettingsError, match="policy 'best'"):
        pick(picker, policy="best")


@pytest.mark.parametrize(
    ("field", "options"),
    [
        ("exclude", {"exclude": ["w1"]}),
        ("exclude", {"exclude": [("a", "a1")]}),
        ("exclude", {"exclude": "a1"}),
        ("exclude", {"exclude": 5}),
        ("exclude", {"exclude": [None]}),
        ("rng", {"rng": 5}),
        ("policy's choice", {"policy": lambda _: None}),
        ("policy's choice", {"policy": lambda _: "a1"}),
        ("policy's choice", {"policy": lambda _: FOUR.worker("prod", "q1")}),
    ],
)
def test_a_wrong_wish_is_a_wrong_setting(picker, field, options):
    for choose in (picker.pick, picker.pick_group):
        with pytest.raises(SettingsError) as caught:
            choose(FOUR, WANTED, Ask(**options))
        assert caught.value.field == field


@pytest.mark.parametrize("for_s", [inf, -inf, nan, -1, "x", None, True, 10**400])
def test_only_a_finite_time_ejects(picker, for_s):
    """An infinite one would silence what a router tells of itself: JSON has none."""
    with pytest.raises(SettingsError, match=r"for_s .* finite number"):
        picker.eject(FOUR.worker("a", "a1"), for_s)
    with pytest.raises(SettingsError, match="worker 'a1'"):
        picker.eject("a1", 5)
    assert picker.ejections == ()
    picker.eject(FOUR.worker("a", "a1"), 0)


@pytest.mark.parametrize("policy", ["weighted_random", "round_robin", "least_loaded"])
def test_the_ejected_are_not_picked_for_a_while(picker, clock, policy):
    picker.eject(FOUR.worker("a", "a1"), 5)
    assert picker.ejections == ((("a", "a1"), 5),)
    assert "a1" not in ids(picker, 100, policy=policy)
    clock.time = 5
    assert "a1" in ids(picker, 100, policy=policy)
    assert picker.ejected == ()


def test_leaving_one_out_leaves_the_others_shares_as_they_are(picker):
    """As it would be over the rest: each worker by its namespace's weight."""
    fleet = fleet_after(
        *(registered(f"a{n}", namespace="a") for n in range(3)),
        *(registered(f"b{n}", namespace="b") for n in range(2)),
        weighted(0.5, namespace="b"),
    )
    out = [fleet.worker("a", "a0")]
    seen = Counter(ids(picker, 6000, fleet=fleet, rng=seeded(3), exclude=out))
    assert seen["a0"] == 0
    for worker, share in {"a1": 1 / 3, "a2": 1 / 3, "b0": 1 / 6, "b1": 1 / 6}.items():
        assert seen[worker] / 6000 == pytest.approx(share, abs=0.03)


KEYS = [f"k{n}" for n in range(300)]


def by_key(picker, fleet, **options):
    """The worker of each key by consistent_hash."""
    options = {"fleet": fleet, "policy": "consistent_hash", **options}
    return [pick(picker, key=key, **options).worker_id for key in KEYS]


def test_the_keys_of_one_kept_out_go_where_they_go_when_it_leaves(picker, clock):
    """One death must not warm the caches of two."""
    steps = [registered(f"w{n}") for n in range(8)]
    fleet, without = fleet_after(*steps), fleet_after(*steps[:3], *steps[4:])
    gone, out = by_key(picker_of(clock), without), fleet.worker("prod", "w3")
    assert by_key(picker, fleet, exclude=[out]) == gone
    picker.eject(out, 5)
    assert by_key(picker, fleet) == gone
    others = [fleet.worker("prod", f"w{n}") for n in range(8) if n != 5]
    assert set(by_key(picker, fleet, exclude=others)) == {"w5"}


def test_so_do_those_of_a_group_that_is_kept_out(picker, clock):
    steps = [
        registered(
            f"d{n}", role=Role.DECODE, needs=[[Role.PREFILL]], namespace=f"ns-{n}"
        )
        for n in range(4)
    ]
    steps += [registered("p", role=Role.PREFILL, namespace=f"ns-{n}") for n in range(4)]
    fleet, without = fleet_after(*steps), fleet_after(*steps[:7])

    def entries(picker, fleet, *out):
        asks = [Ask("consistent_hash", key, exclude=out) for key in KEYS]
        groups = [picker.pick_group(fleet, WANTED, ask) for ask in asks]
        return [group[Role.DECODE].worker_id for group in groups]

    gone = entries(picker_of(clock), without)
    assert entries(picker, fleet, fleet.worker("ns-3", "p")) == gone
    assert set(gone) == {"d0", "d1", "d2"}


def test_the_keys_of_a_busy_one_go_where_they_go_when_it_leaves():
    steps = [registered(f"w{n}") for n in range(5)]
    router = Router(fleet_after(*steps, thresholds(busy_running=5)))
    router.hear("w1", running=9)
    gone = Router(fleet_after(*steps[:1], *steps[2:]))
    assert by_key(router.picker, router.fleet) == by_key(gone.picker, gone.fleet)
    out = router.fleet.worker("prod", "w2")
    kept_out = by_key(router.picker, router.fleet, exclude=[out])
    gone = Router(fleet_after(*steps[:1], *steps[3:]))
    assert kept_out == by_key(gone.picker, gone.fleet)
    assert router.tally.all_busy == 0
    others = [router.fleet.worker("prod", f"w{n}") for n in range(5) if n != 1]
    assert set(by_key(router.picker, router.fleet, exclude=others)) == {"w1"}
    assert router.tally.all_busy == len(KEYS)


def test_the_last_one_left_is_found_however_many_are_left_out(picker):
    fleet = fleet_after(*(registered(f"w{n:02}") for n in range(40)))
    out = [fleet.worker("prod", f"w{n:02}") for n in range(39)]
    for policy in POLICIES:
        options = {"exclude": out, "policy": policy, "key": "any"}
        assert set(ids(picker, 20, fleet=fleet, **options)) == {"w39"}


def test_nobody_left_is_unavailable_and_says_why(picker):
    fleet = fleet_after(registered("a"), registered("b"), held("b"))
    picker.eject(fleet.worker("prod", "a"), 5)
    with pytest.raises(ModelUnavailableError) as caught:
        pick(picker, fleet=fleet)
    assert caught.value.reasons == {"ejected": 1, "held": 1}
    with pytest.raises(ModelUnavailableError) as caught:
        pick(picker, fleet=fleet, exclude=workers_of(fleet))
    assert caught.value.reasons == {"excluded": 2, "held": 1}
    assert picker._tally.failed["model_unavailable"] == 2
    assert picker._tally.picked == 0


def test_asking_for_names_that_nobody_serves_leaves_no_trace(picker):
    fleet = fleet_after(registered("a"), loaded("a", "sql"))
    for n in range(100):
        with pytest.raises(ModelNotFoundError):
            pick(picker, fleet=fleet, wanted=Wanted(model=f"no-{n}"))
        with pytest.raises(ModelUnavailableError):
            pick(picker, fleet=fleet, wanted=Wanted(model=MODEL, capability=f"{n}"))
    assert len(fleet.memo) == 1  # the WorkerSets of the model that there is
    assert picker._tally.failed["model_not_found"] == 100


def test_turns_do_not_pile_up(picker, monkeypatch):
    monkeypatch.setattr("controlplane.router.picker.TURNS_MAX", 2)
    for namespace in ("a", "b", None, "a"):
        wanted = Wanted(model=MODEL, namespace=namespace)
        pick(picker, wanted=wanted, policy="round_robin")
    assert len(picker._turns) <= 2
