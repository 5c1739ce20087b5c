"""Announced changes: removed, changed, added; others' readiness counts as a change."""

import pytest

from events import Role
from projections import Fleet, FoldState, Touched, WorkerPut, fold_all, step
from projections.changing import worker_changes
from tests.support.fleet_builder import (
    C2,
    NAMESPACE,
    claimed,
    deregistered,
    draining,
    forgotten,
    given,
    held,
    loaded,
    registered,
    starting,
    weighted,
)

NEEDY = registered("d", role=Role.DECODE, needs=[["prefill"]])
HELPER = registered("p", role=Role.PREFILL)
SPARE = starting("q", role=Role.PREFILL)
DECODERS = [registered("e", role=Role.DECODE, needs=[["prefill"]]), NEEDY]


def announced(before_steps, *steps):
    """The changes between the two moments, as (kind, id)."""
    story = given(*before_steps).then(*steps)
    state = fold_all(FoldState(), story[: len(given(*before_steps))])
    before = latest = Fleet(state.fleet_state, revision=state.revision)
    touched = Touched()
    for record in story[state.revision :]:
        folded = step(state, record)
        touched.add(folded.changes, latest)
        state = folded.state
        latest = Fleet(state.fleet_state, revision=state.revision)
    changes = worker_changes(before, latest, touched)
    assert all(change.revision == latest.revision for change in changes)
    return [(c.kind, (c.worker or c.before).worker_id) for c in changes]


@pytest.mark.parametrize(
    ("before", "steps", "changes"),
    [
        ([], [registered("a")], [("added", "a")]),
        ([registered("a")], [deregistered("a")], [("removed", "a")]),
        ([registered("a")], [draining("a")], [("changed", "a")]),
        ([], [registered("a"), deregistered("a")], []),
        ([registered("a")], [draining("a"), registered("a")], [("changed", "a")]),
        (
            [registered("a")],
            [registered("b"), deregistered("a")],
            [("removed", "a"), ("added", "b")],
        ),
        (
            [registered("a"), registered("b")],
            [registered("c"), loaded("b", "x"), deregistered("a")],
            [("removed", "a"), ("changed", "b"), ("added", "c")],
        ),
        (
            [registered("a"), registered("b")],
            [weighted(0)],
            [("changed", "a"), ("changed", "b")],
        ),
        ([registered("a"), registered("b")], [held("b")], [("changed", "b")]),
        ([registered("a")], [held("nobody")], []),
        (
            [registered("a"), registered("b", card=C2)],
            [deregistered("a")],
            [("removed", "a"), ("changed", "b")],
        ),
        (
            [HELPER, *DECODERS],
            [deregistered("p")],
            [("removed", "p"), ("changed", "d"), ("changed", "e")],
        ),
        (
            [HELPER, SPARE, *DECODERS],
            [deregistered("p")],
            [("removed", "p"), ("changed", "d"), ("changed", "e")],
        ),
        (DECODERS, [HELPER], [("changed", "d"), ("changed", "e"), ("added", "p")]),
        ([registered("a")], [claimed("a", 20000)], []),
        ([registered("a"), deregistered("a")], [forgotten()], []),
    ],
)
def test_changes_between_two_moments(before, steps, changes):
    assert announced(before, *steps) == changes


def test_those_whom_a_helper_leaves_for_another_model_are_changed_too():
    moved = registered("p", life=1, role=Role.PREFILL, model="qwen")
    changed = [("changed", "d"), ("changed", "e"), ("changed", "p")]
    assert announced([HELPER, SPARE, *DECODERS], moved) == changed


def test_a_resync_looks_at_everyone_and_finds_the_same():
    story = given(*DECODERS, HELPER, registered("a"), deregistered("p"))
    before = Fleet(fold_all(FoldState(), story[:3]).fleet_state, revision=3)
    after = Fleet(fold_all(FoldState(), story).fleet_state, revision=5)
    touched = Touched()
    assert not touched
    touched.everything = True
    assert touched
    kinds = [
        (c.kind, (c.worker or c.before).worker_id)
        for c in worker_changes(before, after, touched)
    ]
    assert kinds == [
        ("removed", "p"),
        ("changed", "d"),
        ("changed", "e"),
        ("added", "a"),
    ]


def test_a_lens_announces_only_what_it_shows():
    (record,) = given(registered("a"))
    folded = step(FoldState(), record)
    lens = NAMESPACE.__ne__
    before, after = Fleet(visible=lens), Fleet(folded.state.fleet_state, visible=lens)
    touched = Touched()
    touched.add(folded.changes, before)
    assert touched.workers == {(NAMESPACE, "a")}
    assert isinstance(folded.changes[0], WorkerPut)
    assert worker_changes(before, after, touched) == []
