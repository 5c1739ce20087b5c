"""Where a projector begins, given what it found: decided purely.

Which state to fold on from, and whether the current epoch can go on. Recovery is the
normal path: every start, every lost connection with doubt, every divergence comes
through here.
"""

from __future__ import annotations

import msgspec

from controlplane.errors import HistoryTruncatedError
from controlplane.viewfeed import ViewEntry
from events import Revision
from projections import (
    FOLD_VERSION,
    Epoch,
    EpochStarted,
    FoldState,
    Position,
    ViewMessage,
)

from .finding import Found, base_of
from .start import Start


class Begin(msgspec.Struct, frozen=True, kw_only=True):
    """Fold on from ``fold``; number from ``start``; compare from ``view_after``."""

    fold: FoldState
    start: Start
    snapshot_at: Position | None
    view_after: int
    log_end: Revision
    snapshot_age_s: float = 0.0
    problem: str | None = None
    """Why the whole log is folded although there was a snapshot."""


def decide_start(found: Found) -> Begin:
    """What to begin with.

    Raises `HistoryTruncatedError` when the log's beginning is gone and no snapshot
    reaches what is left.
    """
    reason, position, line = _epoch_going_on(found)
    first = found.log.first_revision
    snapshot, at = found.snapshot, found.snapshot_at
    fits = (
        snapshot is not None
        and position is not None
        and at is not None
        and (at.epoch, at.base) == (position.epoch, position.base)
        and at.ordinal <= position.ordinal
    )
    if snapshot is not None and at is not None and (fits or position is None):
        if snapshot.revision < first - 1:
            raise HistoryTruncatedError(first=first)
        return _begin(found, snapshot, at if fits else None, reason)
    if first > 1:
        if snapshot is None or snapshot.revision < first - 1:
            raise HistoryTruncatedError(first=first)
        return _begin(found, snapshot, None, "rebuild")
    if position is not None and line is not None:
        return _from_nothing(found, position, line)
    if snapshot is not None:
        return _begin(found, snapshot, None, "rebuild")
    return _begin(found, FoldState(), None, reason)


Going = tuple[str, Position | None, EpochStarted | None]
"""Why a new epoch would begin; where the current one stands; how that one began."""


def _epoch_going_on(found: Found) -> Going:
    """Whether the view stream's epoch is this log's and can go on."""
    entry, problem = found.entry, _what_memory_says(found)
    if entry is None and problem is None:
        return _epoch_of_empty_stream(found)
    message = None if entry is None else entry.message
    base = None if entry is None else base_of(entry)
    if entry is None or message is None or base is None:
        return problem or "foreign", None, None
    problem = problem or _why_it_ends(found, message)
    if problem is not None:
        return problem, None, None
    position = Position(
        epoch=message.epoch,
        base=base,
        ordinal=entry.view_seq - base,
        delta_revision=message.revision,
    )
    match found.beginning:
        case ViewEntry(message=EpochStarted() as started) if (
            started.epoch == message.epoch
        ):
            return "rebuild", position, started
    return "rebuild", position, None


def _what_memory_says(found: Found) -> str | None:
    """Why the log is not the one that this projector read before; None: it is."""
    known, record = found.remembered, found.remembered_record
    if known is None or known.log_id != found.log.log_id:
        return None
    if known.revision > found.log.last_revision:
        return "log_lost_tail"
    if record is not None and record.fingerprint != known.fingerprint:
        return "log_forked"
    return None


def _over(found: Found) -> int:
    """The count up to which epochs of this log number lost records."""
    known = found.remembered
    return known.over if known and known.log_id == found.log.log_id else 0


def _epochs_of_log(found: Found) -> list[Epoch]:
    """Epochs of this log that are known from elsewhere than the view stream's end."""
    epochs = []
    if found.snapshot_at is not None:
        epochs.append(found.snapshot_at.epoch)
    if found.remembered is not None and found.remembered.epoch is not None:
        epochs.append(found.remembered.epoch)
    return [epoch for epoch in epochs if epoch.log_id == found.log.log_id]


