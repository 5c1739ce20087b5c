"""S10. A removal removes what it names, and a removal of nothing is only counted.

A worker serves a base model and two adapters. One adapter goes; the worker and the
other adapter stay, and nobody who asks for the remaining names notices. A removal that
names a worker, an adapter or a namespace which is not there raises nothing, changes
nothing and is counted as a no-op.
"""

import pytest

from projections import ModelUnavailableError, Wanted, candidates
from tests.support.fleet_builder import (
    MODEL,
    NAMESPACE,
    deregistered,
    expired,
    fleet_after,
    registered,
    released,
    resumed,
    state_after,
    unloaded,
)

SERVING = registered("w", adapters=("sql", "chat"))
OF_NOTHING = {
    "worker": deregistered("nobody"),
    "namespace": deregistered("w", namespace="nowhere"),
    "adapter": unloaded("w", "never"),
    "adapter of nobody": unloaded("nobody", "sql"),
    "expiry of nobody": expired("nobody"),
    "hold": resumed("w"),
}


def serves(fleet, name):
    found = candidates(fleet, Wanted(model=name))
    return [worker.worker_id for worker in found.workers(fleet)]


def test_one_adapter_goes_and_the_rest_stays():
    fleet = fleet_after(SERVING, unloaded("w", "sql"))
    assert serves(fleet, MODEL) == ["w"]
    assert serves(fleet, "chat") == ["w"]
    assert fleet.worker(NAMESPACE, "w").adapters == ("chat",)
    with pytest.raises(ModelUnavailableError):
        serves(fleet, "sql")


@pytest.mark.parametrize("removal", OF_NOTHING.values(), ids=OF_NOTHING)
def test_a_removal_of_nothing_is_counted_and_changes_nothing(removal):
    before, after = state_after(SERVING), state_after(SERVING, removal)
    assert after.fleet_state == before.fleet_state
    assert after.ports == before.ports
    assert (before.anomalies.no_op, after.anomalies.no_op) == (0, 1)


def test_a_second_release_of_a_port_is_counted_too():
    once = [released(20000, cause="unusable"), released(20000)]
    assert state_after(*once).anomalies.no_op == 1
