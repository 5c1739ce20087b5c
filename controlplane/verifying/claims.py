"""Claims: what somebody once said that the log comes to, at a revision."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Final, Literal, TypeAlias

import msgspec

from controlplane.presence import KeptReport
from controlplane.viewfeed import Head, ViewEntry
from events import Revision
from projections import Delta, Epoch, EpochStarted, PortTable, Snapshot, parse_epoch

Kind: TypeAlias = Literal["delta", "epoch", "snapshot", "head", "report"]
PLACE: Final = 0
"""Check that the log holds the record that a claim names…"""
DIGEST: Final = 1
"""…then that the fleet had that digest there."""


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
    """Of a delta."""
    router: str = ""
    """Of a report."""
    said_at: datetime | None = None
    ports_digest: str | None = None
    """Of a snapshot."""

    @property
    def who(self) -> str:
        """Who says it, for people."""
        match self.kind:
            case "delta":
                return f"delta {self.ordinal} of epoch {self.epoch}"
            case "epoch":
                return f"the start of epoch {self.epoch}"
            case "snapshot":
                return f"the snapshot of epoch {self.epoch}"
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
            )
        case EpochStarted() as start:
            return Claim(
                kind="epoch",
                epoch=start.epoch,
                revision=start.revision,
                digest=start.digest,
                fingerprint=start.fingerprint,
                fingerprint_at=start.revision,
            )
        case None:
            return None


def claim_of_head(head: Head) -> Claim:
    """What the leader says each second."""
    return Claim(
        kind="head",
        epoch=head.epoch,
        revision=head.revision,
        digest=head.digest,
        fingerprint=head.fingerprint,
        fingerprint_at=head.revision,
    )


def claim_of_snapshot(snapshot: Snapshot, ports: PortTable) -> Claim:
    """What a snapshot holds, and the table of ports in it."""
    return Claim(
        kind="snapshot",
        epoch=snapshot.position.epoch,
        revision=snapshot.revision,
        digest=snapshot.fleet_digest,
        fingerprint=snapshot.fingerprint,
        fingerprint_at=snapshot.revision,
        ports_digest=ports.digest,
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
    """Where each claim is to be checked: its record's place, then its digest."""
    for claim in claims:
        if claim.fingerprint:
            yield claim.fingerprint_at, PLACE, claim
        yield claim.revision, DIGEST, claim
