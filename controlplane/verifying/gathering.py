"""Gathers what was said of a log: deltas, heads, snapshots, what routers reported."""

from __future__ import annotations

import msgspec

from controlplane.broker import Broker, StreamState
from controlplane.presence import kept_reports
from controlplane.topology import Names
from controlplane.viewfeed import ViewEntry, ViewFeed
from events import Revision
from projections import Delta, Epoch, EpochStarted

from .claims import Claim, claim_of_entry, claim_of_head, claim_of_report
from .findings import Finding
from .kept_snapshots import read_snapshots


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
    numbering = await _read_view(feed, log_id, found)
    head = await feed.last_head()
    if head is not None:
        found.claims.append(claim_of_head(head[0]))
    for said in await read_snapshots(feed):
        if isinstance(said, Finding):
            found.findings.append(said)
        else:
            numbering.check_base(said)
            found.claims.append(said)
    await _read_reports(broker, feed.names, found)
    found.log = await broker.state(feed.names.log_stream)
    return found


async def _read_view(feed: ViewFeed, log_id: str | None, found: Gathered) -> _Numbering:
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
    return numbering


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
                who = f"delta {delta.ordinal} of epoch {delta.epoch}"
                if base + delta.ordinal != entry.view_seq:
                    said = f"ordinal {delta.ordinal}"
                    place = f"it in the place of ordinal {entry.view_seq - base}"
                    self._find(who, delta.revision, said, place)
                before = self._before.get(delta.epoch, delta.previous_revision)
                if before != delta.previous_revision:
                    said = f"revision {delta.previous_revision} for the delta before it"
                    self._find(who, delta.revision, said, f"revision {before} there")
                self._before[delta.epoch] = delta.revision

    def check_base(self, claim: Claim) -> None:
        """Whether a snapshot knows where its epoch starts, if that can be told."""
        if claim.position is None:
            return
        said, base = claim.position.base, self._bases.get(claim.epoch)
        if base is not None and base != said:
            said_text = f"its epoch's start at sequence {said} of the view"
            self._find(claim.who, claim.revision, said_text, f"it at sequence {base}")

    def _find(self, who: str, revision: Revision, said: str, found: str) -> None:
        self._found.findings.append(
            Finding(
                what="numbering", who=who, revision=revision, said=said, found=found
            )
        )


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
