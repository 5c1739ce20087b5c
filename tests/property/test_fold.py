"""The laws of the fold, over logs in which anything may stand anywhere."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from events import EVENT_TYPES, Record, Undecodable, UnknownEvent
from projections import (
    EMPTY,
    Delta,
    Epoch,
    Fleet,
    FoldState,
    PlaneState,
    Position,
    apply,
    apply_delta,
    decode_snapshot,
    decode_view,
    diff,
    encode_snapshot,
    encode_view,
    evolve,
    fold_all,
    replay,
    restore,
    step,
    take,
)
from tests.property.invariants import check_fleet, check_state
from tests.property.logs import logs

EPOCH = Epoch(count=1, fold_version=1, log_id="log-a", revision=0)
PLACE = Position(epoch=EPOCH, base=1, ordinal=1, delta_revision=1)
TAGS = frozenset(EVENT_TYPES)


@given(logs())
def test_the_fold_is_total_and_keeps_every_invariant(log):
    state = FoldState()
    for record in log:
        state = evolve(state, record)
        check_state(state)
        assert state.revision == record.revision


@given(logs())
def test_every_record_changes_something_or_is_counted(log):
    state = FoldState()
    for record in log:
        before, folded = state, step(state, record)
        state = folded.state
        counted = state.anomalies.counts != before.anomalies.counts
        moved = state.fleet_state.digest != before.fleet_state.digest
        ports = state.ports.digest != before.ports.digest
        opaque = isinstance(record.event, UnknownEvent | Undecodable)
        assert counted == (opaque or not (moved or ports))
        assert moved == bool(folded.changes)
        kinds = msgspec.structs.astuple(state.anomalies.counts)
        assert sum(kinds) - sum(msgspec.structs.astuple(before.anomalies.counts)) == (
            1 if counted else 0
        )


@given(logs())
def test_following_the_changes_is_folding_the_log(log):
    state, followed = FoldState(), EMPTY
    for ordinal, record in enumerate(log, start=1):
        folded = step(state, record)
        state = folded.state
        delta = Delta(
            epoch=EPOCH,
            ordinal=ordinal,
            revision=record.revision,
            fingerprint=record.fingerprint,
            previous_revision=ordinal - 1,
            changes=folded.changes,
            anomalies=state.anomalies.counts,
            digest=state.fleet_state.digest,
        )
        read = decode_view(encode_view(delta))
        assert read == delta
        assert encode_view(read) == encode_view(delta)
        followed = apply_delta(followed, read)
        assert followed == state.fleet_state


@given(logs(), st.data())
def test_a_diff_leads_from_any_state_to_any_other(log, data):
    places = st.integers(0, len(log))
    one, two = (
        fold_all(FoldState(), log[: data.draw(places)]).fleet_state for _ in "ab"
    )
    after = apply(one, diff(one, two))
    assert after == two
    assert after.digest == two.digest
    check_fleet(after)
    assert (diff(one, two) == ()) == (one.digest == two.digest)


@given(logs(), st.data())
def test_a_snapshot_and_the_rest_are_the_whole(log, data):
    place = data.draw(st.integers(0, len(log)))
    before = fold_all(FoldState(), log[:place])
    payload = encode_snapshot(take(before, PLACE))
    restored = restore(decode_snapshot(payload), TAGS)
    assert restored == before
    assert encode_snapshot(take(restored, PLACE)) == payload
    whole = fold_all(FoldState(), log)
    assert fold_all(restored, log[place:]) == whole
    assert encode_snapshot(take(fold_all(restored, log[place:]), PLACE)) == (
        encode_snapshot(take(whole, PLACE))
    )


@given(logs(), st.data())
def test_folding_parts_is_folding_the_whole(log, data):
    place = data.draw(st.integers(0, len(log)))
    half = fold_all(FoldState(), log[:place])
    assert fold_all(half, log[place:]) == fold_all(FoldState(), log)


@given(logs())
def test_revision_numbers_mean_nothing(log):
    moved = [
        Record(
            record.revision * 7 + 100, record.recorded_at, record.subject, record.event
        )
        for record in log
    ]
    one, two = fold_all(FoldState(), log), fold_all(FoldState(), moved)
    assert one.fleet_state == two.fleet_state
    assert one.ports.ports == two.ports.ports
    assert one.ports.digest == two.ports.digest
    assert one.anomalies.counts == two.anomalies.counts
    assert set(one.lives) == set(two.lives)


@given(logs())
def test_the_view_reads_back_from_its_document(log):
    fleet = replay(log)
    read = Fleet.from_json(fleet.to_json())
    assert read == fleet
    assert read.to_json() == fleet.to_json()
    assert PlaneState(fold_all(FoldState(), log)).fleet.to_json() == fleet.to_json()
    for model in fleet.models.values():
        for worker_set in model.worker_sets.values():
            for worker in worker_set.workers.values():
                assert worker.routable == (not worker.blockers)
                assert fleet.worker(worker.namespace, worker.worker_id) == worker
