"""Picking: who will do, in which share, and why nobody does."""

import random
from collections import Counter

import pytest

from events import Role
from projections import (
    Fleet,
    ModelNotFoundError,
    ModelUnavailableError,
    Wanted,
    build,
    candidates,
    pick_in_turn,
    pick_weighted,
)
from tests.support.fleet_builder import (
    C2,
    MODEL,
    NAMESPACE,
    deregistered,
    draining,
    fleet_after,
    forgotten,
    held,
    loaded,
    registered,
    starting,
    state_after,
    unloaded,
    weighted,
)

PICKS = 10_000


def able(fleet, exclude=(), visible=None, **wanted):
    """The ids of the workers that will do."""
    found = candidates(fleet, Wanted(**{"model": MODEL, **wanted}), exclude, visible)
    return [worker.worker_id for worker in found.workers(fleet)]


def shares(fleet, count=PICKS, seed=1, **wanted):
    """How often each worker is picked."""
    rng = random.Random(seed)
    found = candidates(fleet, Wanted(**{"model": MODEL, **wanted}))
    return Counter(pick_weighted(fleet, found, rng).worker_id for _ in range(count))


def refusal(fleet, exclude=(), visible=None, **wanted):
    with pytest.raises(ModelUnavailableError) as caught:
        able(fleet, exclude, visible, **wanted)
    return caught.value.reasons


def test_each_worker_of_a_set_gets_the_same_share():
    picked = shares(fleet_after(*(registered(f"w{n}") for n in range(4))))
    assert len(picked) == 4
    assert all(abs(n - PICKS / 4) < 0.05 * PICKS / 4 for n in picked.values())


@pytest.mark.parametrize(
    ("weight", "share"), [(1.0, 0.4), (0.5, 0.25), (3.0, 2 / 3), (0.0, 0.0), (1e9, 1.0)]
)
def test_sets_share_by_workers_times_weight(weight, share):
    new = {"namespace": "prod-v2"}
    steps = [registered(f"a{n}") for n in range(3)]
    steps += [registered(f"b{n}", card=C2, **new) for n in range(2)]
    picked = shares(fleet_after(*steps, weighted(weight, **new)))
    of_new = sum(count for worker, count in picked.items() if worker[0] == "b")
    assert abs(of_new - share * PICKS) <= 0.05 * PICKS * share


def test_enormous_and_tiny_weights_still_pick_someone():
    other = {"namespace": "other"}
    for weight in (1e308, 5e-324):
        steps = [registered("w1"), registered("w2"), weighted(weight)]
        fleet = fleet_after(
            *steps, registered("w3", **other), weighted(weight, **other)
        )
        assert set(shares(fleet, count=50)) == {"w1", "w2", "w3"}


@pytest.mark.parametrize("number", [0.0, 0.25, 0.5, 0.999999, 1 - 2**-53])
def test_every_random_number_picks_someone(number):
    class Same:
        def random(self):
            return number

    steps = [registered(f"w{n}", namespace=f"ns{n % 3}") for n in range(7)]
    fleet = fleet_after(*steps)
    found = candidates(fleet, Wanted(model=MODEL))
    assert pick_weighted(fleet, found, Same()).routable


def test_equal_fleets_with_equal_seeds_pick_the_same_whatever_their_past():
    names = [f"w{n}" for n in range(20)]
    past = [registered("old"), *map(registered, names), deregistered("old")]
    state = state_after(*past).fleet_state
    one = Fleet(state, revision=30)
    two = Fleet(build(reversed(list(state.entities()))), revision=30)
    assert one == two
    wanted = Wanted(model=MODEL)
    picks = []
    for fleet in (one, two):
        rng = random.Random(7)
        found = candidates(fleet, wanted)
        picks.append([pick_weighted(fleet, found, rng) for _ in range(200)])
    assert picks[0] == picks[1]


def test_only_routable_workers_are_picked():
    fleet = fleet_after(
        registered("good"),
        starting("starting"),
        registered("leaving"),
        draining("leaving"),
        registered("held"),
        held("held"),
        registered("other", card=C2),
        registered("cordoned", namespace="off"),
        weighted(0, namespace="off"),
        registered("needy", component="d", role=Role.DECODE, needs=[["prefill"]]),
    )
    assert able(fleet) == ["good"]


def test_without_a_role_requests_start_at_entry_roles():
    roles = {role: registered(role.value, role=role) for role in Role}
    fleet = fleet_after(*roles.values())
    assert able(fleet) == ["aggregated", "decode"]
    for role in Role:
        assert able(fleet, role=role) == [role.value]


def test_workers_are_filtered_by_what_they_can():
    fleet = fleet_after(
        registered("w1", capabilities=("tools",)),
        registered("w2", adapters=("lora",)),
        registered("w3", namespace="other"),
    )
    assert able(fleet) == ["w3", "w1", "w2"]
    assert able(fleet, capability="tools") == ["w1"]
    assert able(fleet, adapter="lora") == ["w2"]
    assert able(fleet, namespace="other") == ["w3"]
    assert refusal(fleet, capability="vision") == {"no_match": 3}
    assert refusal(fleet, adapter="nothing") == {"no_match": 3}
    assert refusal(fleet, namespace="nowhere") == {"no_match": 3}
    assert refusal(fleet, role=Role.PREFILL) == {"no_match": 3}


