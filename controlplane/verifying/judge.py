"""Holds what was said of a log against what the log comes to. Pure.

The records go through the fold once, in order. A claim is checked when the fold stands
where the claim does: first whether the log holds the record that it names, then whether
the digests are equal, and what no digest covers: the changes of a delta, all that is in
a snapshot. Before each delta nothing may have changed the fleet since the delta before:
else one is missing.

Whoever names a record that the log does not hold speaks of another log. Unless all the
rest fits, and others of the same numbering name records of the log there or later: then
the log is the right one, and the name is wrong.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import itemgetter
from typing import Final, NamedTuple

import msgspec

from events import Record, Revision
from projections import (
    FOLD_VERSION,
    AnomalyCounts,
    Epoch,
    FleetChange,
    FleetState,
    FoldState,
    fold_all,
    step,
    take,
)

from .claims import PLACE, Claim, Kind, checks
from .contents import DIGESTED, checksum_of, parts_of, said_of
from .findings import Count, Finding, What

KINDS: Final[tuple[Kind, ...]] = ("delta", "epoch", "snapshot", "head", "report")


class _Delta(NamedTuple):
    """The last delta checked of an epoch."""

    ordinal: int
    revision: Revision
    fleet: FleetState
    """As it was there, by the log."""
    is_equal: bool


class _Unlike(NamedTuple):
    """What a claim has wrong, and what each side has."""

    what: What
    said: str
    found: str
    is_sure: bool = False
    """Whether it is wrong also if records before it were removed."""


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
        self._astray: dict[int, Finding] = {}
        """Of claims whose record is not in the log, until the rest is checked."""
        self._misnamed: list[tuple[Claim, Finding]] = []
        """Those of which all the rest fits."""
        self._vouched: dict[Epoch, Revision] = {}
        """The last record that somebody named rightly in each numbering."""
        self._changes: tuple[FleetChange, ...] = ()
        """Made by the record that the fold stands at."""
        self._line: dict[Epoch, _Delta] = {}

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
        folded = step(before, last)
        self.state, self._changes = folded.state, folded.changes
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
        if last is None or last.ordinal + 1 != claim.ordinal:
            return
        now = before.fleet_state
        if last.fleet.total != now.total and not self._is_excused(claim.revision):
            self._find(
                "missing_delta",
                claim,
                said=f"delta {last.ordinal} before it, with digest {last.fleet.digest}",
                found=f"{now.digest} before the record at {claim.revision}",
            )

    # ---- claims ----------------------------------------------------------------
    def finish(self, last: Revision) -> None:
        """No more records: the log ends at ``last``."""
        self._note_hole(last + 1)
        self._judge_below(last + 1)
        told: set[int] = set()
        for place, _, claim in self._checks[self._at :]:
            if id(claim) in told:
                continue
            told.add(id(claim))
            self.counts[claim.kind].different += 1
            other = self._astray.pop(id(claim), None)
            if other is not None:
                self.findings.append(other)
                continue
            said, end = f"a record at revision {place}", f"its end at revision {last}"
            self._find("beyond_end", claim, said=said, found=end)
        self._at = len(self._checks)
        for claim, finding in self._misnamed:
            is_known = self._vouched.get(claim.epoch, -1) >= claim.fingerprint_at
            what: What = "fingerprint" if is_known else "record"
            self.findings.append(msgspec.structs.replace(finding, what=what))
        self.findings.sort(key=lambda one: (one.revision, not one.is_fork))

    def _judge_below(self, revision: Revision) -> None:
        """Check what stands below ``revision``, with the fold as it is."""
        while self._at < len(self._checks) and self._checks[self._at][0] < revision:
            _, what, claim = self._checks[self._at]
            self._at += 1
            if what == PLACE:
                self._check_place(claim)
            else:
                self._check_claim(claim)

    def _check_place(self, claim: Claim) -> None:
        state = self.state
        if claim.fingerprint_at != state.revision:
            return  # that record was removed
        if claim.fingerprint != state.fingerprint:
            self._astray[id(claim)] = self._finding(
                "record",
                claim,
                said=f"event {claim.fingerprint} at revision {state.revision}",
                found=f"event {state.fingerprint}",
            )

    def _check_claim(self, claim: Claim) -> None:
        """All that it says but its record."""
        unlike = self._unlike(claim)
        other_record = self._astray.pop(id(claim), None)
        if other_record is None or unlike is None:
            self._pass(claim, is_equal=unlike is None)
        if other_record is not None:
            self.counts[claim.kind].different += 1
            if unlike is None:
                self._misnamed.append((claim, other_record))
            else:
                self.findings.append(other_record)
        elif unlike is not None:
            self._differs(claim, unlike)
        else:
            self.counts[claim.kind].equal += 1
            if claim.fingerprint and self.state.revision == claim.fingerprint_at:
                self._vouched[claim.epoch] = claim.fingerprint_at

    def _pass(self, claim: Claim, *, is_equal: bool) -> None:
        """The next delta of its epoch follows this one."""
        if claim.kind in ("delta", "epoch"):
            fleet = self.state.fleet_state
            passed = _Delta(claim.ordinal, claim.revision, fleet, is_equal)
            self._line[claim.epoch] = passed

    def _unlike(self, claim: Claim) -> _Unlike | None:
        """What first it has otherwise than the log; None: all is alike."""
        state = self.state
        fleet = state.fleet_state.digest
        if claim.digest != fleet:
            return _Unlike("digest", claim.digest, fleet)
        if claim.ports_digest not in (None, state.ports.digest):
            return _Unlike("ports", str(claim.ports_digest), state.ports.digest)
        is_excused = self._is_excused(claim.revision)
        if claim.changes is not None and (not is_excused or self._follows(claim)):
            unlike = self._unlike_changes(claim, claim.changes)
            if unlike is not None:
                return unlike
        counts = state.anomalies.counts
        if not is_excused and claim.anomalies not in (None, counts):
            return _Unlike("anomalies", _text(claim.anomalies), _text(counts))
        if claim.kind in ("snapshot", "head"):
            return self._unlike_place(claim) or self._unlike_parts(claim)
        return None

    def _follows(self, claim: Claim) -> bool:
        """Whether the delta before it was right: then the fleet that it changes is."""
        last = self._line.get(claim.epoch)
        return last is not None and last.is_equal and last.ordinal + 1 == claim.ordinal

    def _unlike_changes(self, claim: Claim, said: bytes) -> _Unlike | None:
        if claim.revision != self.state.revision:
            return None  # its record was removed
        own, count = checksum_of(self._changes), len(self._changes)
        if said == own and count:
            return None
        said_text = said_of(claim.change_count, said)
        return _Unlike("changes", said_text, said_of(count, own), is_sure=True)

    def _unlike_place(self, claim: Claim) -> _Unlike | None:
        """Where a head or a snapshot says that it stands in the view."""
        last = self._line.get(claim.epoch)
        if last is None:
            return None  # what it stands on was trimmed
        if claim.ordinal > last.ordinal and not self._is_more_of(claim.epoch):
            return None  # it was not published yet
        place = claim.position
        revision = last.revision if place is None else place.delta_revision
        if (claim.ordinal, revision) == (last.ordinal, last.revision):
            return None
        said = f"delta {claim.ordinal}, of revision {revision}, as its last one"
        found = f"delta {last.ordinal}, of revision {last.revision}, there"
        return _Unlike("position", said, found, is_sure=True)

    def _is_more_of(self, epoch: Epoch) -> bool:
        """Whether later deltas of this epoch are there."""
        rest = (claim for _, _, claim in self._checks[self._at :])
        return any(claim.kind == "delta" and claim.epoch == epoch for claim in rest)

    def _unlike_parts(self, claim: Claim) -> _Unlike | None:
        if claim.parts is None or claim.position is None:
            return None
        own = parts_of(take(self.state, claim.position))
        wrong = [name for name in own if claim.parts.get(name) != own[name]]
        if not wrong:
            return None
        said, found = (
            "; ".join(f"{name}: {parts.get(name)}" for name in wrong)
            for parts in (claim.parts, own)
        )
        is_sure = not DIGESTED.isdisjoint(wrong)
        return _Unlike("contents", said, found, is_sure)

    def _differs(self, claim: Claim, unlike: _Unlike) -> None:
        if self._is_excused(claim.revision) and not unlike.is_sure:
            self.counts[claim.kind].unproven += 1
            return
        self.counts[claim.kind].different += 1
        self._find(unlike.what, claim, said=unlike.said, found=unlike.found)

    def _is_excused(self, revision: Revision) -> bool:
        """Whether records that mattered there may have been removed on purpose."""
        return self._first_hole is not None and self._first_hole <= revision

    def _find(self, what: What, claim: Claim, *, said: str, found: str) -> None:
        self.findings.append(self._finding(what, claim, said=said, found=found))

    def _finding(self, what: What, claim: Claim, *, said: str, found: str) -> Finding:
        return Finding(
            what=what,
            who=claim.who,
            revision=claim.revision,
            said=said,
            found=found,
            recorded_at=self.state.recorded_at,
        )


def _text(counts: AnomalyCounts | None) -> str:
    fields = {} if counts is None else msgspec.structs.asdict(counts)
    return ", ".join(f"{count} {kind}" for kind, count in fields.items())
