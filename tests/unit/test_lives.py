"""A life is an incarnation that holds a registration or a port."""

import pytest
from msgspec.structs import replace

from projections import FoldState, Life, evolve, fold_all
from projections import life as of_life
from projections.life import NO_LIVES, touched, unregistered, went_on
from tests.support.fleet_builder import (
    HOST,
    NAMESPACE,
    claimed,
    deregistered,
    draining,
    expired,
    given,
    incarnation,
    loaded,
    poison,
    registered,
    released,
    state_after,
    uuid7,
)

P0, P1 = (HOST, 20000), (HOST, 20001)
KEY1 = (NAMESPACE, "w1", incarnation("w1", 1))
KEY2 = (NAMESPACE, "w1", incarnation("w1", 2))
SUBJECT = "log.worker.prod.w1"


def lives(*steps):
    """Lives by number: where they were registered, their last record and ports."""
    names = {KEY1: 1, KEY2: 2}
    return {
        names[key]: (life.registered, life.last, {p for _, p in life.ports})
        for key, life in state_after(*steps).lives.items()
    }


def test_a_registration_is_a_life():
    assert lives(registered("w1")) == {1: (1, 1, set())}
    (life,) = state_after(registered("w1", lease_ttl_s=30)).lives.values()
    assert life.key == KEY1
    assert life.lease_ttl_s == 30.0


def test_a_claim_is_a_life_that_registration_completes():
    assert lives(claimed("w1", 20000, 2)) == {1: (None, None, {20000, 20001})}
    steps = [claimed("w1", 20000, lease_ttl_s=60), registered("w1", lease_ttl_s=20)]
    assert lives(*steps) == {1: (2, 2, {20000})}
    (life,) = state_after(*steps).lives.values()
    assert life.lease_ttl_s == 20.0


def test_every_record_on_the_subject_is_the_last_of_the_current_life():
    steps = [registered("w1")]
    for number, more in enumerate(
        [
            draining("w1"),
            draining("w1"),
            draining("w1", life=9),
            loaded("w1", "lora"),
            poison(SUBJECT, b"x"),
            poison(SUBJECT, b'{"type":"later.v1"}'),
        ],
        start=2,
    ):
        steps.append(more)
        assert lives(*steps) == {1: (1, number, set())}


def test_records_on_other_subjects_are_not():
    others = [
        registered("w2"),
        poison("log.worker.prod.w3", b"x"),
        claimed("w2", 20000),
    ]
    life = state_after(registered("w1"), *others).lives[KEY1]
    assert (life.registered, life.last) == (1, 1)


def test_the_same_life_again_keeps_its_place_and_takes_the_new_lease():
    again = registered("w1", life=1, lease_ttl_s=60)
    assert lives(registered("w1"), again) == {1: (1, 2, set())}
    (life,) = state_after(registered("w1"), again).lives.values()
    assert life.lease_ttl_s == 60.0


def test_an_ended_life_without_ports_is_gone():
    for end in (deregistered("w1"), expired("w1")):
        assert lives(registered("w1"), end) == {}


def test_an_ended_life_goes_on_as_long_as_it_holds_ports():
    steps = [claimed("w1", 20000, 2), registered("w1"), deregistered("w1")]
    assert lives(*steps) == {1: (None, 3, {20000, 20001})}
    assert lives(*steps, released(20000)) == {1: (None, 3, {20001})}
    assert lives(*steps, released(20000, 2)) == {}


def test_only_a_life_that_was_registered_can_have_ended():
    claim, life = claimed("w1", 20000), registered("w1")
    for steps, ended in (
        ([claim], False),
        ([claim, life], False),
        ([claim, life, deregistered("w1")], True),
        ([claim, life, life], True),
    ):
        assert state_after(*steps).lives[KEY1].ended is ended


def test_a_superseded_life_goes_on_as_long_as_it_holds_ports():
    steps = [claimed("w1", 20000), registered("w1"), registered("w1")]
    assert lives(*steps) == {1: (None, 2, {20000}), 2: (3, 3, set())}
    assert lives(*steps, released(20000)) == {2: (3, 3, set())}
    assert lives(registered("w1"), registered("w1")) == {2: (2, 2, set())}


def test_a_release_leaves_a_registered_life():
    steps = [claimed("w1", 20000), registered("w1"), released(20000)]
    assert lives(*steps) == {1: (2, 2, set())}


def test_a_claim_that_was_refused_is_no_life():
    steps = [claimed("w1", 20000), claimed("w2", 20000, claim=uuid7("other"))]
    assert lives(*steps) == {1: (None, None, {20000})}


def test_ids_that_lives_share_are_kept_apart():
    assert len(state_after(registered("w1"), registered("w2")).lives) == 2


def test_turning_over_what_is_not_there_changes_nothing():
    (held,) = state_after(claimed("w1", 20000)).ports.ports.values()
    assert touched(NO_LIVES, KEY1, 7) is NO_LIVES
    assert unregistered(NO_LIVES, KEY1) is NO_LIVES
    assert went_on(NO_LIVES, KEY1, 7.0, 3) is NO_LIVES
    assert of_life.released(NO_LIVES, held) is NO_LIVES
    assert Life(namespace="a", worker_id="b", incarnation="c", lease_ttl_s=1.0).key == (
        "a",
        "b",
        "c",
    )


@pytest.mark.parametrize(
    "later",
    [
        draining("w1"),
        draining("w1", life=9),
        registered("w1", life=1, lease_ttl_s=60),
        registered("w1", life=2),
        deregistered("w1"),
        released(20000, 2),
    ],
)
def test_a_state_without_its_lives_is_folded_on_at_once_as_one_by_one(later):
    """No digest covers lives: a snapshot that lost them is none that stops a fold."""
    story = given(claimed("w1", 20000, 2), registered("w1"), later, registered("w2"))
    known, rest = list(story)[:3], list(story)[3:]
    state = replace(fold_all(FoldState(), known), lives=NO_LIVES)
    singly = state
    for record in rest:
        singly = evolve(singly, record)
    assert fold_all(state, rest) == singly
