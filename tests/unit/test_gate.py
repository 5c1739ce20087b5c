"""Since when a deployment has enough routable workers: what starts the count anew."""

import pytest

from controlplane.gate import Deployment, _Since
from events import InvalidIdentityError
from projections import Fleet
from tests.support.fleet_builder import (
    MODEL,
    NAMESPACE,
    deregistered,
    registered,
    state_after,
)

DEPLOYMENT = Deployment(namespace=NAMESPACE, model=MODEL)
TWO = state_after(registered("w1"), registered("w2")).fleet_state
ONE = state_after(registered("w1"), registered("w2"), deregistered("w2")).fleet_state


def seen(*looks):
    """What each look at (state, revision, epoch) makes of a wish for two workers."""
    since = _Since(DEPLOYMENT, 2)
    return [
        since.look(Fleet(state, revision=revision, epoch=epoch))
        for state, revision, epoch in looks
    ]


@pytest.mark.parametrize(
    ("looks", "revisions"),
    [
        ([(ONE, 3, "a")], [None]),
        ([(TWO, 2, "a"), (TWO, 5, "a")], [2, 2]),
        ([(TWO, 2, "a"), (ONE, 3, "a"), (TWO, 4, "a")], [2, None, 4]),
        ([(TWO, 9, "a"), (TWO, 4, "b"), (TWO, 5, "b")], [9, 4, 4]),
    ],
    ids=["too few", "once is enough", "a break", "another epoch"],
)
def test_a_revision_counts_while_there_are_enough_in_one_epoch(looks, revisions):
    assert seen(*looks) == revisions


@pytest.mark.parametrize(
    "names", [{"namespace": "a.b", "model": MODEL}, {"namespace": "a", "model": "*"}]
)
def test_a_deployment_is_refused_by_what_is_wrong_with_its_names(names):
    with pytest.raises(InvalidIdentityError):
        Deployment(**names)
