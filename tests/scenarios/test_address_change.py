"""S02. A worker that registers again with another address moves; it does not double.

The same life says again all that it is, now at another address, without a goodbye in
between. There is one worker, at the new address, registered since when it was; routers
get one change, and it is a change of that worker only.
"""

from projections import (
    Fleet,
    FoldState,
    Touched,
    WorkerPut,
    diff,
    fold_all,
    step,
    worker_changes,
)
from tests.support.fleet_builder import (
    MODEL,
    NAMESPACE,
    deregistered,
    given,
    registered,
)

STORY = given(
    registered("w", address="http://a"),
    registered("other"),
    registered("w", life=1, address="http://b"),
)


def test_a_router_hears_of_one_change_and_sees_one_worker():
    before = fold_all(FoldState(), STORY[:2])
    folded = step(before, STORY[2])
    (change,) = folded.changes
    assert isinstance(change, WorkerPut)
    assert change.worker.address == "http://b"
    old = before.fleet_state.workers[NAMESPACE, "w"]
    assert change.worker.registered_at == old.registered_at
    assert len(folded.state.fleet_state.workers) == 2
    assert diff(before.fleet_state, folded.state.fleet_state) == (change,)


def test_followers_are_told_once_and_it_is_a_change():
    before = fold_all(FoldState(), STORY[:2])
    folded = step(before, STORY[2])
    one, two = (Fleet(state.fleet_state) for state in (before, folded.state))
    touched = Touched()
    touched.add(folded.changes, one)
    (change,) = worker_changes(one, two, touched)
    assert change.kind == "changed"
    assert change.before.address == "http://a"
    assert change.worker.address == "http://b"


def test_it_keeps_its_place_in_its_set():
    before, after = (fold_all(FoldState(), STORY[:n]).fleet_state for n in (2, 3))
    (one,), (two,) = (state.models[MODEL].values() for state in (before, after))
    assert one.cohorts == two.cohorts
    assert one.counts == two.counts


def test_one_goodbye_is_enough():
    state = fold_all(FoldState(), STORY.then(deregistered("w"))).fleet_state
    assert set(state.workers) == {(NAMESPACE, "other")}
