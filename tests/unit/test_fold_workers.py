"""What each worker event changes, and how those that change nothing are counted."""

import msgspec
import pytest

from events import Capacity, ModelCard, Status, decode
from projections import (
    FoldState,
    KnownPut,
    SetGone,
    SetPut,
    WorkerGone,
    WorkerPut,
    evolve,
    step,
)
from tests.support.fleet_builder import (
    C2,
    MODEL,
    NAMESPACE,
    START,
    deregistered,
    draining,
    expired,
    given,
    incarnation,
    loaded,
    ready,
    registered,
    starting,
    state_after,
    status,
    unloaded,
    updated,
)

W1 = (NAMESPACE, "w1")


def last_step(*steps):
    """The state before the last record of the story, and the step it makes."""
    *before, last = given(*steps)
    state = FoldState()
    for record in before:
        state = evolve(state, record)
    return state, step(state, last)


def changed(*steps):
    """The kinds of change of the last record."""
    return [type(change) for change in last_step(*steps)[1].changes]


def worker(*steps):
    return state_after(*steps).fleet_state.workers[W1]


JOINED = registered("w1", adapters=("lora-a", "lora-b"))


def test_a_registration_brings_worker_set_and_names():
    assert changed(JOINED) == [WorkerPut, SetPut, KnownPut, KnownPut, KnownPut]
    assert changed(JOINED, registered("w2")) == [WorkerPut]


def test_a_registration_is_kept_whole():
    fields = {
        "address": "http://a",
        "capacity": Capacity(max_num_seqs=3),
        "labels": {"zone": "a"},
        "status": Status.STARTING,
        "lease_ttl_s": 7.5,
        "component": "c",
        "endpoint": "e",
    }
    kept = worker(
        registered(
            "w1",
            capabilities=("tools", "chat", "chat"),
            adapters=("b", "a", "b"),
            **fields,
        )
    )
    assert {name: getattr(kept, name) for name in fields} == fields
    assert kept.capabilities == ("chat", "tools")
    assert kept.adapters == ("a", "b")
    assert kept.incarnation == incarnation("w1", 1)
    assert kept.registered_at == START
    assert kept.life_key == (*W1, incarnation("w1", 1))


def test_the_same_life_again_is_an_upsert_that_keeps_its_time():
    again = registered("w1", life=1, address="http://b")
    before, after = worker(registered("w1")), worker(registered("w1"), again)
    assert after == msgspec.structs.replace(before, address="http://b")
    assert len(state_after(registered("w1"), again).fleet_state.workers) == 1


def test_a_new_life_takes_the_workers_place():
    after = worker(registered("w1"), registered("w1"))
    assert after.incarnation == incarnation("w1", 2)
    assert after.registered_at > START
    assert changed(registered("w1"), registered("w1")) == [WorkerPut]


def test_counts_that_nobody_may_say_now_are_read_from_old_logs():
    joined = registered(
        "w1", capacity=Capacity(max_num_seqs=-5), card=ModelCard(kv_block_size=-1)
    )
    (record,), (payload,) = given(joined).records, given(joined).payloads
    assert decode(record.subject, payload) == record.event
    assert worker(joined).capacity.max_num_seqs == -5


@pytest.mark.parametrize("value", Status)
def test_a_status_is_taken_over(value):
    other = Status.DRAINED if value is not Status.DRAINED else Status.READY
    assert worker(registered("w1", status=other), status("w1", value)).status is value


@pytest.mark.parametrize(
    "fields",
    [
        {"address": "http://b"},
        {"capacity": Capacity(total_kv_blocks=7)},
        {"labels": {"zone": "b"}},
        {"labels": {}},
        {"address": "http://b", "labels": {"zone": "b"}},
    ],
    ids=str,
)
def test_an_update_changes_what_it_names_and_nothing_else(fields):
    joined = registered("w1", labels={"zone": "a"})
    assert worker(joined, updated("w1", **fields)) == msgspec.structs.replace(
        worker(joined), **fields
    )


