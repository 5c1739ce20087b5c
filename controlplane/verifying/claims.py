"""Claims: what somebody once said that the log comes to, at a revision."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from functools import lru_cache
from typing import Final, Literal, TypeAlias

import msgspec

from controlplane.presence import KeptReport
from controlplane.viewfeed import Head, ViewEntry
from events import Revision
from projections import (
    AnomalyCounts,
    Delta,
    Epoch,
    EpochStarted,
    PortTable,
    Position,
    Snapshot,
    parse_epoch,
)

from .contents import checksum_of, parts_of

Kind: TypeAlias = Literal["delta", "epoch", "snapshot", "head", "report"]
PLACE: Final = 0
"""Check that the log holds the record that a claim names…"""
DIGEST: Final = 1
"""…then that the fleet had that digest there, and the rest of what it says."""


class Claim(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The fleet had this digest at this revision, says whoever said it."""

    kind: Kind
    epoch: Epoch
    revision: Revision
    digest: str
    fingerprint: str = ""
    """Identifies the record at ``fingerprint_at``; empty: not said."""
    fingerprint_at: Revision = 0
    ordinal: int = 0
    """Of a delta, or of the last one that a head or a snapshot stands on."""
    changes: bytes | None = None
    """The checksum of a delta's changes."""
    change_count: int = 0
    anomalies: AnomalyCounts | None = None
    """Of a delta, an epoch's start, a head."""
    router: str = ""
    """Of a report."""
    said_at: datetime | None = None
    ports_digest: str | None = None
    """Of a snapshot."""
    parts: dict[str, str] | None = None
    """Of a snapshot: see `parts_of`."""
    position: Position | None = None
    """Of a snapshot."""
    is_latest: bool = True
    """Of a snapshot: whether it is the one that is pointed to."""

    @property
    def who(self) -> str:
        """Who says it, for people."""
        match self.kind:
            case "delta":
                return f"delta {self.ordinal} of epoch {self.epoch}"
            case "epoch":
                return f"the start of epoch {self.epoch}"
            case "snapshot":
                which = "the snapshot" if self.is_latest else "an older snapshot"
                return f"{which} of epoch {self.epoch}"
            case "head":
                return f"the head of epoch {self.epoch}"
            case "report":
                when = "" if self.said_at is None else f" at {self.said_at:%F %T} UTC"
                return f"router {self.router}{when}"


def claim_of_entry(entry: ViewEntry) -> Claim | None:
    """What a message of the view stream says; None: it is a foreign one."""
    match entry.message:
        case Delta() as delta:
            return Claim(
                kind="delta",
                epoch=delta.epoch,
                revision=delta.revision,
                digest=delta.digest,
                fingerprint=delta.fingerprint,
                fingerprint_at=delta.revision,
                ordinal=delta.ordinal,
                changes=checksum_of(delta.changes),
                change_count=len(delta.changes),
                anomalies=_one_of(delta.anomalies),
            )
        case EpochStarted() as start:
            return Claim(
                kind="epoch",
                epoch=start.epoch,
                revision=start.revision,
                digest=start.digest,
                fingerprint=start.fingerprint,
                fingerprint_at=start.revision,
                anomalies=start.anomalies,
            )
        case None:
            return None


@lru_cache(maxsize=64)
def _one_of(counts: AnomalyCounts) -> AnomalyCounts:
    """One for all that are equal: thousands of deltas have the same."""
    return counts


def claim_of_head(head: Head) -> Claim:
    """What the leader says each second."""
    return Claim(
        kind="head",
        epoch=head.epoch,
        revision=head.revision,
        digest=head.digest,
        fingerprint=head.fingerprint,
        fingerprint_at=head.revision,
        ordinal=head.ordinal,
        anomalies=head.anomalies,
    )


def claim_of_snapshot(
    snapshot: Snapshot, ports: PortTable, *, is_latest: bool = True
) -> Claim:
    """What a snapshot holds, and the table of ports in it.

    Raises `SnapshotUnusableError`.
    """
    return Claim(
        kind="snapshot",
        epoch=snapshot.position.epoch,
        revision=snapshot.revision,
        digest=snapshot.fleet_digest,
        fingerprint=snapshot.fingerprint,
        fingerprint_at=snapshot.revision,
        ordinal=snapshot.position.ordinal,
        ports_digest=ports.digest,
        parts=parts_of(snapshot),
        position=snapshot.position,
        is_latest=is_latest,
    )


def claim_of_report(kept: KeptReport) -> Claim | None:
    """What a router reported; None: it knew nothing then."""
    said = kept.report.presence
    epoch = None if said.epoch is None else parse_epoch(said.epoch)
    if epoch is None:
        return None
    return Claim(
        kind="report",
        epoch=epoch,
        revision=said.revision,
        digest=said.digest,
        fingerprint=said.fingerprint,
        fingerprint_at=said.fingerprint_at,
        router=said.name,
        said_at=kept.stored_at,
    )


def checks(claims: list[Claim]) -> Iterator[tuple[Revision, int, Claim]]:
    """Where each claim is to be checked: its record's place, then what it says."""
    for claim in claims:
        if claim.fingerprint:
            yield claim.fingerprint_at, PLACE, claim
        yield claim.revision, DIGEST, claim
