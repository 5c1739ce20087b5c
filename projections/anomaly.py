"""Records that changed nothing they meant to, or could not be read: counted, listed.

They stand outside the digest: what nobody could read must not make two versions
disagree about the fleet.
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

import msgspec

from events import Revision

AnomalyKind: TypeAlias = Literal["stale", "unknown", "undecodable", "no_op"]
LISTED_MAX: Final = 200
REASON_MAX: Final = 300


class Anomaly(msgspec.Struct, frozen=True, kw_only=True):
    """One such record."""

    revision: Revision
    kind: AnomalyKind
    subject: str
    reason: str


class AnomalyCounts(msgspec.Struct, frozen=True, kw_only=True):
    """How many there were since the log began."""

    stale: int = 0
    """Named an incarnation (or claim) that is not the current one."""
    unknown: int = 0
    """Had a tag that this version does not know."""
    undecodable: int = 0
    """Could not be read for any other reason."""
    no_op: int = 0
    """Understood, and changed nothing."""


class Anomalies(msgspec.Struct, frozen=True, kw_only=True):
    """The counts, the latest of them, and every tag that was skipped."""

    counts: AnomalyCounts = AnomalyCounts()
    latest: tuple[Anomaly, ...] = ()
    skipped_tags: frozenset[str] = frozenset()
    """A version that knows one of these must not build on this state."""

    @property
    def stale(self) -> int:
        """How many named what is not current."""
        return self.counts.stale

    @property
    def unknown(self) -> int:
        """How many had a tag unknown here."""
        return self.counts.unknown

    @property
    def undecodable(self) -> int:
        """How many could not be read."""
        return self.counts.undecodable

    @property
    def no_op(self) -> int:
        """How many changed nothing."""
        return self.counts.no_op


def noted(
    anomalies: Anomalies, anomaly: Anomaly, skipped_tag: str | None = None
) -> Anomalies:
    """The anomalies with one more."""
    count = getattr(anomalies.counts, anomaly.kind) + 1
    counts = msgspec.structs.replace(anomalies.counts, **{anomaly.kind: count})
    skipped = anomalies.skipped_tags
    if skipped_tag is not None and skipped_tag not in skipped:
        skipped |= {skipped_tag}
    latest = (*anomalies.latest[-(LISTED_MAX - 1) :], anomaly)
    return Anomalies(counts=counts, latest=latest, skipped_tags=skipped)
