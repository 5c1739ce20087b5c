"""S12. What a set needs goes: it is not ready. It comes back: every set is ready again.

Decode sets in two namespaces, several in one of them, need prefill; one of them also
takes encode instead. However prefill is lost (a goodbye, an expiry, a hold, draining,
not ready again), every set that needs it there is out, says which role is missing, and
nobody else is. When it returns, all of them are back, not only the first, and whoever
follows changes is told of each.
"""

import pytest

from events import Role, Status
from projections import (
    Fleet,
    FoldState,
    ModelUnavailableError,
    Touched,
    Wanted,
    candidates,
    fold_all,
    step,
    worker_changes,
)
from tests.support.fleet_builder import (
    MODEL,
    deregistered,
    draining,
    expired,
    fleet_of_story,
    given,
    held,
    ready,
    registered,
    resumed,
    status,
)

PREFILL, ENCODE, DECODE = Role.PREFILL, Role.ENCODE, Role.DECODE
NEEDY = {"role": DECODE, "needs": [["prefill"]]}
FLEXIBLE = {"role": DECODE, "needs": [["prefill"], ["encode"]]}


def prefill(namespace, **fields):
    return registered("p", namespace=namespace, role=PREFILL, **fields)


ALL = given(
    *(prefill(namespace) for namespace in ("ns1", "ns2")),
    *(
        registered(f"d{n}", namespace="ns1", component=f"c{n}", **NEEDY)
        for n in range(3)
    ),
    registered("any", namespace="ns1", component="flexible", **FLEXIBLE),
    registered("d0", namespace="ns2", **NEEDY),
    registered("whole", namespace="ns2"),
)
DEPENDENT = {("ns1", worker) for worker in ("d0", "d1", "d2", "any")}
WAYS = {
    "goodbye": (deregistered, prefill),
    "expiry": (lambda w, namespace: expired(w, namespace=namespace), prefill),
    "hold": (held, lambda namespace: resumed("p", namespace=namespace)),
    "draining": (draining, lambda namespace: ready("p", namespace=namespace)),
    "starting again": (
        lambda w, namespace: status(w, Status.STARTING, namespace=namespace),
        lambda namespace: ready("p", namespace=namespace),
    ),
}


def entries(fleet):
    """Where a request for the model may start."""
    try:
        found = candidates(fleet, Wanted(model=MODEL)).workers(fleet)
    except ModelUnavailableError:
        return set()
    return {(worker.namespace, worker.worker_id) for worker in found}


@pytest.mark.parametrize("way", WAYS)
def test_all_dependents_go_and_all_come_back(way):
    lose, restore = WAYS[way]
    everyone = entries(fleet_of_story(ALL))
    assert everyone == {*DEPENDENT, ("ns2", "d0"), ("ns2", "whole")}
    lost = ALL.then(lose("p", namespace="ns1"))
    fleet = fleet_of_story(lost)
    assert entries(fleet) == {("ns2", "d0"), ("ns2", "whole")}
    for key, worker_set in fleet.models[MODEL].worker_sets.items():
        if key.namespace == "ns1" and key.role is DECODE:
            missing = (ENCODE,) if key.component == "flexible" else (PREFILL,)
            assert worker_set.missing_roles == missing
            assert not worker_set.ready
    assert entries(fleet_of_story(lost.then(restore("ns1")))) == everyone


def test_the_same_loss_elsewhere_leaves_the_others_alone():
    fleet = fleet_of_story(ALL.then(deregistered("p", namespace="ns2")))
    assert entries(fleet) == {*DEPENDENT, ("ns2", "whole")}
    assert fleet.worker("ns2", "d0").blockers == ("needs_unmet",)


def test_losing_all_prefill_leaves_what_needs_none():
    goodbyes = [deregistered("p", namespace=name) for name in ("ns1", "ns2")]
    assert entries(fleet_of_story(ALL.then(*goodbyes))) == {("ns2", "whole")}


def test_one_alternative_is_enough():
    encode = registered("e", namespace="ns1", role=ENCODE)
    fleet = fleet_of_story(ALL.then(encode, deregistered("p", namespace="ns1")))
    assert ("ns1", "any") in entries(fleet)
    assert ("ns1", "d0") not in entries(fleet)


def test_losing_decode_leaves_prefill_that_nobody_can_enter():
    goodbyes = [
        deregistered(worker, namespace=namespace)
        for namespace, worker in sorted(entries(fleet_of_story(ALL)))
    ]
    fleet = fleet_of_story(ALL.then(*goodbyes))
    assert not fleet.models[MODEL].serving
    with pytest.raises(ModelUnavailableError):
        candidates(fleet, Wanted(model=MODEL))
    helpers = candidates(fleet, Wanted(model=MODEL, role=PREFILL)).workers(fleet)
    assert len(helpers) == 2


def test_who_follows_changes_is_told_of_every_dependent_both_times():
    story = ALL.then(deregistered("p", namespace="ns1"), prefill("ns1"))
    state = fold_all(FoldState(), ALL)
    told = []
    for record in story[len(ALL) :]:
        before, folded = Fleet(state.fleet_state), step(state, record)
        state, touched = folded.state, Touched()
        touched.add(folded.changes, before)
        changes = worker_changes(before, Fleet(state.fleet_state), touched)
        told.append(
            {(c.before.namespace, c.before.worker_id) for c in changes if c.before}
        )
    lost, returned = told
    assert lost == {*DEPENDENT, ("ns1", "p")}
    assert returned == DEPENDENT
