"""Deltas before they are published: what they carry, their bytes, their batches."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from events import Revision
from projections import (
    AnomalyCounts,
    Delta,
    Epoch,
    EpochStarted,
    FleetChange,
    FoldState,
    encode_view,
)

BATCH_BYTES: Final = 8 << 20
PAYLOAD_MAX: Final = 1_000_000
"""A message of the view stream; a server takes 1 MiB with its headers."""


class Draft(msgspec.Struct, frozen=True):
    """A delta that has no number yet."""

    revision: Revision
    fingerprint: str
    changes: tuple[FleetChange, ...]
    anomalies: AnomalyCounts
    digest: str
    since: float
    """When it was computed, on the projector's clock."""

    def encode(self, epoch: Epoch, ordinal: int, previous: Revision) -> bytes:
        """Its bytes under the number ``ordinal``, after the delta of ``previous``."""
        return encode_view(
            Delta(
                epoch=epoch,
                ordinal=ordinal,
                revision=self.revision,
                fingerprint=self.fingerprint,
                previous_revision=previous,
                changes=self.changes,
                anomalies=self.anomalies,
                digest=self.digest,
            )
        )


def draft(state: FoldState, changes: tuple[FleetChange, ...], since: float) -> Draft:
    """The delta of the record that led to ``state``."""
    return Draft(
        state.revision,
        state.fingerprint,
        changes,
        state.anomalies.counts,
        state.fleet_state.digest,
        since,
    )


def start_of(epoch: Epoch, state: FoldState, reason: str) -> EpochStarted:
    """The message that begins ``epoch`` where ``state`` stands."""
    return EpochStarted(
        epoch=epoch,
        fingerprint=state.fingerprint,
        anomalies=state.anomalies.counts,
        digest=state.fleet_state.digest,
        reason=reason,
    )


def fill_batch(payloads: Iterable[bytes]) -> tuple[bytes, ...]:
    """As many as one batch can carry; none: not even the first."""
    batch: list[bytes] = []
    size = 0
    for payload in payloads:
        size += len(payload)
        if len(payload) > PAYLOAD_MAX or (batch and size > BATCH_BYTES):
            break
        batch.append(payload)
    return tuple(batch)
