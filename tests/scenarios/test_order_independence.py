"""S48. Where order is promised not to matter, it does not.

Independent events of different workers, in any order, come to the same view; each
worker's own events keep their order, for one subject carries them. What the log's order
decides on purpose is outside the promise: which of two configurations comes first, who
holds a contested port, and the times, which are those of the recording.

An adapter before its base: here an adapter is loaded by a registered life, so an event
that comes before the registration is counted as a no-op; the registration itself names
the adapters that the worker has loaded, and with it they attach.
"""

from itertools import permutations

from events import Record
from projections import Fleet, FoldState, Wanted, candidates, fold_all
from tests.support.fleet_builder import (
    C1,
    C2,
    MODEL,
    NAMESPACE,
    START,
    claimed,
    deregistered,
    draining,
    fleet_after,
    given,
    held,
    loaded,
    registered,
    state_after,
    weighted,
)

HISTORIES = [
    [claimed("a", 20000, claim="of a"), registered("a"), loaded("a", "sql")],
    [registered("b", labels={"zone": "b"}), draining("b")],
    [registered("c", namespace="prod-v2", card=C2)],
    [registered("d"), deregistered("d")],
    [held("a"), weighted(0.5)],
]


def view(steps):
    """The state as if everything had been recorded at one time."""
    story = given(*steps)
    records = [Record(r.revision, START, r.subject, r.event) for r in story]
    return fold_all(FoldState(), records)


def test_independent_histories_in_any_order_are_one_view():
    states = [
        view([step for history in order for step in history])
        for order in permutations(HISTORIES)
    ]
    assert len({state.fleet_state.digest for state in states}) == 1
    assert len({state.ports.digest for state in states}) == 1
    assert len({Fleet(s.fleet_state).to_json() for s in states}) == 1


def test_interleaved_histories_are_the_same_view():
    one = [step for history in HISTORIES for step in history]
    two = [h[n] for n in range(3) for h in HISTORIES if n < len(h)]
    assert view(one).fleet_state == view(two).fleet_state


def test_an_adapter_before_its_base_attaches_with_the_registration():
    early = [loaded("w", "sql")]
    assert state_after(*early).anomalies.no_op == 1
    fleet = fleet_after(*early, registered("w", adapters=("sql",)))
    assert fleet.worker(NAMESPACE, "w").adapters == ("sql",)
    assert candidates(fleet, Wanted(model="sql")).workers(fleet)


def test_which_configuration_came_first_is_for_the_log_to_say():
    one, two = registered("a", card=C1), registered("b", card=C2)
    first, second = fleet_after(one, two), fleet_after(two, one)
    assert first.worker(NAMESPACE, "a").routable
    assert second.worker(NAMESPACE, "b").routable
    assert first.digest != second.digest
    assert first.models[MODEL].serving
    assert second.models[MODEL].serving
