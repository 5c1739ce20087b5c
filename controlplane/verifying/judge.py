"""Holds what was said of a log against what the log comes to. Pure.

The records go through the fold once, in order. A claim is checked when the fold stands
where the claim does: first whether the log holds the record that it names, then whether
the digests are equal. Before each delta nothing may have changed the fleet since the
delta before: else one is missing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from operator import itemgetter
from typing import Any, Final, Literal, TypeAlias

import msgspec

from events import Record, Revision
from projections import FOLD_VERSION, Epoch, FoldState, evolve, fold_all

from .claims import PLACE, Claim, Kind, checks

Verdict: TypeAlias = Literal["whole", "diverged", "forked"]
What: TypeAlias = Literal[
    "digest",
    "ports",
    "record",
    "beyond_end",
    "missing_delta",
    "numbering",
    "unreadable",
    "another_log",
    "incomplete",
]
KINDS: Final[tuple[Kind, ...]] = ("delta", "epoch", "snapshot", "head", "report")
FORKS: Final = frozenset({"record", "beyond_end", "another_log"})
"""What shows that the log is not the one that was spoken of."""


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """Something that does not fit, and what each side had."""

    what: What
    who: str
    revision: Revision
    said: str
    found: str
    """What the log has, or comes to."""
    recorded_at: datetime | None = None
    """Of the last record folded there."""

    @property
    def is_fork(self) -> bool:
        """Whether the log is not the one that was spoken of."""
        return self.what in FORKS

    def document(self) -> dict[str, Any]:
        """The finding as plain data."""
        return msgspec.structs.asdict(self)


class Count(msgspec.Struct, kw_only=True):
    """What became of the claims of one kind."""

    said: int = 0
    equal: int = 0
    different: int = 0
    unproven: int = 0
    """Different, but records before them were removed on purpose."""
    incomparable: int = 0
    """Of another log, or of another fold version."""


class Judge:
    """Folds one log and checks ``claims`` on the way."""

    def __init__(self, log_id: str, first: Revision, claims: Sequence[Claim]) -> None:
        """The log of this identity, whose first revision is ``first``."""
        self.state = FoldState()
        self.counts: dict[Kind, Count] = {kind: Count() for kind in KINDS}
        self.findings: list[Finding] = []
        self.records = self.removed = 0
        self._log_id, self._next = log_id, first
        self._first_hole: Revision | None = None
        comparable = []
        for claim in claims:
            count = self.counts[claim.kind]
            count.said += 1
            if self._is_comparable(claim.epoch):
                comparable.append(claim)
            else:
                count.incomparable += 1
        self._checks = sorted(checks(comparable), key=itemgetter(0, 1))
        self._at = 0
        self._astray: set[int] = set()
        """Claims whose record is not in the log: their digest says nothing."""
        self._line: dict[Epoch, tuple[int, str]] = {}
        """The last delta checked of each epoch, and the digest of the fleet there."""

    def _is_comparable(self, epoch: Epoch) -> bool:
        return epoch.log_id == self._log_id and epoch.fold_version == FOLD_VERSION

    # ---- records ---------------------------------------------------------------
    def feed(self, records: Sequence[Record]) -> None:
        """The next records of the log."""
        if not records:
            return
        begin = 0
        while begin < len(records):
            self._note_hole(records[begin].revision)
            self._judge_below(records[begin].revision)
            end = self._up_to_next_check(records, begin)
            self._count(records[begin:end])
            self._fold(records[begin:end])
            begin = end

    def _up_to_next_check(self, records: Sequence[Record], begin: int) -> int:
        if self._at == len(self._checks):
            return len(records)
        place = self._checks[self._at][0]
        end = begin
        while end < len(records) and records[end].revision <= place:
            end += 1
        return max(end, begin + 1)

    def _count(self, records: Iterable[Record]) -> None:
        for record in records:
            self.records += 1
            self._note_hole(record.revision)
            self._next = record.revision + 1

    def _note_hole(self, revision: Revision) -> None:
        if revision > self._next:
            self.removed += revision - self._next
            if self._first_hole is None:
                self._first_hole = self._next
            self._next = revision

    def _fold(self, records: Sequence[Record]) -> None:
        """Fold them; the last is where a claim may stand."""
        *most, last = records
        if most:
            self.state = fold_all(self.state, most)
        before = self.state
        self.state = evolve(before, last)
        claim = self._delta_at(last.revision)
        if claim is not None:
            self._check_line(claim, before)

    def _delta_at(self, revision: Revision) -> Claim | None:
        for at in range(self._at, len(self._checks)):
            place, _, claim = self._checks[at]
            if place > revision:
                return None
            if place == revision == claim.revision and claim.kind == "delta":
                return claim
        return None

    def _check_line(self, claim: Claim, before: FoldState) -> None:
        """Whether there is a delta for all that changed since the one before."""
        last = self._line.get(claim.epoch)
        if last is None or last[0] + 1 != claim.ordinal:
            return
        now = before.fleet_state.digest
        if last[1] != now and not self._is_excused(claim.revision):
            self._find(
                "missing_delta",
                claim,
                said=f"delta {last[0]} before it, with digest {last[1]}",
                found=f"{now} before the record at {claim.revision}",
            )

    # ---- claims ----------------------------------------------------------------
    def finish(self, last: Revision) -> None:
        """No more records: the log ends at ``last``."""
        self._note_hole(last + 1)
        self._judge_below(last + 1)
        for place, _, claim in self._checks[self._at :]:
            if id(claim) in self._astray:
                continue
            self._astray.add(id(claim))
            self.counts[claim.kind].different += 1
            said, end = f"a record at revision {place}", f"its end at revision {last}"
            self._find("beyond_end", claim, said=said, found=end)
        self._at = len(self._checks)
        self.findings.sort(key=lambda one: (one.revision, not one.is_fork))

    def _judge_below(self, revision: Revision) -> None:
        """Check what stands below ``revision``, with the fold as it is."""
        while self._at < len(self._checks) and self._checks[self._at][0] < revision:
            _, what, claim = self._checks[self._at]
            self._at += 1
            if what == PLACE:
                self._check_place(claim)
            elif id(claim) not in self._astray:
                self._check_digest(claim)

    def _check_place(self, claim: Claim) -> None:
        state = self.state
        if claim.fingerprint_at != state.revision:
            return  # that record was removed
        if claim.fingerprint != state.fingerprint:
            self._astray.add(id(claim))
            self.counts[claim.kind].different += 1
            self._find(
                "record",
                claim,
                said=f"event {claim.fingerprint} at revision {state.revision}",
                found=f"event {state.fingerprint}",
            )

    def _check_digest(self, claim: Claim) -> None:
        count, state = self.counts[claim.kind], self.state
        fleet, ports = state.fleet_state.digest, state.ports.digest
        if claim.kind in ("delta", "epoch"):
            self._line[claim.epoch] = (claim.ordinal, fleet)
        if claim.digest != fleet:
            self._differs("digest", claim, claim.digest, fleet)
        elif claim.ports_digest not in (None, ports):
            self._differs("ports", claim, str(claim.ports_digest), ports)
        else:
            count.equal += 1

    def _differs(self, what: What, claim: Claim, said: str, found: str) -> None:
        if self._is_excused(claim.revision):
            self.counts[claim.kind].unproven += 1
            return
        self.counts[claim.kind].different += 1
        self._find(what, claim, said=said, found=found)

    def _is_excused(self, revision: Revision) -> bool:
        """Whether records that mattered there may have been removed on purpose."""
        return self._first_hole is not None and self._first_hole <= revision

    def _find(self, what: What, claim: Claim, *, said: str, found: str) -> None:
        self.findings.append(
            Finding(
                what=what,
                who=claim.who,
                revision=claim.revision,
                said=said,
                found=found,
                recorded_at=self.state.recorded_at,
            )
        )


class Verification(msgspec.Struct, frozen=True, kw_only=True):
    """What came of verifying a log."""

    cell: str
    log_id: str | None
    first: Revision
    last: Revision
    records: int
    removed: int
    """Revisions without a record: removed on purpose, for nothing else makes holes."""
    digest: str
    ports_digest: str
    counts: dict[Kind, Count]
    routers: tuple[str, ...] = ()
    """Whose reports were compared."""
    trimmed: dict[str, int] = {}
    """How many view messages and reports retention had removed before."""
    silent: int = 0
    """Reports of routers that knew nothing yet."""
    foreign: int = 0
    """Messages in the view stream that are none of its own."""
    findings: tuple[Finding, ...] = ()
    """In order of revisions."""

    @property
    def verdict(self) -> Verdict:
        """By the first finding."""
        if not self.findings:
            return "whole"
        return "forked" if self.findings[0].is_fork else "diverged"

    def document(self) -> dict[str, Any]:
        """All of it as plain data."""
        return {
            "ok": not self.findings,
            "verdict": self.verdict,
            "cell": self.cell,
            "log_id": self.log_id,
            "first_revision": self.first,
            "last_revision": self.last,
            "records": self.records,
            "removed": self.removed,
            "digest": self.digest,
            "ports_digest": self.ports_digest,
            "compared": {
                kind: msgspec.structs.asdict(count)
                for kind, count in self.counts.items()
            },
            "routers": list(self.routers),
            "trimmed": self.trimmed,
            "foreign": self.foreign,
            "silent": self.silent,
            "divergences": len(self.findings),
            "first_divergence": (
                self.findings[0].document() if self.findings else None
            ),
        }
