"""Counting a deployment: by name and namespace, with what keeps workers away."""

import pytest

from events import Role
from projections import take_census, traffic_share
from tests.support.fleet_builder import (
    C2,
    MODEL,
    NAMESPACE,
    fleet_after,
    held,
    loaded,
    registered,
    starting,
    weighted,
)

V2 = {"namespace": "prod-v2"}
PREFILL = {"role": Role.PREFILL}
NEEDS = {"role": Role.DECODE, "needs": [[Role.PREFILL]]}


@pytest.mark.parametrize(
    ("steps", "routable", "blockers"),
    [
        ([], 0, {}),
        ([registered("w1"), registered("w2")], 2, {}),
        ([registered("w1"), registered("w2", **V2)], 1, {}),
        ([registered("w1"), registered("w2", model="other")], 1, {}),
        ([registered("w1"), starting("w2")], 1, {"starting": 1}),
        ([registered("w1"), registered("w2", card=C2)], 1, {"checksum_mismatch": 1}),
        (
            [starting("w1"), held("w1"), registered("w2"), held("w2")],
            0,
            {"held": 2, "starting": 1},
        ),
        ([registered("w1"), weighted(0)], 0, {"weight_zero": 1}),
        ([registered("w1", **NEEDS)], 0, {"needs_unmet": 1}),
        ([registered("w1", **NEEDS), registered("p1", **PREFILL)], 1, {}),
    ],
)
def test_who_may_be_picked_is_counted_and_why_the_others_may_not(
    steps, routable, blockers
):
    found = take_census(fleet_after(*steps), NAMESPACE, MODEL)
    assert (found.routable, found.blockers) == (routable, blockers)


def test_a_role_is_counted_when_it_is_asked_for():
    fleet = fleet_after(registered("w1", **NEEDS), registered("p1", **PREFILL))
    assert take_census(fleet, NAMESPACE, MODEL, Role.PREFILL).routable == 1
    assert take_census(fleet, NAMESPACE, MODEL, Role.ENCODE).routable == 0


def test_an_adapter_is_counted_where_it_is_loaded():
    steps = [registered("w1"), registered("w2"), registered("w3", **V2)]
    fleet = fleet_after(*steps, loaded("w1", "sql"), loaded("w3", "sql", **V2))
    assert take_census(fleet, NAMESPACE, "sql").routable == 1
    assert take_census(fleet, "prod-v2", "sql").routable == 1


EVEN = [registered(f"w{n}") for n in range(9)]
EVEN += [registered(f"v{n}", **V2) for n in range(9)]


@pytest.mark.parametrize(
    ("steps", "share"),
    [
        ([], None),
        ([starting("w1")], None),
        ([registered("w1"), weighted(0)], None),
        ([registered("w1")], 1.0),
        ([registered("w1", **V2)], 0.0),
        ([registered("w1"), registered("w2", **V2), registered("w3", **V2)], 1 / 3),
        ([registered("w1"), registered("w2", **V2), weighted(0.25, **V2)], 0.8),
        ([registered("w1", **NEEDS), registered("p1", **PREFILL)], 1.0),
        *(([*EVEN, weighted(w), weighted(w, **V2)], 0.5) for w in (1e308, 5e-324)),
    ],
)
def test_a_share_is_by_workers_and_weight_of_entry_roles(steps, share):
    assert traffic_share(fleet_after(*steps), NAMESPACE, MODEL) == share
