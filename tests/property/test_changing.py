"""What routers announce is exactly what looks different, however much came at once."""

from hypothesis import given
from hypothesis import strategies as st

from projections import Fleet, FoldState, Touched, step, worker_changes
from tests.property.logs import logs


def differing(before, after):
    """Every worker that looks different, found by looking at all of them."""
    keys = {*before.state.workers, *after.state.workers}
    return {key for key in keys if before.worker(*key) != after.worker(*key)}


@given(logs(), st.data())
def test_changes_are_all_that_differs_and_nothing_else(log, data):
    place = data.draw(st.integers(0, len(log)))
    state = FoldState()
    before, touched = Fleet(), Touched()
    for record in log:
        if record.revision == place + 1:
            before = Fleet(state.fleet_state, revision=state.revision)
            touched = Touched()
        folded = step(state, record)
        touched.add(folded.changes, before)
        state = folded.state
    after = Fleet(state.fleet_state, revision=state.revision)
    changes = worker_changes(before, after, touched)
    seen = [change.worker or change.before for change in changes]
    keys = [(worker.namespace, worker.worker_id) for worker in seen]
    assert set(keys) == differing(before, after)
    assert len(keys) == len(set(keys))
    for change, key in zip(changes, keys, strict=True):
        assert change.before == before.worker(*key)
        assert change.worker == after.worker(*key)
        assert change.revision == after.revision
    order = ["removed", "changed", "added"]
    kinds = [order.index(change.kind) for change in changes]
    ranks = list(zip(kinds, keys, strict=True))
    assert ranks == sorted(ranks)
    assert bool(touched) or not changes
