"""Two live sets of one role: nobody can say which belongs to which; both serve on."""

import pytest

from events import Role
from projections import Fleet, Wanted, candidates
from tests.support.fleet_builder import (
    MODEL,
    NAMESPACE,
    deregistered,
    draining,
    fleet_after,
    held,
    registered,
    starting,
    weighted,
)

AGGREGATED, DECODE, PREFILL = Role.AGGREGATED, Role.DECODE, Role.PREFILL
OTHER = {"component": "other"}


def several(role, **fields):
    """Two workers of the role, in two WorkerSets."""
    return [
        registered("one", role=role),
        registered("two", role=role, **{**OTHER, **fields}),
    ]


@pytest.mark.parametrize(
    ("steps", "ambiguous"),
    [
        ([], ()),
        (several(PREFILL), ((NAMESPACE, PREFILL),)),
        (several(Role.ENCODE), ((NAMESPACE, Role.ENCODE),)),
        (several(DECODE), ((NAMESPACE, DECODE),)),
        (several(AGGREGATED), ()),
        (several(PREFILL, namespace="prod-v2"), ()),
        (several(PREFILL, model="other"), ()),
        (several(PREFILL, component="backend", endpoint="x"), ((NAMESPACE, PREFILL),)),
        ([*several(PREFILL), draining("two")], ()),
        ([*several(PREFILL), held("two")], ()),
        ([registered("one", role=PREFILL), starting("two", role=PREFILL, **OTHER)], ()),
        ([*several(PREFILL), deregistered("one")], ()),
        ([*several(PREFILL), weighted(0)], ((NAMESPACE, PREFILL),)),
        (several(DECODE, needs=[["prefill"]]), ((NAMESPACE, DECODE),)),
        (
            [*several(PREFILL), registered("three", role=PREFILL, endpoint="third")],
            ((NAMESPACE, PREFILL),),
        ),
        (
            [
                *several(PREFILL),
                registered("d", namespace="a", role=DECODE),
                registered("e", namespace="a", role=DECODE, **OTHER),
            ],
            (("a", DECODE), (NAMESPACE, PREFILL)),
        ),
    ],
)
def test_several_live_sets_of_a_role_are_ambiguous(steps, ambiguous):
    fleet = fleet_after(registered("usual"), *steps)
    assert fleet.models[MODEL].ambiguous == ambiguous
    read = Fleet.from_json(fleet.to_json()).models[MODEL]
    assert read.ambiguous == ambiguous, "a document says as much"


def test_the_documents_keys_are_fixed():
    (model,) = fleet_after(*several(PREFILL)).document()["models"]
    assert set(model) == {"name", "serving", "worker_sets"}


def test_ambiguous_sets_keep_serving():
    needs = [["prefill"]]
    steps = [*several(PREFILL), registered("d", role=DECODE, needs=needs)]
    fleet = fleet_after(*steps)
    assert fleet.models[MODEL].serving
    found = candidates(fleet, Wanted(model=MODEL, role=PREFILL)).workers(fleet)
    assert {worker.worker_id for worker in found} == {"one", "two"}


def test_one_of_them_gone_the_other_is_enough():
    needs = [["prefill"]]
    steps = [*several(PREFILL), registered("d", role=DECODE, needs=needs)]
    fleet = fleet_after(*steps, deregistered("one"))
    assert fleet.models[MODEL].ambiguous == ()
    assert fleet.worker(NAMESPACE, "d").routable


def test_a_lens_shows_the_ambiguity_of_its_namespaces_only():
    state = fleet_after(*several(PREFILL), registered("d", namespace="a")).state
    seen = Fleet(state, visible=lambda namespace: namespace == "a")
    assert seen.models[MODEL].ambiguous == ()
