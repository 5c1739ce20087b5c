"""Deltas: equal ones are equal bytes, a wrong one is noticed, a diff is exact."""

import pytest

from projections import (
    EMPTY,
    AnomalyCounts,
    Delta,
    DivergenceError,
    Epoch,
    EpochStarted,
    FoldState,
    KnownGone,
    KnownPut,
    SequenceGapError,
    SetGone,
    SetPut,
    SettingGone,
    SettingPut,
    WorkerGone,
    WorkerPut,
    apply,
    apply_delta,
    build,
    decode_view,
    diff,
    encode_view,
    entity_key,
    parse_epoch,
    step,
)
from projections.delta import gone_of
from tests.support.fleet_builder import (
    C2,
    MODEL,
    NAMESPACE,
    deregistered,
    draining,
    forgotten,
    given,
    held,
    loaded,
    registered,
    resumed,
    state_after,
    weighted,
)

EPOCH = Epoch(count=1, fold_version=1, log_id="log-a", revision=0)


def delta_of(*steps):
    """The state before the last record, and the delta of it."""
    state = FoldState()
    for record in given(*steps):
        before, folded = state, step(state, record)
        state = folded.state
    delta = Delta(
        epoch=EPOCH,
        ordinal=3,
        revision=state.revision,
        fingerprint=state.fingerprint,
        previous_revision=before.revision,
        changes=folded.changes,
        anomalies=state.anomalies.counts,
        digest=state.fleet_state.digest,
    )
    return before.fleet_state, delta, state.fleet_state


CHANGES = {
    "worker_put": [registered("w1"), registered("w2")],
    "worker_gone": [registered("w1"), registered("w2"), deregistered("w1")],
    "set_put": [registered("w1"), registered("w2", card=C2)],
    "set_gone": [registered("w1"), deregistered("w1")],
    "setting_put": [weighted(0.5)],
    "setting_gone": [held("w1"), resumed("w1")],
    "known_put": [registered("w1"), loaded("w1", "lora")],
    "known_gone": [registered("w1"), deregistered("w1"), forgotten()],
}


@pytest.mark.parametrize(("tag", "steps"), CHANGES.items())
def test_every_kind_of_change_survives_its_bytes(tag, steps):
    before, delta, after = delta_of(*steps)
    payload = encode_view(delta)
    assert f'"type":"{tag}"'.encode() in payload
    read = decode_view(payload)
    assert read == delta
    assert encode_view(read) == payload
    assert apply_delta(before, read) == after


def test_a_start_of_an_epoch_survives_its_bytes():
    started = EpochStarted(
        epoch=Epoch(count=2, fold_version=1, log_id="log-a", revision=7),
        fingerprint="e-7",
        anomalies=AnomalyCounts(stale=1),
        digest=EMPTY.digest,
        reason="rebuild",
    )
    assert decode_view(encode_view(started)) == started
    assert started.revision == 7


@pytest.mark.parametrize(
    "payload",
    [b"", b"\xff", b"{}", b"null", b'{"type":"delta.v2"}', b"[" * 100_000],
)
def test_a_foreign_message_is_no_view_message(payload):
    assert decode_view(payload) is None


def test_a_delta_on_another_state_is_divergence():
    before, delta, after = delta_of(registered("w1"), registered("w2"))
    with pytest.raises(DivergenceError) as caught:
        apply_delta(EMPTY, delta)
    error = caught.value
    assert error.where == "epoch log-a.1.1@0 ordinal 3"
    assert error.expected == after.digest
    assert error.got not in (after.digest, before.digest)
    assert error.expected in str(error)
    assert error.got in str(error)


def test_later_epochs_of_a_log_are_greater():
    assert Epoch(count=2, fold_version=1, log_id="a", revision=0) > EPOCH
    assert str(EPOCH) == "log-a.1.1@0"


def test_a_gap_names_both_positions():
    error = SequenceGapError(expected=41, got=57)
    assert (error.expected, error.got) == (41, 57)
    assert "41" in str(error)
    assert "57" in str(error)


BEFORE = [
    registered("a"),
    registered("b"),
    registered("c", model="qwen"),
    held("a"),
    weighted(1),
]
AFTER = [
    *BEFORE,
    deregistered("b"),
    draining("a"),
    deregistered("c"),
    registered("d", model="phi"),
    resumed("a"),
    weighted(2),
    forgotten("qwen"),
]


def test_a_diff_removes_then_changes_then_adds_and_nothing_else():
    one, two = state_after(*BEFORE).fleet_state, state_after(*AFTER).fleet_state
    kinds = [(type(change), key_of(change)) for change in diff(one, two)]
    qwen, phi = (s.models[m] for s, m in ((one, "qwen"), (two, "phi")))
    assert kinds == [
        (KnownGone, "qwen"),
        (SetGone, next(iter(qwen))),
        (SettingGone, ("hold", NAMESPACE, "a")),
        (WorkerGone, "b"),
        (WorkerGone, "c"),
        (SettingPut, ("weight", NAMESPACE, MODEL)),
        (WorkerPut, "a"),
        (KnownPut, "phi"),
        (SetPut, next(iter(phi))),
        (WorkerPut, "d"),
    ]
    assert apply(one, diff(one, two)) == two
    assert apply(two, diff(two, one)) == one


def key_of(change):
    match change:
        case WorkerPut(worker):
            return worker.worker_id
        case WorkerGone(_, worker_id):
            return worker_id
        case SettingPut(setting):
            return setting.key
        case SetPut(key) | SetGone(key) | SettingGone(key):
            return key
        case KnownPut(name) | KnownGone(name):
            return name


def test_a_diff_of_equals_is_empty():
    state = state_after(*AFTER).fleet_state
    assert diff(state, build(state.entities())) == ()
    assert diff(EMPTY, EMPTY) == ()


def test_every_entity_has_a_key_and_a_way_out():
    state = state_after(*BEFORE).fleet_state
    entities = list(state.entities())
    assert len({entity_key(put) for put in entities}) == len(entities)
    assert apply(state, [gone_of(put) for put in entities]) == EMPTY


def test_applying_is_total():
    state = state_after(*BEFORE).fleet_state
    (key,) = state_after(registered("z", model="none")).fleet_state.models["none"]
    nothing_there = [
        WorkerGone(NAMESPACE, "nobody"),
        SetGone(key),
        SettingGone(("hold", NAMESPACE, "nobody")),
        KnownGone("nothing"),
        SetPut(key, ()),
        KnownPut(MODEL),
    ]
    assert apply(state, nothing_there) == state


def test_building_is_applying_to_the_empty_fleet():
    state = state_after(*AFTER).fleet_state
    (key,) = state_after(registered("z", model="none")).fleet_state.models["none"]
    puts = [*state.entities(), SetPut(key, ())]
    assert build(puts) == apply(EMPTY, puts) == state
    assert build(reversed(puts)) == state
    (worker,) = state_after(registered("w1")).fleet_state.workers.values()
    assert build([WorkerPut(worker)]) == apply(EMPTY, [WorkerPut(worker)])


def test_an_epoch_can_be_read_from_its_text():
    for epoch in (EPOCH, Epoch(12, 3, "01a2.b-c", 456)):
        assert parse_epoch(str(epoch)) == epoch


@pytest.mark.parametrize(
    "text",
    ["", "log-a", "log-a.1@0", "log-a.1.1", "log-a.1.x@0", "log-a.01.1@0", "a.1.1@-1"],
)
def test_what_is_no_epoch_is_none(text):
    assert parse_epoch(text) is None
