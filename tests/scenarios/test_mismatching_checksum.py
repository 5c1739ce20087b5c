"""S07. A worker with another configuration waits; it neither joins nor disturbs.

Three workers serve a model in a namespace. A fourth registers in their WorkerSet with
a card that would change answers. The three keep serving, the fourth is visible with
its checksum beside the one in force, gets no traffic, and its client can read why (the
leader tells it so in a notice, which the projector's tests cover). Registered in a
namespace of its own, the same worker is a second set of the same model and serves.
"""

import random
from collections import Counter

from projections import Wanted, candidates, pick_weighted
from tests.support.fleet_builder import (
    C1,
    C2,
    MODEL,
    NAMESPACE,
    deregistered,
    fleet_after,
    registered,
)

THREE = [registered(f"w{n}", card=C1) for n in (1, 2, 3)]
NEWCOMER = registered("new", card=C2)


def picked(fleet):
    rng = random.Random(1)
    found = candidates(fleet, Wanted(model=MODEL))
    return Counter(pick_weighted(fleet, found, rng).worker_id for _ in range(1000))


def test_the_incumbents_keep_serving_and_the_newcomer_is_quarantined():
    fleet = fleet_after(*THREE, NEWCOMER)
    assert set(picked(fleet)) == {"w1", "w2", "w3"}
    (worker_set,) = fleet.models[MODEL].worker_sets.values()
    newcomer = worker_set.workers["new"]
    assert newcomer.blockers == ("checksum_mismatch",)
    assert newcomer.checksum != worker_set.checksum
    assert worker_set.checksum == worker_set.workers["w1"].checksum
    assert worker_set.ready


def test_in_a_namespace_of_its_own_it_is_a_second_set():
    fleet = fleet_after(*THREE, registered("new", card=C2, namespace="prod-v2"))
    assert set(picked(fleet)) == {"w1", "w2", "w3", "new"}
    sets = fleet.models[MODEL].worker_sets
    assert [key.namespace for key in sets] == [NAMESPACE, "prod-v2"]
    assert len({worker_set.checksum for worker_set in sets.values()}) == 2


def test_when_the_last_incumbent_leaves_it_takes_over_with_no_event_of_its_own():
    steps = [*THREE, NEWCOMER]
    for n in (1, 2, 3):
        assert "new" not in picked(fleet_after(*steps))
        steps.append(deregistered(f"w{n}"))
    assert set(picked(fleet_after(*steps))) == {"new"}
