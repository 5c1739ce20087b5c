"""A WorkerSet's first checksum is in force; others wait in order of arrival."""

import pytest

from events import ModelCard, Role
from projections import WorkerSetKey, fold_all
from tests.support.fleet_builder import (
    C1,
    C2,
    MODEL,
    NAMESPACE,
    deregistered,
    expired,
    fleet_after,
    given,
    registered,
    starting,
    state_after,
)

C3 = ModelCard(kv_block_size=64)
KEY = WorkerSetKey(NAMESPACE, "backend", "generate", MODEL, Role.AGGREGATED)


def cohorts(*steps):
    """The order of the WorkerSet's cards after the steps, as their names."""
    (record, other, third) = (registered("x", card=card) for card in (C1, C2, C3))
    names = {
        given(step)[0].event.checksum: name
        for step, name in zip((record, other, third), ("c1", "c2", "c3"), strict=True)
    }
    members = state_after(*steps).fleet_state.members(KEY)
    return None if members is None else [names[c] for c in members.cohorts]


def routable(*steps):
    fleet = fleet_after(*steps)
    workers = [
        worker
        for model in fleet.models.values()
        for worker_set in model.worker_sets.values()
        for worker in worker_set.workers.values()
    ]
    return {worker.worker_id for worker in workers if worker.routable}


FIRST = registered("w1", card=C1)
SECOND = registered("w2", card=C2)
THIRD = registered("w3", card=C3)


@pytest.mark.parametrize(
    ("steps", "order", "serving"),
    [
        ([FIRST], ["c1"], {"w1"}),
        ([FIRST, registered("w2", card=C1)], ["c1"], {"w1", "w2"}),
        ([FIRST, SECOND], ["c1", "c2"], {"w1"}),
        ([SECOND, FIRST], ["c2", "c1"], {"w2"}),
        ([FIRST, SECOND, deregistered("w2")], ["c1"], {"w1"}),
        ([FIRST, SECOND, deregistered("w1")], ["c2"], {"w2"}),
        ([FIRST, SECOND, expired("w1")], ["c2"], {"w2"}),
        ([FIRST, SECOND, THIRD, deregistered("w1")], ["c2", "c3"], {"w2"}),
        ([FIRST, THIRD, SECOND, deregistered("w1")], ["c3", "c2"], {"w3"}),
        ([FIRST, deregistered("w1")], None, set()),
    ],
    ids=[
        "the first fixes it",
        "a match joins",
        "a mismatch waits",
        "whoever was first",
        "the waiting one leaves",
        "succession after farewell",
        "succession after expiry",
        "succession of the oldest",
        "oldest by arrival, not by name",
        "the last takes the set with it",
    ],
)
def test_admission(steps, order, serving):
    assert cohorts(*steps) == order
    assert routable(*steps) == serving


def test_an_incumbent_that_is_not_ready_still_keeps_others_out():
    assert routable(starting("w1", card=C1), SECOND) == set()


def test_the_cohort_lasts_as_long_as_one_of_it_does():
    steps = [FIRST, registered("w4", card=C1), SECOND, deregistered("w1")]
    assert cohorts(*steps) == ["c1", "c2"]
    assert routable(*steps) == {"w4"}


def test_an_emptied_cohort_is_forgotten_and_comes_back_last():
    steps = [FIRST, SECOND, THIRD, deregistered("w2"), SECOND]
    assert cohorts(*steps) == ["c1", "c3", "c2"]
    assert cohorts(*steps, deregistered("w1")) == ["c3", "c2"]


def test_a_new_life_with_the_same_card_keeps_the_place_of_its_cohort():
    assert cohorts(FIRST, SECOND, FIRST) == ["c1", "c2"]


def test_a_new_life_with_another_card_leaves_before_it_joins():
    assert cohorts(FIRST, SECOND, registered("w1", card=C2)) == ["c2"]
    assert cohorts(FIRST, registered("w1", card=C2)) == ["c2"]
    assert cohorts(FIRST, SECOND, registered("w1", card=C3)) == ["c2", "c3"]


def test_the_same_life_with_another_card_leaves_before_it_joins():
    again = registered("w1", life=1, card=C2)
    assert cohorts(FIRST, again) == ["c2"]
    assert cohorts(FIRST, SECOND, again) == ["c2"]
    assert routable(FIRST, SECOND, again) == {"w1", "w2"}
    assert cohorts(FIRST, registered("w4", card=C1), again) == ["c1", "c2"]


def test_a_worker_that_changes_sets_takes_its_old_set_along():
    moved = registered("w1", life=1, card=C1, role=Role.DECODE)
    state = state_after(FIRST, SECOND, moved).fleet_state
    assert cohorts(FIRST, SECOND, moved) == ["c2"]
    assert len(state.models[MODEL]) == 2
    assert len(state_after(FIRST, moved).fleet_state.models[MODEL]) == 1


def test_a_worker_that_changes_models_takes_its_old_model_along():
    moved = registered("w1", life=1, model="qwen")
    fleet = fleet_after(FIRST, moved)
    assert list(fleet.models) == ["qwen"]
    assert fleet.known_models == (MODEL, "qwen")


def test_needs_are_part_of_what_must_match():
    needy = registered("w2", card=C1, needs=((Role.PREFILL,),))
    worker = fleet_after(FIRST, needy).worker(NAMESPACE, "w2")
    assert worker.blockers == ("checksum_mismatch",)


def test_another_namespace_may_run_another_configuration():
    elsewhere = registered("w2", card=C2, namespace="prod-v2")
    assert routable(FIRST, elsewhere) == {"w1", "w2"}
    assert cohorts(FIRST, elsewhere, deregistered("w1")) is None


@pytest.mark.parametrize(
    "other",
    [{"component": "other"}, {"endpoint": "other"}, {"role": Role.DECODE}],
    ids=str,
)
def test_another_set_of_the_namespace_has_its_own_checksum(other):
    assert routable(FIRST, registered("w2", card=C2, **other)) == {"w1", "w2"}


def test_both_checksums_of_a_quarantined_worker_are_to_be_seen():
    fleet = fleet_after(FIRST, SECOND)
    worker = fleet.worker(NAMESPACE, "w2")
    worker_set = fleet.models[MODEL].worker_sets[KEY]
    assert worker.blockers == ("checksum_mismatch",)
    assert worker_set.checksum != worker.checksum
    assert worker_set.checksum == fleet.worker(NAMESPACE, "w1").checksum


def test_members_are_equal_by_workers_and_order():
    story = given(FIRST, SECOND)
    one, two = (fold_all(state_after(), story).fleet_state.members(KEY) for _ in "ab")
    assert one == two
    assert one.ready  # looked at, which is no difference
    assert not one != two  # noqa: SIM202 - the other operator is what is meant
    assert one != state_after(FIRST).fleet_state.members(KEY)
    assert one != "members"
    with pytest.raises(TypeError):
        hash(one)
