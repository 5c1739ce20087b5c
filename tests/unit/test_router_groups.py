"""Picks by key, and whole groups."""

import pytest

from controlplane.errors import SettingsError
from controlplane.router.picker import Ask
from events import Role
from projections import ModelUnavailableError
from tests.support.fleet_builder import fleet_after, registered
from tests.support.load_router import NAMED, WANTED, Router, three


# ---- consistent_hash ---------------------------------------------------------------
def test_equal_keys_go_to_one_worker_and_others_elsewhere():
    router = Router(three())
    assert len({router.pick("consistent_hash", "a") for _ in range(20)}) == 1
    assert len(router.picks(100, "consistent_hash")) == 3


@pytest.mark.parametrize("key", [None, 7, b"k"])
def test_consistent_hash_needs_a_key(key):
    with pytest.raises(SettingsError, match="key") as refused:
        Router(three()).pick("consistent_hash", key)
    assert refused.value.field == "key"


def test_the_keys_of_one_that_is_ejected_go_elsewhere_and_come_back():
    router = Router(three())
    keys = [f"k{n}" for n in range(200)]
    before = {key: router.pick("consistent_hash", key) for key in keys}
    router.picker.eject(router.fleet.worker("prod", "w1"), 5)
    away = {key: router.pick("consistent_hash", key) for key in keys}
    assert {before[k] for k in keys if before[k] != away[k]} == {"w1"}
    assert set(away.values()) == {"w2", "w3"}
    router.clock.time = 6.0
    assert {key: router.pick("consistent_hash", key) for key in keys} == before


# ---- groups ------------------------------------------------------------------------
def disaggregated(*namespaces):
    steps = []
    for name in namespaces:
        for n in range(2):
            steps += [
                registered(
                    f"{name}-d{n}",
                    namespace=name,
                    role=Role.DECODE,
                    needs=[[Role.PREFILL]],
                ),
                registered(f"{name}-p{n}", namespace=name, role=Role.PREFILL),
            ]
    return fleet_after(*steps)


@pytest.mark.parametrize("policy", [*NAMED, lambda workers: workers[-1]])
def test_a_group_is_of_one_namespace(policy):
    router = Router(disaggregated("a", "b"))
    for n in range(40):
        ask = Ask(policy, f"k{n}", router.rng)
        group = router.picker.pick_group(router.fleet, WANTED, ask)
        assert set(group) == {Role.DECODE, Role.PREFILL}
        assert len({worker.namespace for worker in group.values()}) == 1
        assert all(worker.role is role for role, worker in group.items())
    assert router.tally.picked == 40


def test_a_fleet_without_needs_gives_a_group_of_one():
    router = Router(three())
    group = router.picker.pick_group(router.fleet, WANTED, Ask())
    assert list(group) == [Role.AGGREGATED]


def test_a_group_leaves_out_the_ejected_of_every_role():
    router = Router(disaggregated("a", "b"))
    for worker in ("a-p0", "a-p1", "b-d0"):
        router.picker.eject(router.fleet.worker(worker[0], worker), 60)
    for _ in range(20):
        group = router.picker.pick_group(router.fleet, WANTED, Ask(rng=router.rng))
        assert group[Role.DECODE].worker_id == "b-d1"
        assert group[Role.PREFILL].namespace == "b"


def test_nobody_to_complete_a_group_is_counted_as_a_failed_pick():
    router = Router(disaggregated("a"))
    for worker in ("a-p0", "a-p1"):
        router.picker.eject(router.fleet.worker("a", worker), 60)
    with pytest.raises(ModelUnavailableError) as caught:
        router.picker.pick_group(router.fleet, WANTED, Ask())
    assert caught.value.reasons == {"needs_unmet": 2}
    assert router.tally.failed["model_unavailable"] == 1
    assert router.tally.picked == 0


def test_partners_are_the_least_loaded_too():
    router = Router(disaggregated("a"))
    for worker, running in (("d0", 9), ("d1", 0), ("p0", 0), ("p1", 9)):
        router.hear(f"a-{worker}", namespace="a", running=running)
    group = router.picker.pick_group(router.fleet, WANTED, Ask("least_loaded"))
    assert {w.worker_id for w in group.values()} == {"a-d1", "a-p0"}
