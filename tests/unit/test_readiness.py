"""Live, ready, routable: what the facts of a namespace and the settings mean."""

import pytest

from events import Role, Status
from projections.readiness import meanings, missing_roles
from tests.support.fleet_builder import (
    C1,
    C2,
    MODEL,
    NAMESPACE,
    deregistered,
    draining,
    fleet_after,
    held,
    registered,
    resumed,
    starting,
    state_after,
    status,
    weighted,
)

AGGREGATED, DECODE = Role.AGGREGATED, Role.DECODE
PREFILL, ENCODE = Role.PREFILL, Role.ENCODE


def role(worker, value, *needs, **fields):
    return registered(worker, role=value, needs=needs, **fields)


NEEDY = role("d1", DECODE, [PREFILL])
PREFILLER = role("p1", PREFILL)


@pytest.mark.parametrize(
    ("steps", "serving", "missing"),
    [
        ([], None, None),
        ([role("a1", AGGREGATED)], True, []),
        ([role("d1", DECODE)], True, []),
        ([role("p1", PREFILL)], False, []),
        ([role("e1", ENCODE)], False, []),
        ([NEEDY], False, ["prefill"]),
        ([NEEDY, PREFILLER], True, []),
        ([NEEDY, PREFILLER, held("p1")], False, ["prefill"]),
        ([NEEDY, PREFILLER, held("p1"), resumed("p1")], True, []),
        ([NEEDY, PREFILLER, draining("p1")], False, ["prefill"]),
        ([NEEDY, PREFILLER, deregistered("p1")], False, ["prefill"]),
        ([NEEDY, role("p1", PREFILL, namespace="other")], False, ["prefill"]),
        ([NEEDY, role("p1", PREFILL, model="other")], False, ["prefill"]),
        ([NEEDY, role("p1", PREFILL, component="other")], True, []),
        ([role("d1", DECODE, [PREFILL, ENCODE])], False, ["encode", "prefill"]),
        ([role("d1", DECODE, [PREFILL, ENCODE]), PREFILLER], False, ["encode"]),
        ([role("d1", DECODE, [PREFILL, ENCODE], [PREFILL]), PREFILLER], True, []),
        ([role("d1", DECODE, [])], True, []),
    ],
)
def test_readiness(steps, serving, missing):
    fleet = fleet_after(*steps)
    model = fleet.models.get(MODEL)
    assert (model and model.serving) == serving
    if model is not None:
        needy = [s for s in model.worker_sets.values() if "d1" in s.workers]
        for worker_set in needy or model.worker_sets.values():
            assert [r.value for r in worker_set.missing_roles] == missing
            assert worker_set.ready == (not missing)


def test_a_starting_worker_with_needs_never_takes_a_namespace_down():
    steps = [role("a1", AGGREGATED), starting("d1", role=DECODE, needs=[[PREFILL]])]
    fleet = fleet_after(*steps)
    assert fleet.models[MODEL].serving
    assert fleet.worker(NAMESPACE, "a1").routable
    assert fleet.worker(NAMESPACE, "d1").blockers == ("starting", "needs_unmet")


def test_only_live_workers_make_a_set_ready():
    fleet = fleet_after(starting("w1"))
    (worker_set,) = fleet.models[MODEL].worker_sets.values()
    assert not worker_set.ready
    assert worker_set.missing_roles == ()


def test_a_quarantined_helper_helps_nobody():
    first = starting("p1", role=PREFILL, card=C1)
    steps = [first, role("p2", PREFILL, card=C2), NEEDY]
    assert fleet_after(*steps).worker(NAMESPACE, "d1").blockers == ("needs_unmet",)


@pytest.mark.parametrize(
    ("needs", "live", "missing"),
    [
        ((), set(), ()),
        (((),), set(), ()),
        (((PREFILL,),), {PREFILL}, ()),
        (((PREFILL,),), {DECODE}, (PREFILL,)),
        (((PREFILL, ENCODE), (PREFILL,)), set(), (PREFILL,)),
        (((PREFILL,), (ENCODE,)), set(), (ENCODE,)),
        (((ENCODE,), (PREFILL,)), set(), (ENCODE,)),
        (((PREFILL, PREFILL),), set(), (PREFILL,)),
    ],
)
def test_the_least_lacking_alternative_says_what_is_missing(needs, live, missing):
    assert missing_roles(needs, live) == missing


@pytest.mark.parametrize(
    ("steps", "weight", "routable"),
    [
        ([], 1.0, True),
        ([weighted(0.5)], 0.5, True),
        ([weighted(0)], 0.0, False),
        ([weighted(-1)], -1.0, False),
        ([weighted(0, model="*")], 0.0, False),
        ([weighted(0, model="*"), weighted(2)], 2.0, True),
        ([weighted(2), weighted(0, model="*")], 2.0, True),
        ([weighted(0, namespace="other")], 1.0, True),
        ([weighted(0, model="other")], 1.0, True),
        ([weighted(0), weighted(1)], 1.0, True),
    ],
)
def test_weights(steps, weight, routable):
    fleet = fleet_after(registered("w1"), *steps)
    (worker_set,) = fleet.models[MODEL].worker_sets.values()
    assert worker_set.weight == weight
    assert worker_set.ready
    assert worker_set.workers["w1"].routable is routable
    assert fleet.models[MODEL].serving is routable


def test_a_hold_outlives_lives_and_may_come_first():
    life = registered("w1")
    for steps in (
        [life, held("w1")],
        [held("w1"), life],
        [life, held("w1"), deregistered("w1"), life],
        [life, held("w1"), life],
    ):
        assert fleet_after(*steps).worker(NAMESPACE, "w1").blockers == ("held",)
        after = fleet_after(*steps, resumed("w1"))
        assert after.worker(NAMESPACE, "w1").routable


def test_a_hold_is_for_one_namespace():
    fleet = fleet_after(registered("w1"), held("w1", namespace="other"))
    assert fleet.worker(NAMESPACE, "w1").routable


@pytest.mark.parametrize(
    ("value", "name"),
    [
        (Status.STARTING, "starting"),
        (Status.DRAINING, "draining"),
        (Status.DRAINED, "drained"),
    ],
)
def test_every_reason_is_named_in_order(value, name):
    steps = [
        role("d1", DECODE, [PREFILL]),
        role("d2", DECODE, [ENCODE]),
        status("d2", value),
        held("d2"),
        weighted(0),
    ]
    worker = fleet_after(*steps).worker(NAMESPACE, "d2")
    assert worker.blockers == (
        name,
        "held",
        "checksum_mismatch",
        "needs_unmet",
        "weight_zero",
    )
    assert not worker.routable


def test_a_model_that_nobody_serves_has_no_sets():
    assert meanings(state_after().fleet_state, MODEL) == ()


def test_entry_roles_are_where_requests_start():
    state = state_after(NEEDY, PREFILLER).fleet_state
    assert {m.key.role: m.is_entry for m in meanings(state, MODEL)} == {
        DECODE: True,
        PREFILL: False,
    }


def test_a_set_without_cohorts_has_no_needs_and_nobody_admitted():
    (meaning,) = meanings(state_after(NEEDY).fleet_state, MODEL)
    bare = type(meaning.members)(meaning.members.workers, (), {})
    assert (bare.checksum, bare.needs, bare.ready) == (None, (), ())
