"""Operators' decisions: what stands, what is lifted, what changes nothing."""

import math

import pytest

from events import LoadThresholdsSet, TrafficWeightSet
from projections import (
    FoldState,
    Hold,
    KnownGone,
    SettingGone,
    SettingPut,
    Thresholds,
    Weight,
    diff,
    step,
)
from projections.deciding import decide_setting
from tests.support.fleet_builder import (
    MODEL,
    NAMESPACE,
    Story,
    deregistered,
    forgotten,
    given,
    held,
    loaded,
    registered,
    resumed,
    state_after,
    thresholds,
    unloaded,
    weighted,
)


def last(*steps):
    """The changes of the last record, and what it counted as."""
    state = FoldState()
    for record in given(*steps):
        folded = step(state, record)
        state = folded.state
    counts = state.anomalies.counts
    return folded.changes, (counts.stale, counts.no_op)


def test_a_hold_stands_until_it_is_lifted():
    hold = Hold(namespace=NAMESPACE, worker_id="w1", reason="noisy", by="builder")
    assert last(held("w1", reason="noisy")) == ((SettingPut(hold),), (0, 0))
    assert last(held("w1"), resumed("w1")) == (
        (SettingGone(("hold", NAMESPACE, "w1")),),
        (0, 0),
    )
    assert not state_after(held("w1"), resumed("w1")).fleet_state.settings


def test_a_weight_replaces_the_one_before():
    settings = state_after(
        weighted(0.5), weighted(2, reason="more")
    ).fleet_state.settings
    key = ("weight", NAMESPACE, MODEL)
    weight = Weight(
        namespace=NAMESPACE, model=MODEL, weight=2.0, reason="more", by="builder"
    )
    assert dict(settings) == {key: weight}


def test_thresholds_replace_those_before():
    story = [thresholds(busy_running=3), thresholds(busy_kv_usage=1, busy_waiting=2)]
    (found,) = state_after(*story).fleet_state.settings.values()
    assert found == Thresholds(
        model=MODEL,
        busy_kv_usage=1.0,
        busy_running=None,
        busy_waiting=2,
        reason="",
        by="builder",
    )
    assert isinstance(found.busy_kv_usage, float)


@pytest.mark.parametrize(
    "steps",
    [
        [resumed("w1")],
        [held("w1"), held("w1")],
        [held("w1"), resumed("w1"), resumed("w1")],
        [weighted(1), weighted(1.0)],
        [weighted(0.0), weighted(-0.0)],
        [thresholds(busy_running=3), thresholds(busy_running=3)],
        [forgotten()],
        [registered("w1"), forgotten()],
        [registered("w1", adapters=("lora",)), forgotten("lora")],
        [registered("w1"), deregistered("w1"), forgotten(), forgotten()],
    ],
)
def test_what_changes_nothing_is_a_no_op(steps):
    assert last(*steps) == ((), (0, 1))


def test_another_reason_is_another_decision():
    changes, counted = last(held("w1", reason="a"), held("w1", reason="b"))
    assert len(changes) == 1
    assert counted == (0, 0)


def test_a_name_is_forgotten_when_nobody_serves_it():
    ended = [registered("w1"), loaded("w1", "lora"), deregistered("w1")]
    assert last(*ended, forgotten()) == ((KnownGone(MODEL),), (0, 0))
    assert set(state_after(*ended, forgotten()).fleet_state.known) == {"lora"}
    unloading = [registered("w1"), loaded("w1", "lora"), unloaded("w1", "lora")]
    assert last(*unloading, forgotten("lora")) == ((KnownGone("lora"),), (0, 0))


def test_a_forgotten_name_is_learnt_again():
    story = [registered("w1"), deregistered("w1"), forgotten(), registered("w1")]
    assert set(state_after(*story).fleet_state.known) == {MODEL}


def test_equal_numbers_are_one_decision_in_bytes_too():
    envelope = Story().envelope()
    weights = [
        decide_setting(
            FoldState().fleet_state,
            TrafficWeightSet(
                **envelope, namespace=NAMESPACE, model=MODEL, weight=value
            ),
        )
        for value in (0, 0.0, -0.0)
    ]
    signs = {math.copysign(1, change.setting.weight) for (change,) in weights}
    assert signs == {1.0}
    usages = [
        decide_setting(
            FoldState().fleet_state,
            LoadThresholdsSet(**envelope, model=MODEL, busy_kv_usage=value),
        )
        for value in (1, 1.0)
    ]
    assert [type(change.setting.busy_kv_usage) for (change,) in usages] == [float] * 2
    one, two = (state_after(weighted(v)).fleet_state for v in (0.0, -0.0))
    assert one.digest == two.digest
    assert diff(one, two) == ()


def test_settings_are_kept_apart_by_kind_and_scope():
    state = state_after(
        held("w1"), held("w2"), weighted(1), weighted(1, model="*"), thresholds("*")
    )
    assert set(state.fleet_state.settings) == {
        ("hold", NAMESPACE, "w1"),
        ("hold", NAMESPACE, "w2"),
        ("weight", NAMESPACE, MODEL),
        ("weight", NAMESPACE, "*"),
        ("thresholds", "*"),
    }
