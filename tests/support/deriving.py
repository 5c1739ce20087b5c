"""The view stream as the log alone says that it must be, byte by byte."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from controlplane.viewfeed import ViewEntry
from events import Record
from projections import (
    Delta,
    Epoch,
    EpochStarted,
    FoldState,
    decode_view,
    encode_view,
    fold_all,
    step,
)


def expected_deltas(records: Iterable[Record], epoch: Epoch) -> list[bytes]:
    """All deltas of ``epoch``, in order, derived from the log."""
    state, before, deltas = FoldState(), epoch.revision, []
    for record in records:
        taken = step(state, record)
        state = taken.state
        if not taken.changes or record.revision <= epoch.revision:
            continue
        delta = Delta(
            epoch=epoch,
            ordinal=len(deltas) + 1,
            revision=record.revision,
            fingerprint=record.fingerprint,
            previous_revision=before,
            changes=taken.changes,
            anomalies=state.anomalies.counts,
            digest=state.fleet_state.digest,
        )
        before = record.revision
        deltas.append(encode_view(delta))
    return deltas


def check_view(
    records: Sequence[Record], entries: Sequence[ViewEntry], *, foreign: int = 0
) -> list[Epoch]:
    """Hold every message of the view stream to the log; the epochs, in order.

    Every ordinal stands once, in its place, with the bytes that a replay gives; the
    last epoch has all of them. ``foreign``: so many messages are nobody's.
    """
    epochs: list[Epoch] = []
    wanted: list[bytes] = []
    found_foreign = 0
    for place, entry in enumerate(entries, entries[0].view_seq):
        assert entry.view_seq == place, "the stream has a hole"
        match decode_view(entry.payload):
            case EpochStarted() as start:
                assert not epochs or start.epoch > epochs[-1], start.epoch
                _check_start(records, start)
                epochs.append(start.epoch)
                wanted = expected_deltas(records, start.epoch)[::-1]
            case Delta() as delta:
                assert epochs, "a delta before any epoch"
                assert wanted, f"a delta that no record gives: {delta}"
                assert entry.payload == wanted.pop(), delta
            case None:
                found_foreign += 1
    assert found_foreign == foreign
    assert not wanted, f"{len(wanted)} deltas are missing at the end"
    return epochs


def _check_start(records: Sequence[Record], start: EpochStarted) -> None:
    there = [record for record in records if record.revision <= start.revision]
    state = fold_all(FoldState(), there)
    assert state.revision == start.revision
    assert state.fleet_state.digest == start.digest
    assert state.fingerprint == start.fingerprint
    assert state.anomalies.counts == start.anomalies
