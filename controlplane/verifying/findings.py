"""What does not fit, how much was compared, and what came of it all."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final, Literal, TypeAlias

import msgspec

from events import Revision

from .claims import Kind

Verdict: TypeAlias = Literal["whole", "diverged", "forked"]
What: TypeAlias = Literal[
    "digest",
    "ports",
    "changes",
    "anomalies",
    "contents",
    "position",
    "record",
    "fingerprint",
    "beyond_end",
    "missing_delta",
    "numbering",
    "unreadable",
    "another_log",
    "incomplete",
]
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
