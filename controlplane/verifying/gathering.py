"""Gathers what was said of a log: deltas, heads, snapshots, what routers reported."""

from __future__ import annotations

from typing import Final

import msgspec

from controlplane.broker import Broker, StreamState
from controlplane.presence import kept_reports
from controlplane.topology import Names
from controlplane.viewfeed import SnapshotPointer, ViewEntry, ViewFeed
from events import EVENT_TYPES, Revision
from projections import (
    FOLD_VERSION,
    Delta,
    Epoch,
    EpochStarted,
    SnapshotUnusableError,
    restore,
)

from .claims import (
    Claim,
    claim_of_entry,
    claim_of_head,
    claim_of_report,
    claim_of_snapshot,
)
from .judge import Finding

TRIES: Final = 3
"""A snapshot may be replaced while it is read."""


class Gathered(msgspec.Struct, kw_only=True):
    """What was said of a log up to a moment, and where the log ended after it."""

    claims: list[Claim] = []
    findings: list[Finding] = []
    """What does not fit in itself, whatever the log says."""
    routers: set[str] = set()
    trimmed: dict[str, int] = {}
    silent: int = 0
    foreign: int = 0
    log: StreamState | None = None
    """Of the log, asked for after all claims; None: there is no broker."""


async def gather(broker: Broker, feed: ViewFeed, log_id: str | None) -> Gathered:
    """Everything that was said of the log with this identity, and is still kept.

    Raises `LogUnavailableError`.
    """
    found = Gathered()
    await _read_view(feed, log_id, found)
    head = await feed.last_head()
    if head is not None:
        found.claims.append(claim_of_head(head[0]))
    await _read_snapshot(feed, found)
    await _read_reports(broker, feed.names, found)
    found.log = await broker.state(feed.names.log_stream)
    return found


async def _read_view(feed: ViewFeed, log_id: str | None, found: Gathered) -> None:
    state = await feed.state()
    found.trimmed["view"] = state.first_sequence - 1
    numbering = _Numbering(found)
    last: Epoch | None = None
    async for entries in feed.read(state.first_sequence - 1, state.last_sequence):
        for entry in entries:
            claim = claim_of_entry(entry)
            if claim is None:
                found.foreign += 1
                continue
            numbering.take(entry)
            found.claims.append(claim)
            last = claim.epoch
    if last is not None and last.log_id != log_id:
        found.findings.append(
            Finding(
                what="another_log",
                who=f"the view, in epoch {last},",
                revision=last.revision,
                said=f"the log's id as {last.log_id}",
                found=f"the id {log_id}",
            )
        )


class _Numbering:
    """Whether each delta stands in its place behind the one before."""

    def __init__(self, found: Gathered) -> None:
        self._found = found
        self._bases: dict[Epoch, int] = {}
        self._before: dict[Epoch, Revision] = {}

    def take(self, entry: ViewEntry) -> None:
        match entry.message:
            case EpochStarted() as start:
                self._bases[start.epoch] = entry.view_seq
                self._before[start.epoch] = start.revision
            case Delta() as delta:
                base = self._bases.setdefault(
                    delta.epoch, entry.view_seq - delta.ordinal
                )
                if base + delta.ordinal != entry.view_seq:
                    said = f"ordinal {delta.ordinal}"
                    place = f"the place of {entry.view_seq - base}"
                    self._find(delta, said, place)
                before = self._before.get(delta.epoch, delta.previous_revision)
                if before != delta.previous_revision:
                    said = f"follows revision {delta.previous_revision}"
                    self._find(delta, said, f"the delta before it is of {before}")
                self._before[delta.epoch] = delta.revision

    def _find(self, delta: Delta, said: str, found: str) -> None:
        self._found.findings.append(
            Finding(
                what="numbering",
                who=f"delta {delta.ordinal} of epoch {delta.epoch}",
                revision=delta.revision,
                said=said,
                found=found,
            )
        )


async def _read_snapshot(feed: ViewFeed, found: Gathered) -> None:
    for attempt in range(1, TRIES + 1):
        pointer = await feed.snapshot_pointer()
        if pointer is None:
            return
        if pointer.fold_version != FOLD_VERSION:
            found.claims.append(_of_pointer(pointer))
            return
        try:
            snapshot = await feed.read_snapshot(pointer)
            state = restore(snapshot, frozenset(EVENT_TYPES))
        except SnapshotUnusableError as error:
            if attempt < TRIES:
                continue
            found.findings.append(
                Finding(
                    what="unreadable",
                    who=f"the snapshot of epoch {pointer.position.epoch}",
                    revision=pointer.revision,
                    said=f"checksum {pointer.checksum}",
                    found=error.reason,
                )
            )
        else:
            found.claims.append(claim_of_snapshot(snapshot, state.ports))
        return


def _of_pointer(pointer: SnapshotPointer) -> Claim:
    """Of a snapshot that this version cannot read: counted, not compared."""
    epoch = msgspec.structs.replace(
        pointer.position.epoch, fold_version=pointer.fold_version
    )
    return Claim(kind="snapshot", epoch=epoch, revision=pointer.revision, digest="")


async def _read_reports(broker: Broker, names: Names, found: Gathered) -> None:
    state = await broker.state(names.report_stream)
    found.trimmed["reports"] = state.first_sequence - 1
    async for kept in kept_reports(broker, names):
        claim = claim_of_report(kept)
        if claim is None:
            found.silent += 1
            continue
        found.claims.append(claim)
        found.routers.add(claim.router)
