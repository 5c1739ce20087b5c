"""S15. A worker gets traffic when it says that it is ready, and not before.

A worker registers as starting and turns ready five seconds later: routers list it as
starting all the while and pick it from its ready event on. A registration that lacks
what a router needs is refused as a whole: there is no half worker that stays "unknown"
for ever, and the next good registration of the same worker makes it complete.
"""

import json

import pytest

from events import Undecodable
from projections import ModelNotFoundError, ModelUnavailableError, Wanted, candidates
from tests.support.fleet_builder import (
    MODEL,
    NAMESPACE,
    fleet_of_story,
    given,
    poison,
    ready,
    registered,
    silent_for,
    starting,
)

COMPLETE = json.loads(given(registered("w")).payloads[0])
NEEDED = [
    "namespace",
    "worker_id",
    "incarnation",
    "component",
    "endpoint",
    "role",
    "model",
    "address",
    "lease_ttl_s",
    "status",
]


def pickable(story):
    fleet = fleet_of_story(story)
    found = candidates(fleet, Wanted(model=MODEL))
    return [worker.worker_id for worker in found.workers(fleet)]


def test_a_starting_worker_is_listed_and_not_picked_until_it_is_ready():
    story = given(starting("w"), silent_for(s=5))
    worker = fleet_of_story(story).worker(NAMESPACE, "w")
    assert (worker.status.value, worker.blockers) == ("starting", ("starting",))
    with pytest.raises(ModelUnavailableError) as caught:
        pickable(story)
    assert caught.value.reasons == {"starting": 1}
    assert pickable(story.then(ready("w"))) == ["w"]


def test_beside_a_ready_worker_the_starting_one_gets_nothing():
    assert pickable(given(registered("old"), starting("w"))) == ["old"]


@pytest.mark.parametrize("name", NEEDED)
def test_half_a_registration_is_no_worker_and_the_next_whole_one_is(name):
    half = {key: value for key, value in COMPLETE.items() if key != name}
    story = given(poison("log.worker.prod.w", json.dumps(half).encode()))
    assert isinstance(story[0].event, Undecodable)
    assert name in story[0].event.reason
    assert fleet_of_story(story).worker(NAMESPACE, "w") is None
    with pytest.raises(ModelNotFoundError):
        pickable(story)
    assert pickable(story.then(registered("w"))) == ["w"]


@pytest.mark.parametrize("name", NEEDED)
def test_half_a_registration_takes_nothing_from_the_worker_that_is_there(name):
    half = {key: value for key, value in COMPLETE.items() if key != name}
    story = given(
        registered("w"), poison("log.worker.prod.w", json.dumps(half).encode())
    )
    assert pickable(story) == ["w"]
