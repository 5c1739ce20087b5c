"""S11. A model without workers is known, not unknown; a returning worker just serves.

The only worker of a model leaves. The name stays known with no workers, which is
another answer than for a name that was never served; whoever starts now, from a
snapshot or from the log, sees the same. When a worker returns, the model is routable
again. Only an operator's decision makes a name unknown.
"""

import pytest

from events import EVENT_TYPES
from projections import (
    Epoch,
    Fleet,
    FoldState,
    ModelNotFoundError,
    ModelUnavailableError,
    Position,
    Wanted,
    candidates,
    decode_snapshot,
    encode_snapshot,
    fold_all,
    restore,
    take,
)
from tests.support.fleet_builder import (
    MODEL,
    deregistered,
    fleet_of_story,
    forgotten,
    given,
    registered,
)

EMPTIED = given(registered("w"), deregistered("w"))
RETURNED = EMPTIED.then(registered("w"))
EPOCH = Epoch(count=1, fold_version=1, log_id="log", revision=0)
PLACE = Position(epoch=EPOCH, base=1, ordinal=2, delta_revision=2)


def restarted(story):
    """The fleet of a router that starts after the story, from a snapshot."""
    state = fold_all(FoldState(), story)
    payload = encode_snapshot(take(state, PLACE))
    restored = restore(decode_snapshot(payload), frozenset(EVENT_TYPES))
    return Fleet(restored.fleet_state, revision=restored.revision)


STARTS = {"following": fleet_of_story, "started now": restarted}


@pytest.mark.parametrize("start", STARTS.values(), ids=STARTS)
def test_an_emptied_model_is_known_and_unavailable(start):
    fleet = start(EMPTIED)
    assert fleet.known_models == (MODEL,)
    assert MODEL not in fleet.models
    with pytest.raises(ModelUnavailableError) as caught:
        candidates(fleet, Wanted(model=MODEL))
    assert caught.value.reasons == {}


@pytest.mark.parametrize("start", STARTS.values(), ids=STARTS)
def test_a_name_never_served_is_another_answer(start):
    with pytest.raises(ModelNotFoundError):
        candidates(start(EMPTIED), Wanted(model="never-served"))


@pytest.mark.parametrize("start", STARTS.values(), ids=STARTS)
def test_a_returning_worker_serves_at_once(start):
    fleet = start(RETURNED)
    assert candidates(fleet, Wanted(model=MODEL)).workers(fleet)
    assert fleet.models[MODEL].serving


def test_only_a_decision_makes_a_name_unknown():
    with pytest.raises(ModelNotFoundError):
        candidates(fleet_of_story(EMPTIED.then(forgotten())), Wanted(model=MODEL))
    fleet = fleet_of_story(RETURNED.then(forgotten()))
    assert candidates(fleet, Wanted(model=MODEL)).workers(fleet)