def test_adapters_come_and_go_and_stay_known():
    joined = registered("w1")
    assert worker(joined, loaded("w1", "b"), loaded("w1", "a")).adapters == ("a", "b")
    assert worker(JOINED, unloaded("w1", "lora-a")).adapters == ("lora-b",)
    assert changed(joined, loaded("w1", "a")) == [WorkerPut, KnownPut]
    assert changed(joined, registered("w2"), loaded("w1", "a"), loaded("w2", "a")) == [
        WorkerPut
    ]
    state = state_after(JOINED, unloaded("w1", "lora-a")).fleet_state
    assert set(state.adapters) == {"lora-b"}
    assert set(state.known) == {MODEL, "lora-a", "lora-b"}


@pytest.mark.parametrize("end", [deregistered, expired])
def test_an_end_takes_worker_set_model_and_adapters_but_no_name(end):
    assert changed(JOINED, end("w1")) == [WorkerGone, SetGone]
    state = state_after(JOINED, end("w1")).fleet_state
    assert not state.workers
    assert not state.models
    assert not state.adapters
    assert set(state.known) == {MODEL, "lora-a", "lora-b"}
    assert changed(JOINED, registered("w2"), end("w1")) == [WorkerGone]
    assert changed(JOINED, registered("w2", card=C2), end("w1")) == [WorkerGone, SetPut]


EVENTS_OF_A_LIFE = {
    "status": lambda **life: draining("w1", **life),
    "update": lambda **life: updated("w1", address="http://b", **life),
    "load": lambda **life: loaded("w1", "lora", **life),
    "unload": lambda **life: unloaded("w1", "lora", **life),
    "farewell": lambda **life: deregistered("w1", **life),
    "expiry": lambda **life: expired("w1", **life),
}


@pytest.mark.parametrize("event", EVENTS_OF_A_LIFE.values(), ids=EVENTS_OF_A_LIFE)
def test_an_event_of_another_life_is_stale_and_changes_nothing(event):
    for life in (1, 3):
        story = [
            registered("w1"),
            registered("w1", adapters=("lora",)),
            event(life=life),
        ]
        before, after = last_step(*story)
        assert after.changes == ()
        assert after.state.fleet_state is before.fleet_state
        assert _counts(after.state) == {"stale": 1}
        (listed,) = after.state.anomalies.latest
        assert incarnation("w1", life) in listed.reason
        assert incarnation("w1", 2) in listed.reason
        assert (listed.revision, listed.subject) == (3, "log.worker.prod.w1")


@pytest.mark.parametrize("event", EVENTS_OF_A_LIFE.values(), ids=EVENTS_OF_A_LIFE)
@pytest.mark.parametrize(
    "before",
    [[], [registered("w2")], [registered("w1"), deregistered("w1")]],
    ids=["empty", "others", "gone"],
)
def test_an_event_of_no_worker_is_a_no_op(event, before):
    state, after = last_step(*before, event())
    assert after.changes == ()
    assert after.state.fleet_state is state.fleet_state
    assert _counts(after.state) == {"no_op": 1}


@pytest.mark.parametrize(
    "event",
    [
        registered("w1", life=1, labels={"zone": "a"}, adapters=("lora",)),
        ready("w1"),
        updated("w1"),
        updated("w1", labels={"zone": "a"}),
        loaded("w1", "lora"),
        unloaded("w1", "never-loaded"),
    ],
)
def test_what_is_so_already_is_a_no_op(event):
    joined = registered("w1", labels={"zone": "a"}, adapters=("lora",))
    before, after = last_step(joined, event)
    assert after.changes == ()
    assert after.state.fleet_state is before.fleet_state
    assert _counts(after.state) == {"no_op": 1}


def test_a_starting_worker_is_there():
    assert worker(starting("w1")).status is Status.STARTING


def test_every_record_moves_the_position_whatever_it_says():
    story = given(registered("w1"), deregistered("w9"), ready("w1", life=9))
    state = FoldState()
    for record in story:
        state = evolve(state, record)
        assert state.revision == record.revision
        assert state.fingerprint == record.event.event_id
        assert state.recorded_at == record.recorded_at


def _counts(state):
    counts = msgspec.structs.asdict(state.anomalies.counts)
    return {kind: count for kind, count in counts.items() if count}