def test_what_is_excluded_is_not_picked():
    fleet = fleet_after(registered("w1"), registered("w2"), starting("w3"))
    assert able(fleet, exclude=[(NAMESPACE, "w1")]) == ["w2"]
    assert able(fleet, exclude=[("other", "w1")]) == ["w1", "w2"]
    both = {(NAMESPACE, "w1"), (NAMESPACE, "w2"), (NAMESPACE, "w3")}
    assert refusal(fleet, exclude=both) == {"excluded": 3, "starting": 1}
    assert able(fleet) == ["w1", "w2"]


def test_whoever_excludes_may_say_why():
    fleet = fleet_after(registered("w1"), registered("w2"))
    why = {(NAMESPACE, "w1"): "ejected", (NAMESPACE, "w2"): "excluded"}
    assert refusal(fleet, exclude=why) == {"ejected": 1, "excluded": 1}


def test_what_is_wrong_with_a_partner_is_why_nobody_does():
    decode = registered("d", role=Role.DECODE, needs=[[Role.PREFILL]])
    other = starting("p", role=Role.PREFILL, namespace="other")
    fleet = fleet_after(decode, starting("p", role=Role.PREFILL), other)
    assert refusal(fleet) == {"needs_unmet": 1, "starting": 1, "no_match": 1}
    assert refusal(fleet, role=Role.DECODE) == {"needs_unmet": 1, "no_match": 2}
    assert refusal(fleet, capability="vision") == {"no_match": 3}


def test_only_who_has_the_adapter_says_why_it_is_not_picked():
    having = starting("w1", adapters=("sql",))
    needy = {"role": Role.DECODE, "needs": [[Role.PREFILL]], "namespace": "other"}
    fleet = fleet_after(having, registered("d", **needy))
    assert refusal(fleet, model="sql") == {"starting": 1, "no_match": 1}
    assert refusal(fleet, adapter="sql") == {"starting": 1, "no_match": 1}
    assert refusal(fleet, model="sql", exclude=[("other", "d")]) == {
        "starting": 1,
        "no_match": 1,
    }


def test_only_visible_namespaces_are_picked():
    fleet = fleet_after(registered("w1"), registered("w2", namespace="prod2"))
    assert able(fleet, visible=lambda name: name == NAMESPACE) == ["w1"]
    assert refusal(fleet, visible=lambda _: False) == {}


def test_the_lens_of_a_fleet_holds_for_picks_too():
    state = state_after(registered("w1"), registered("w2", namespace="prod2"))
    fleet = Fleet(state.fleet_state, visible=NAMESPACE.__eq__)
    assert able(fleet) == ["w1"]
    assert able(fleet, visible=lambda name: name == "prod2") == ["w2"]


def test_an_adapter_is_a_name_to_ask_for():
    fleet = fleet_after(
        registered("w1", adapters=("sql",)),
        registered("w2", model="qwen"),
        loaded("w2", "sql"),
        registered("w3"),
    )
    assert able(fleet, model="sql") == ["w1", "w2"]
    assert set(shares(fleet, count=100, model="sql")) == {"w1", "w2"}


def test_a_base_model_of_the_same_name_takes_nothing_from_an_adapter():
    adapter = registered("w1", adapters=("sql",))
    for base in (registered("w2", model="sql"), starting("w2", model="sql")):
        assert "w1" in able(fleet_after(adapter, base), model="sql")
    assert able(fleet_after(adapter, registered("w2", model="sql")), model="sql") == [
        "w1",
        "w2",
    ]


def test_a_name_never_served_is_not_found():
    for fleet in (fleet_after(), fleet_after(registered("w1"))):
        with pytest.raises(ModelNotFoundError) as caught:
            able(fleet, model="gpt-5")
        assert caught.value.model == "gpt-5"
        assert "gpt-5" in str(caught.value)


def test_a_forgotten_name_is_not_found():
    with pytest.raises(ModelNotFoundError):
        able(fleet_after(registered("w1"), deregistered("w1"), forgotten()))


def test_a_known_name_without_workers_is_unavailable():
    fleet = fleet_after(registered("w1"), deregistered("w1"))
    assert refusal(fleet) == {}
    with pytest.raises(
        ModelUnavailableError, match=r"no routable worker \(no workers\)"
    ):
        able(fleet)
    unloading = fleet_after(registered("w1", adapters=("sql",)), unloaded("w1", "sql"))
    assert refusal(unloading, model="sql") == {}


def test_reasons_are_counted_and_sorted():
    fleet = fleet_after(
        starting("w1"),
        registered("w2", card=C2),
        registered("w3"),
        held("w3"),
        draining("w3"),
        starting("w4"),
    )
    with pytest.raises(ModelUnavailableError) as caught:
        able(fleet)
    reasons = {"checksum_mismatch": 1, "draining": 1, "held": 1, "starting": 2}
    assert caught.value.reasons == reasons
    assert list(caught.value.reasons) == sorted(reasons)
    assert "2 starting" in str(caught.value)


def test_in_turn_goes_all_around():
    names = [("w1", "a"), ("w2", "a"), ("w3", "b"), ("w4", "c"), ("w5", "c")]
    fleet = fleet_after(*(registered(w, namespace=ns) for w, ns in names))
    found = candidates(fleet, Wanted(model=MODEL))
    turns = [pick_in_turn(fleet, found, turn).worker_id for turn in range(-5, 10)]
    assert turns == ["w1", "w2", "w3", "w4", "w5"] * 3


def test_candidates_are_worked_out_once_per_fleet():
    fleet = fleet_after(registered("w1"))
    wanted = Wanted(model=MODEL)
    assert candidates(fleet, wanted) is candidates(fleet, Wanted(model=MODEL))
