"""A router's copy of the fleet at one place of the view stream. Immutable."""

from __future__ import annotations

import msgspec

from controlplane.viewfeed import Head
from events import Revision
from projections import (
    EMPTY,
    AnomalyCounts,
    Delta,
    EpochStarted,
    FleetState,
    Position,
    SequenceGapError,
    Snapshot,
    apply_delta,
    fleet_of,
)


class Replica(msgspec.Struct, frozen=True, kw_only=True):
    """The fleet after the delta at ``position``, or later if nothing changed since."""

    position: Position
    fleet: FleetState
    revision: Revision
    fingerprint: str
    """Identifies the record at ``fingerprint_at``; empty: unknown, or there is none."""
    fingerprint_at: Revision
    """The last record of which that is known; mostly the one at ``revision``."""
    anomalies: AnomalyCounts

    @property
    def digest(self) -> str:
        """The digest of its fleet."""
        return self.fleet.digest

    def is_lost_to(self, head: Head) -> bool:
        """Whether the log lost the record stood on and gave its number to the head's.

        An older head that comes late says so too; the next one puts it right.
        """
        is_named = bool(head.fingerprint) and self.fingerprint_at == head.revision
        return is_named and head.fingerprint != self.fingerprint

    def after(self, delta: Delta, view_seq: int) -> Replica:
        """The replica after the next delta, which stands at ``view_seq``.

        Its revision is the delta's, also if one's own was higher: see `core`.

        Raises `SequenceGapError` if it is not the next, `DivergenceError` if the
        digests differ.
        """
        expected = self.position.ordinal + 1
        if delta.epoch != self.position.epoch or delta.ordinal != expected:
            raise SequenceGapError(expected=expected, got=delta.ordinal)
        if view_seq != self.position.view_seq + 1:
            raise SequenceGapError(expected=self.position.view_seq + 1, got=view_seq)
        if delta.previous_revision != self.position.delta_revision:
            raise SequenceGapError(
                expected=self.position.delta_revision, got=delta.previous_revision
            )
        return Replica(
            position=Position(
                epoch=delta.epoch,
                base=self.position.base,
                ordinal=delta.ordinal,
                delta_revision=delta.revision,
            ),
            fleet=apply_delta(self.fleet, delta),
            revision=delta.revision,
            fingerprint=delta.fingerprint,
            fingerprint_at=delta.revision,
            anomalies=delta.anomalies,
        )


def at_beginning(start: EpochStarted, view_seq: int, fleet: FleetState) -> Replica:
    """The replica at the start of an epoch whose fleet is known to be ``fleet``."""
    return Replica(
        position=Position(
            epoch=start.epoch,
            base=view_seq,
            ordinal=0,
            delta_revision=start.revision,
        ),
        fleet=fleet,
        revision=start.revision,
        fingerprint=start.fingerprint,
        fingerprint_at=start.revision,
        anomalies=start.anomalies,
    )


def fleet_at(start: EpochStarted, known: FleetState | None) -> FleetState | None:
    """The fleet that an epoch starts with, if it is the empty or the ``known`` one."""
    for fleet in (EMPTY, known):
        if fleet is not None and fleet.digest == start.digest:
            return fleet
    return None


def from_snapshot(snapshot: Snapshot) -> Replica:
    """The replica in a snapshot or checkpoint, its digest verified.

    Raises `SnapshotUnusableError`.
    """
    return Replica(
        position=snapshot.position,
        fleet=fleet_of(snapshot),
        revision=snapshot.revision,
        fingerprint=snapshot.fingerprint,
        fingerprint_at=snapshot.revision,
        anomalies=snapshot.anomalies.counts,
    )


def is_other_history(before: Replica, after: Replica) -> bool:
    """Whether ``after`` is of another log, or of one that lost what ``before`` knew."""
    old, new = before.position, after.position
    if old.epoch.log_id != new.epoch.log_id:
        return True
    return (
        old.epoch == new.epoch
        and old.ordinal < new.ordinal
        and new.delta_revision <= before.revision
    )
