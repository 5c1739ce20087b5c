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
    loss: str | None = None
    """Why the log is not the one that this projector knew; None: it is."""


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
    entry, lost = found.entry, _what_memory_says(found)
    if entry is None and lost is None:
        return _epoch_of_empty_stream(found)
    message = None if entry is None else entry.message
    base = None if entry is None else base_of(entry)
    if entry is None or message is None or base is None:
        return _what_is_behind(found) or "foreign", None, None
    problem = _why_it_ends(found, message)
    if problem is None and not _is_vouched_for(found, message):
        problem = lost or _over_of(found, message.epoch)[1] or None
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


def what_was_lost(found: Found) -> str | None:
    """Why the log is not the one that this projector knew; None: it is."""
    known = found.remembered
    if known is not None and known.log_id != found.log.log_id:
        return "log_replaced"
    return _what_memory_says(found)


def _what_is_behind(found: Found) -> str | None:
    """Which loss a message that nobody can read may hide: by memory, view, snapshot."""
    lost, readable, log = what_was_lost(found), found.readable, found.log
    message = None if readable is None else readable.message
    if lost is not None or message is None:
        return lost or found.snapshot_loss
    if message.epoch.log_id != log.log_id:
        return "log_replaced"
    return "log_lost_tail" if message.revision > log.last_revision else None


def _is_vouched_for(found: Found, message: ViewMessage) -> bool:
    """Whether the log, which lost records, holds the one of the last view message.

    Then nothing lost stands in that epoch now, and whoever remembers what was lost
    may follow it as everybody does. But others saw more of it, perhaps: see `Start`.
    """
    return message.revision == 0 or found.entry_record is not None


def _over_of(found: Found, epoch: Epoch) -> tuple[int, str]:
    """Up to which count epochs must not be led on with, and why; 0: ``epoch`` may.

    In those that were known before the loss, lost records may have had numbers, and
    somebody may stand on them.
    """
    over, reason = _over_of_memory(found)
    at, loss = found.snapshot_at, found.snapshot_loss
    if at is not None and loss is not None and at.epoch.log_id == found.log.log_id:
        over, reason = max((over, reason), (at.epoch.count, loss))
    return (over, reason) if epoch.count <= over else (0, "")


def _over_of_memory(found: Found) -> tuple[int, str]:
    """The same as far as this projector remembers, whatever the epoch; 0: nothing."""
    lost, known = _what_memory_says(found), found.remembered
    if known is None or known.log_id != found.log.log_id:
        return 0, ""
    if lost is not None and known.epoch is not None:
        return max(known.over, known.epoch.count), lost
    return known.over, known.over_reason


def _epochs_of_log(found: Found) -> list[Epoch]:
    """Epochs of this log that are known from elsewhere than the view stream's end."""
    epochs = []
    if found.snapshot_at is not None:
        epochs.append(found.snapshot_at.epoch)
    if found.remembered is not None and found.remembered.epoch is not None:
        epochs.append(found.remembered.epoch)
    return [epoch for epoch in epochs if epoch.log_id == found.log.log_id]


def _why_it_ends(found: Found, message: ViewMessage) -> str | None:
    """Why the epoch of the last view message cannot go on; None: it can."""
    if message.epoch.log_id != found.log.log_id:
        return "log_replaced"
    if message.epoch.fold_version != FOLD_VERSION:
        return "fold_version"
    if message.revision > found.log.last_revision:
        return "log_lost_tail"
    began = None if found.beginning is None else found.beginning.message
    for said, record in (
        (message, found.entry_record),
        (began, found.beginning_record),
    ):
        if said and record is not None and record.fingerprint != said.fingerprint:
            return "log_forked"
    if any(epoch > message.epoch for epoch in _epochs_of_log(found)):
        return "view_lost"
    return None


def _epoch_of_empty_stream(  # noqa: PLR0911 - a list of reasons
    found: Found,
) -> Going:
    """The stream is empty, by age or because it is new: ask the snapshot."""
    at, before = found.snapshot_at, found.remembered
    known = before.log_id if at is None and before is not None else None
    known = at.epoch.log_id if at is not None else known
    if known not in (None, found.log.log_id):
        return "log_replaced", None, None
    if at is None:
        return "first", None, None
    over_reason = _over_of(found, at.epoch)[1]
    if over_reason:
        return over_reason, None, None
    if found.snapshot is None:
        return "rebuild", None, None
    if at.epoch.fold_version != FOLD_VERSION:
        return "fold_version", None, None
    later = any(epoch > at.epoch for epoch in _epochs_of_log(found))
    if later or found.view_last != at.view_seq:
        # What came after the snapshot nobody can read. It may be of records that the
        # log has lost since, as many as it holds others now.
        return "view_lost", None, None
    return "rebuild", at, None


def _epoch_count(found: Found) -> int:
    """The highest count of an epoch so far, or more.

    Each epoch took a sequence of the view stream for its start: where nothing else
    tells, there were no more of them than sequences, or sequences since the snapshot.
    """
    counts: list[int] = []
    at = found.snapshot_at
    if at is not None:
        unread = found.view_last - at.view_seq if found.readable is None else 0
        counts.append(at.epoch.count + max(0, unread))
    if found.readable is not None and found.readable.message is not None:
        counts.append(found.readable.message.epoch.count)
    if found.remembered is not None and found.remembered.epoch is not None:
        counts.append(found.remembered.epoch.count)
    return max(counts, default=found.view_last)


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
    start = msgspec.structs.replace(
        _start(found, position),
        folded=fold.revision,
        line_digest=fold.fleet_state.digest,
        line_anomalies=fold.anomalies.counts,
        epoch_reason=reason,
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
        loss=what_was_lost(found),
    )


def _start(found: Found, position: Position | None) -> Start:
    """What every start is told of the view stream."""
    over, over_reason = 0, ""
    if position is not None:
        over, over_reason = _over_of(found, position.epoch)
    return Start(
        log_id=found.log.log_id,
        position=position,
        epoch_count=_epoch_count(found),
        view_end=found.view_last,
        trimmed_to=found.view_first - 1,
        last_payload=None if found.entry is None else found.entry.payload,
        over=over,
        over_reason=over_reason,
        outdated=_is_outdated(found),
    )


def _from_nothing(found: Found, position: Position, line: EpochStarted) -> Begin:
    """Fold the whole log; the epoch's deltas are those after its start's revision."""
    beginning = Position(
        epoch=position.epoch,
        base=position.base,
        ordinal=0,
        delta_revision=line.revision,
    )
    start = msgspec.structs.replace(
        _start(found, beginning),
        folded=line.revision,
        line_digest=line.digest,
        line_anomalies=line.anomalies,
        epoch_reason="rebuild",
        begun=line,
    )
    return Begin(
        fold=FoldState(),
        start=start,
        snapshot_at=None,
        view_after=position.base,
        log_end=found.log_end,
        problem=found.snapshot_problem,
        snapshot_age_s=_snapshot_age_s(found),
        loss=what_was_lost(found),
    )
