"""S43. What nobody can read stops nothing, removes nothing, frees nothing.

Bytes that are no JSON, an empty payload, null, an unknown type, a missing field, a
payload of 900 kB, a version of tomorrow, a number no state can carry: each is listed
with its place and reason, everyone else goes on, and the decision on each is the same
live, after a restart from a snapshot, in a rebuild and in a replay.
"""

import json

import pytest

from events import EVENT_TYPES, Record, decode_record
from projections import (
    Epoch,
    FoldState,
    Position,
    decode_snapshot,
    encode_snapshot,
    evolve,
    fold_all,
    replay,
    restore,
    take,
)
from tests.support.fleet_builder import (
    MODEL,
    NAMESPACE,
    claimed,
    given,
    poison,
    ready,
    registered,
    starting,
)

WORKER = "log.worker.prod.w1"
PORT = "log.port.10%2E0%2E0%2E1.20000"
GOOD = given(registered("w1"), claimed("w1", 20000), starting("w2"))
DOCUMENT = json.loads(GOOD.payloads[0])


def changed(**fields) -> bytes:
    return json.dumps({**DOCUMENT, **fields}).encode()


POISON = {
    "not JSON": (WORKER, b"\x00\xff", "undecodable", "not JSON"),
    "empty": (WORKER, b"", "undecodable", "not JSON"),
    "null": (WORKER, b"null", "undecodable", "not an object with a type"),
    "unknown type": (
        WORKER,
        changed(type="worker_sang.v1"),
        "unknown",
        "worker_sang.v1",
    ),
    "wrong version": (
        WORKER,
        changed(type="worker_expired.v7"),
        "unknown",
        "worker_expired.v7",
    ),
    "missing field": (
        WORKER,
        json.dumps({"type": "worker_expired.v1"}).encode(),
        "undecodable",
        "missing required field",
    ),
    "900 kB": (
        WORKER,
        changed(labels={"x": "y" * 900_000}),
        "undecodable",
        "more than 262144",
    ),
    "number": (
        WORKER,
        changed(capacity={"total_kv_blocks": 10**40}),
        "undecodable",
        "total_kv_blocks",
    ),
    "another's": (
        "log.worker.prod.w2",
        GOOD.payloads[0],
        "undecodable",
        "belongs on log.worker.prod.w1",
    ),
    "release of tomorrow": (
        PORT,
        b'{"type":"port_released.v2"}',
        "unknown",
        "port_released.v2",
    ),
    "no subject of ours": ("log.mood.w1", b"{}", "undecodable", "a type"),
}
EPOCH = Epoch(count=1, fold_version=1, log_id="log", revision=0)
PLACE = Position(epoch=EPOCH, base=1, ordinal=1, delta_revision=1)


@pytest.mark.parametrize("name", POISON)
def test_poison_is_listed_and_nothing_else_happens(name):
    subject, payload, kind, reason = POISON[name]
    before = fold_all(FoldState(), GOOD)
    after = fold_all(FoldState(), GOOD.then(poison(subject, payload)))
    assert after.fleet_state == before.fleet_state
    assert after.ports.ports == before.ports.ports
    (listed,) = after.anomalies.latest
    assert (listed.revision, listed.kind, listed.subject) == (4, kind, subject)
    assert reason in listed.reason
    assert len(listed.reason) <= 300


def test_the_fleet_goes_on_after_all_of_it():
    poisons = [poison(subject, payload) for subject, payload, *_ in POISON.values()]
    fleet = replay(GOOD.then(*poisons, ready("w2"), registered("w3")))
    assert {w.worker_id for w in _workers(fleet) if w.routable} == {"w1", "w2", "w3"}
    assert fleet.worker(NAMESPACE, "w1") is not None


def _workers(fleet):
    sets = fleet.models[MODEL].worker_sets.values()
    return [worker for worker_set in sets for worker in worker_set.workers.values()]


def test_the_decision_is_the_same_live_restarted_rebuilt_and_replayed():
    poisons = [poison(subject, payload) for subject, payload, *_ in POISON.values()]
    story = GOOD.then(*poisons, ready("w2"))
    live = FoldState()
    for record in story:
        live = evolve(live, record)
        payload = encode_snapshot(take(live, PLACE))
        restarted = restore(decode_snapshot(payload), frozenset(EVENT_TYPES))
        assert fold_all(restarted, story[record.revision :]) == (
            fold_all(live, story[record.revision :])
        )
    rebuilt = fold_all(FoldState(), _read_again(story))
    assert rebuilt == live
    assert replay(_read_again(story)).to_json() == replay(story).to_json()


def _read_again(story) -> list[Record]:
    """The records decoded once more from what is stored."""
    return [
        decode_record(record.revision, record.recorded_at, record.subject, payload)
        for record, payload in zip(story, story.payloads, strict=True)
    ]