def _why_it_ends(  # noqa: PLR0911 - a list of reasons
    found: Found, message: ViewMessage
) -> str | None:
    """Why the epoch of the last view message cannot go on; None: it can."""
    if message.epoch.log_id != found.log.log_id:
        return "log_replaced"
    if message.epoch.fold_version != FOLD_VERSION:
        return "fold_version"
    if message.revision > found.log.last_revision:
        return "log_lost_tail"
    record, known = found.entry_record, found.remembered
    if record is not None and record.fingerprint != message.fingerprint:
        return "log_forked"
    if known is not None and message.epoch.count <= _over(found):
        return known.over_reason
    if any(epoch > message.epoch for epoch in _epochs_of_log(found)):
        return "view_lost"
    return None


def _epoch_of_empty_stream(found: Found) -> Going:
    """The stream is empty, by age or because it is new: ask the snapshot."""
    at, before = found.snapshot_at, found.remembered
    if at is None:
        other = before is not None and before.log_id != found.log.log_id
        return "log_replaced" if other else "first", None, None
    if found.snapshot is None:
        return "rebuild", None, None
    if at.epoch.fold_version != FOLD_VERSION:
        return "fold_version", None, None
    known = found.remembered
    if known is not None and at.epoch.count <= _over(found):
        return known.over_reason, None, None
    if found.view_last < at.view_seq:
        return "view_lost", None, None
    end = msgspec.structs.replace(at, ordinal=found.view_last - at.base)
    return "rebuild", end, None


def _epoch_count(found: Found) -> int:
    counts = [0]
    if found.snapshot_at is not None:
        counts.append(found.snapshot_at.epoch.count)
    if found.readable is not None and found.readable.message is not None:
        counts.append(found.readable.message.epoch.count)
    if found.remembered is not None and found.remembered.epoch is not None:
        counts.append(found.remembered.epoch.count)
    return max(counts)


def _is_outdated(found: Found) -> bool:
    """Whether a newer fold version numbers the view of this log."""
    versions = [epoch.fold_version for epoch in _epochs_of_log(found)]
    message = None if found.readable is None else found.readable.message
    if message is not None and message.epoch.log_id == found.log.log_id:
        versions = [message.epoch.fold_version]
    return any(version > FOLD_VERSION for version in versions)


def _snapshot_age_s(found: Found) -> float:
    if found.snapshot is None or found.snapshot_taken_at is None:
        return 0.0
    return max(0.0, (found.log.now - found.snapshot_taken_at).total_seconds())


def _begin(
    found: Found, fold: FoldState, position: Position | None, reason: str
) -> Begin:
    """Fold on from ``fold``, which stands at ``position`` of the epoch, or nowhere."""
    start = Start(
        log_id=found.log.log_id,
        position=position,
        folded=fold.revision,
        line_digest=fold.fleet_state.digest,
        line_anomalies=fold.anomalies.counts,
        epoch_count=_epoch_count(found),
        epoch_reason=reason,
        view_end=found.view_last,
        trimmed_to=found.view_first - 1,
        outdated=_is_outdated(found),
    )
    after = found.view_last if position is None else position.view_seq
    return Begin(
        fold=fold,
        start=start,
        snapshot_at=found.snapshot_at if found.snapshot is not None else None,
        view_after=min(after, found.view_last),
        log_end=found.log_end,
        problem=found.snapshot_problem,
        snapshot_age_s=_snapshot_age_s(found),
    )


def _from_nothing(found: Found, position: Position, line: EpochStarted) -> Begin:
    """Fold the whole log; the epoch's deltas are those after its start's revision."""
    start = Start(
        log_id=found.log.log_id,
        position=Position(
            epoch=position.epoch,
            base=position.base,
            ordinal=0,
            delta_revision=line.revision,
        ),
        folded=line.revision,
        line_digest=line.digest,
        line_anomalies=line.anomalies,
        epoch_count=_epoch_count(found),
        epoch_reason="rebuild",
        view_end=found.view_last,
        trimmed_to=found.view_first - 1,
        outdated=_is_outdated(found),
    )
    return Begin(
        fold=FoldState(),
        start=start,
        snapshot_at=None,
        view_after=position.base,
        log_end=found.log_end,
        problem=found.snapshot_problem,
        snapshot_age_s=_snapshot_age_s(found),
    )
