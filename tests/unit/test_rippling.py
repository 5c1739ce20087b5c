"""Which models a record may change for workers that it does not name."""

import pytest

from events import Role
from projections import FoldState, fold_all, step
from projections.rippling import is_live, ripples
from tests.support.fleet_builder import (
    C2,
    claimed,
    deregistered,
    draining,
    forgotten,
    given,
    held,
    loaded,
    ready,
    registered,
    resumed,
    starting,
    thresholds,
    updated,
    weighted,
)

BEGINNING = (
    registered("w1"),
    registered("w2", card=C2),
    starting("w3"),
    registered("p1", role=Role.PREFILL),
    registered("p2", role=Role.PREFILL),
    registered("q1", model="qwen"),
    held("w9"),
    registered("gone", model="old"),
    deregistered("gone"),
)


@pytest.mark.parametrize(
    ("record", "models"),
    [
        (updated("w1", labels={"a": "b"}), set()),
        (loaded("w1", "sql"), set()),
        (registered("w1"), set()),
        (draining("w2"), set()),
        (deregistered("w3"), set()),
        (claimed("w1", 20000), set()),
        (resumed("w9"), set()),
        (held("w8"), set()),
        (thresholds(busy_kv_usage=0.5), set()),
        (forgotten("old"), set()),
        (draining("w1"), {"llama"}),
        (ready("w3"), {"llama"}),
        (registered("w4"), {"llama"}),
        (deregistered("w2"), {"llama"}),
        (deregistered("p1"), {"llama"}),
        (held("w1"), {"llama"}),
        (weighted(0.5), {"llama"}),
        (weighted(0.5, model="*"), {"llama", "qwen"}),
        (registered("p1", life=1, model="qwen", role=Role.PREFILL), {"llama", "qwen"}),
        (registered("w1", life=1, component="other"), {"llama"}),
        (registered("p1", life=1, role=Role.AGGREGATED), {"llama"}),
    ],
)
def test_a_record_ripples(record, models):
    story = given(*BEGINNING, record)
    before = fold_all(FoldState(), story[:-1])
    folded = step(before, story[-1])
    after = folded.state.fleet_state
    assert ripples(before.fleet_state, after, folded.changes) == models


def test_who_is_live():
    state = fold_all(FoldState(), given(*BEGINNING, held("q1"))).fleet_state
    live = {key[1] for key, worker in state.workers.items() if is_live(state, worker)}
    assert live == {"w1", "p1", "p2"}
