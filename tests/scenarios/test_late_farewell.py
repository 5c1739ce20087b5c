"""S01. The farewell of a life that was superseded ends nobody.

A worker restarts: its second life registers while the first has not said goodbye yet.
When the goodbye of the first life is appended afterwards, or its expiry, or any other
event of it, the second life stays as it is and keeps its traffic. The late event is
listed with both lives, so that whoever looks sees why it was passed over.

The list says "stale" for what the scenario calls "ignored: superseded": the fold keeps
no tombstones and knows only that the event's life is not the current one.
"""

import pytest

from tests.support.fleet_builder import (
    MODEL,
    NAMESPACE,
    deregistered,
    draining,
    expired,
    fleet_after,
    incarnation,
    registered,
    state_after,
    unloaded,
    updated,
)

RESTARTED = [registered("w", adapters=("sql",)), registered("w", adapters=("sql",))]
LATE = {
    "deregister": deregistered("w", life=1),
    "expiry": expired("w", life=1),
    "drain": draining("w", life=1),
    "update": updated("w", life=1, address="http://gone"),
    "adapter": unloaded("w", "sql", life=1),
}


@pytest.mark.parametrize("late", LATE.values(), ids=LATE)
def test_a_late_event_of_the_first_life_leaves_the_second_alone(late):
    before, after = fleet_after(*RESTARTED), fleet_after(*RESTARTED, late)
    assert after.digest == before.digest
    worker = after.worker(NAMESPACE, "w")
    assert worker.incarnation == incarnation("w", 2)
    assert worker.routable
    assert after.models[MODEL].serving


@pytest.mark.parametrize("late", LATE.values(), ids=LATE)
def test_the_late_event_is_listed_as_stale_with_both_lives(late):
    (listed,) = state_after(*RESTARTED, late).anomalies.latest
    assert (listed.kind, listed.revision) == ("stale", 3)
    assert incarnation("w", 1) in listed.reason
    assert incarnation("w", 2) in listed.reason


def test_the_second_lifes_own_farewell_counts():
    fleet = fleet_after(*RESTARTED, deregistered("w", life=1), deregistered("w"))
    assert fleet.worker(NAMESPACE, "w") is None
