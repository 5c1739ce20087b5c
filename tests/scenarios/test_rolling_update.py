"""S09. A generation replaces another, and traffic follows the workers that are live.

Four workers of prod-v1 serve; four of prod-v2 come one by one while those of v1 drain
one by one. At each step the share of picks of each namespace is that of its routable
workers by weight, no request finds nobody, and when v1's last worker goes its set goes
with it. The new generation runs another configuration, and that disturbs nobody.
"""

import random
from collections import Counter

import pytest

from events import Role
from projections import (
    ModelNotFoundError,
    ModelUnavailableError,
    Wanted,
    candidates,
    pick_weighted,
)
from tests.support.fleet_builder import (
    C1,
    C2,
    MODEL,
    deregistered,
    drained,
    draining,
    expired,
    fleet_of_story,
    given,
    ready,
    registered,
    starting,
    weighted,
)

V1, V2 = "prod-v1", "prod-v2"
PICKS = 10_000
WITHIN = 0.05
SIZE = 4
OLD = [registered(f"old-{n}", namespace=V1, card=C1) for n in range(SIZE)]


def replacement(n):
    """Each event of one worker coming and one going."""
    old, new = f"old-{n}", f"new-{n}"
    return [
        starting(new, namespace=V2, card=C2),
        ready(new, namespace=V2),
        draining(old, namespace=V1),
        drained(old, namespace=V1),
        deregistered(old, namespace=V1),
    ]


UPDATE = [step for n in range(SIZE) for step in replacement(n)]


def shares(fleet, **wanted):
    """The picks of each worker; raises if there is nobody."""
    rng = random.Random(9)
    found = candidates(fleet, Wanted(model=MODEL, **wanted))
    picked = (pick_weighted(fleet, found, rng) for _ in range(PICKS))
    return Counter((worker.namespace, worker.worker_id) for worker in picked)


def live(fleet):
    """What each live worker's share should be."""
    worth = {
        (worker.namespace, worker_id): worker_set.weight
        for worker_set in fleet.models[MODEL].worker_sets.values()
        for worker_id, worker in worker_set.workers.items()
        if worker.status.value == "ready" and worker_set.weight > 0
    }
    return {key: weight / sum(worth.values()) for key, weight in worth.items()}


def check_shares(fleet):
    """Picks go to exactly the live, to each namespace and worker its due."""
    picked, due = shares(fleet), live(fleet)
    assert set(picked) == set(due)
    assert sum(picked.values()) == PICKS
    for namespace in {namespace for namespace, _ in due}:
        share = sum(n for key, n in picked.items() if key[0] == namespace) / PICKS
        expected = sum(s for key, s in due.items() if key[0] == namespace)
        within = max(WITHIN * expected, by_chance(expected))
        assert share == pytest.approx(expected, abs=within), namespace
    for key, expected in due.items():
        within = by_chance(expected)
        assert picked[key] / PICKS == pytest.approx(expected, abs=within), key


def by_chance(share):
    """How far a small share may be off in so many picks: four sigma."""
    return 4 * (share * (1 - share) / PICKS) ** 0.5


def test_at_every_step_picks_follow_the_live_workers_and_never_fail():
    story = given(*OLD)
    check_shares(fleet_of_story(story))
    for step in UPDATE:
        story = story.then(step)
        check_shares(fleet_of_story(story))
    assert set(shares(fleet_of_story(story))) == {(V2, f"new-{n}") for n in range(SIZE)}


@pytest.mark.parametrize("weight", [0.1, 0.5, 2.0])
def test_a_canarys_weight_is_kept_at_every_step(weight):
    story = given(*OLD, weighted(weight, namespace=V2))
    for step in UPDATE:
        story = story.then(step)
        check_shares(fleet_of_story(story))


def test_a_cordoned_generation_gets_nothing_until_it_is_let_in():
    fresh = [registered(f"new-{n}", namespace=V2, card=C2) for n in range(SIZE)]
    story = given(*OLD, weighted(0, namespace=V2), *fresh)
    assert {namespace for namespace, _ in shares(fleet_of_story(story))} == {V1}
    swapped = story.then(weighted(1, namespace=V2), weighted(0, namespace=V1))
    assert {namespace for namespace, _ in shares(fleet_of_story(swapped))} == {V2}


@pytest.mark.parametrize("go", [deregistered, expired])
def test_the_emptied_set_vanishes_and_the_name_stays(go):
    story = given(*OLD, *UPDATE)
    fleet = fleet_of_story(story)
    (worker_set,) = fleet.models[MODEL].worker_sets.values()
    assert worker_set.namespace == V2
    with pytest.raises(ModelUnavailableError):
        shares(fleet, namespace=V1)
    emptied = story.then(*(go(f"new-{n}", namespace=V2) for n in range(SIZE)))
    fleet = fleet_of_story(emptied)
    assert MODEL not in fleet.models
    assert fleet.known_models == (MODEL,)
    with pytest.raises(ModelUnavailableError) as caught:
        shares(fleet)
    assert caught.value.reasons == {}
    with pytest.raises(ModelNotFoundError):
        candidates(fleet, Wanted(model="never-served"))


def test_a_generation_whose_roles_are_not_all_there_gets_nothing_yet():
    needs = [["prefill"]]

    def decoder(n, namespace):
        role = {"role": Role.DECODE, "needs": needs}
        return registered(f"d{n}", namespace=namespace, **role)

    prefill = {"role": Role.PREFILL}
    story = given(
        registered("p", namespace=V1, **prefill),
        *(decoder(n, V1) for n in range(SIZE)),
        *(decoder(n, V2) for n in range(SIZE)),
    )
    assert {namespace for namespace, _ in shares(fleet_of_story(story))} == {V1}
    complete = fleet_of_story(story.then(registered("p", namespace=V2, **prefill)))
    picked = shares(complete)
    share = sum(n for (namespace, _), n in picked.items() if namespace == V2) / PICKS
    assert share == pytest.approx(0.5, rel=WITHIN)
