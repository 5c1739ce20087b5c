"""Verifies a history: one pass of the fold over all of it, everything compared."""

from __future__ import annotations

from collections.abc import Iterator

from controlplane.broker import StreamState
from controlplane.playback import History, Progress, whole_ends
from events import Revision

from .findings import Finding, Verification
from .gathering import Gathered
from .judge import Judge


async def verify(
    history: History, gathered: Gathered, progress: Progress | None = None
) -> Verification:
    """What the whole log comes to, and whether all that was said of it agrees.

    ``gathered`` may be empty: then it is only read, folded and counted. Raises
    `HistoryTruncatedError` when its beginning is gone, and what reading it raises.
    """
    ends = await whole_ends(history)
    last = ends.last if gathered.log is None else gathered.log.last_sequence
    judge = Judge(history.log_id or "", ends.first, gathered.claims)
    async for records in history.batches(0, last):
        judge.feed(records)
        if progress is not None:
            progress(judge.state.revision, last)
    judge.finish(last)
    findings = [*gathered.findings, *judge.findings]
    if gathered.log is not None:
        findings += _of_stream(gathered.log, history.log_id, judge, last)
    findings.sort(key=lambda one: (one.revision, not one.is_fork))
    return Verification(
        cell=history.cell,
        log_id=history.log_id,
        first=ends.first,
        last=last,
        records=judge.records,
        removed=judge.removed,
        digest=judge.state.fleet_state.digest,
        ports_digest=judge.state.ports.digest,
        counts=judge.counts,
        routers=tuple(sorted(gathered.routers)),
        trimmed=gathered.trimmed,
        silent=gathered.silent,
        foreign=gathered.foreign,
        findings=tuple(findings),
    )


def _of_stream(
    state: StreamState, log_id: str | None, judge: Judge, last: Revision
) -> Iterator[Finding]:
    """What does not fit in what the broker says of the log itself."""
    if not log_id:
        yield Finding(
            what="another_log",
            who="every log that this version creates",
            revision=last,
            said="an identity in its stream's metadata",
            found="none",
        )
    if judge.records < state.messages:
        yield Finding(
            what="incomplete",
            who="the broker",
            revision=last,
            said=f"{state.messages} records",
            found=f"only {judge.records} that can be read",
        )
