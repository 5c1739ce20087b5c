"""Orders to drain: what stands, what takes them back, who has not heard."""

import msgspec
import pytest

from events import WorkerHeld, encode
from projections import (
    FOLD_VERSION,
    DrainOrder,
    Epoch,
    Position,
    decode_snapshot,
    drains_unheard,
    encode_snapshot,
    restore,
    take,
)
from projections.snapshot import Rest
from tests.support.fleet_builder import (
    NAMESPACE,
    Story,
    deregistered,
    drained,
    draining,
    expired,
    held,
    incarnation,
    ready,
    registered,
    resumed,
    starting,
    state_after,
    weighted,
)

W1 = (NAMESPACE, "w1")
HELD = held("w1", drain=True, reason="rollout")


def order_at(revision, reason="rollout"):
    return DrainOrder(
        namespace=NAMESPACE,
        worker_id="w1",
        reason=reason,
        by="builder",
        revision=revision,
    )


@pytest.mark.parametrize(
    ("steps", "order"),
    [
        ([held("w1")], None),
        ([HELD], order_at(1)),
        ([HELD, HELD], order_at(2)),
        ([held("w1", reason="rollout"), HELD], order_at(2)),
        ([HELD, held("w1")], None),
        ([HELD, resumed("w1")], None),
        ([resumed("w1")], None),
        ([HELD, weighted(0), resumed("w2"), held("w2")], order_at(1)),
        ([HELD, registered("w1"), deregistered("w1")], order_at(1)),
        ([registered("w1"), HELD, drained("w1"), expired("w1")], order_at(1 + 1)),
    ],
)
def test_the_latest_decision_on_a_stable_id_counts(steps, order):
    assert state_after(*steps).drains.get(W1) == order


def test_an_order_is_a_hold_like_any_other_for_routers():
    plain = state_after(registered("w1"), held("w1", reason="rollout"))
    asked = state_after(registered("w1"), HELD)
    assert asked.fleet_state == plain.fleet_state
    assert asked.fleet_state.digest == plain.fleet_state.digest


@pytest.mark.parametrize(
    ("steps", "lives"),
    [
        ([HELD], []),
        ([HELD, registered("w1")], [1]),
        ([registered("w1"), HELD], [1]),
        ([starting("w1"), HELD], [1]),
        ([registered("w1"), HELD, draining("w1")], []),
        ([registered("w1"), HELD, draining("w1"), drained("w1")], []),
        ([registered("w1"), HELD, draining("w1"), ready("w1")], [1]),
        ([registered("w1"), HELD, drained("w1"), registered("w1")], [2]),
        ([registered("w1"), HELD, deregistered("w1")], []),
        ([registered("w1"), HELD, resumed("w1")], []),
    ],
)
def test_who_has_not_heard_is_there_and_goes_on(steps, lives):
    state = state_after(*steps)
    unheard = list(drains_unheard(state.drains, state.fleet_state))
    assert [w.incarnation for _, w in unheard] == [incarnation("w1", n) for n in lives]


def test_who_has_not_heard_is_named_in_order():
    names = [f"w{n}" for n in range(20)]
    steps = [
        step for w in reversed(names) for step in (registered(w), held(w, drain=True))
    ]
    state = state_after(*steps)
    found = [
        order.worker_id for order, _ in drains_unheard(state.drains, state.fleet_state)
    ]
    assert found == sorted(names)


def test_a_snapshot_keeps_orders_and_without_them_its_bytes():
    epoch = Epoch(count=1, fold_version=FOLD_VERSION, log_id="log", revision=0)
    place = Position(epoch=epoch, base=1, ordinal=1, delta_revision=1)
    for steps, kept in (([HELD], True), ([held("w1")], False)):
        state = state_after(registered("w1"), *steps)
        snapshot = decode_snapshot(encode_snapshot(take(state, place)))
        assert restore(snapshot, frozenset()) == state
        assert ("drains" in msgspec.msgpack.decode(snapshot.rest)) is kept
        assert len(msgspec.msgpack.decode(snapshot.rest, type=Rest).drains) == kept


def test_a_hold_without_an_order_has_the_bytes_it_always_had():
    who = {**Story().envelope(), "namespace": NAMESPACE, "worker_id": "w1"}
    assert b"drain" not in encode(WorkerHeld(**who, reason="noisy"))
    assert b'"drain":true' in encode(WorkerHeld(**who, drain=True))
