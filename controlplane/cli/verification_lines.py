"""What came of verifying a log, as lines. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from rich.text import Text

from controlplane.verifying import Count, Finding, Verification

from .columns import Cell, Column, table
from .tables import BAD, FAINT, GOOD, ODD, short_id
from .wrapping import wrapped

COLUMNS: Final = (
    Column(title="who"),
    Column(title="said", right=True),
    Column(title="equal", right=True),
    Column(title="different", right=True),
    Column(title="", least=10),
)
NAMES: Final = {
    "delta": "deltas",
    "epoch": "epochs",
    "snapshot": "snapshots",
    "head": "heads",
    "report": "routers",
}
WORDS: Final = {
    "digest": "another fleet",
    "ports": "other ports",
    "changes": "other changes",
    "anomalies": "other anomalies",
    "contents": "other contents",
    "position": "another place in the view",
    "record": "another record",
    "fingerprint": "a record by a wrong name",
    "beyond_end": "a record that is not there",
    "missing_delta": "a delta is missing",
    "numbering": "out of its place in the view",
    "unreadable": "cannot be read",
    "another_log": "another log",
    "incomplete": "records are missing",
}

OTHER_SIDE: Final = {
    "position": "the view has",
    "numbering": "the view has",
    "unreadable": "it cannot be used:",
}
"""Who has what was found, where it is not the log."""


def verification_lines(found: Verification, width: int) -> Iterator[Text]:
    """Who said how much and was right; then the log; then what differs first."""
    if any(count.said for count in found.counts.values()):
        yield from table(COLUMNS, _rows(found), width)
    yield from _log(found, width)
    if not found.findings:
        yield from wrapped(_good(found), width, style=GOOD)
        return
    first, *others = found.findings
    yield from _finding(first, width)
    if others:
        said = f"and {len(others):,} more behind it: they may all come from the first"
        yield from wrapped(said, width, style=FAINT)
    if found.verdict == "forked":
        said = (
            "the log is not the one that was spoken of: it lost records, or was put "
            "back to an older state, and others took their place"
        )
        yield from wrapped(said, width, style=BAD)


def _rows(found: Verification) -> Iterator[list[Cell]]:
    for kind, count in found.counts.items():
        if not count.said:
            continue
        different = Text(f"{count.different:,}", style=BAD if count.different else "")
        note = ", ".join(_notes(found, kind, count))
        yield [
            NAMES[kind],
            f"{count.said:,}",
            f"{count.equal:,}",
            different,
            Text(note, style=FAINT),
        ]


def _notes(found: Verification, kind: str, count: Count) -> Iterator[str]:
    if kind == "report":
        many = len(found.routers)
        yield f"{many:,} router{'' if many == 1 else 's'}"
    trimmed = found.trimmed.get({"delta": "view", "report": "reports"}.get(kind, ""), 0)
    if trimmed:
        yield f"{trimmed:,} before were trimmed"
    if count.unproven:
        yield f"{count.unproven:,} not provable"
    if count.incomparable:
        yield f"{count.incomparable:,} of another log or version"


def _log(found: Verification, width: int) -> Iterator[Text]:
    said = (
        f"log {short_id(found.log_id)} of cell {found.cell}: {found.records:,} "
        f"records, revisions {found.first} to {found.last}"
    )
    yield from wrapped(said, width, style=FAINT)
    digests = f"digest {found.digest}, ports {found.ports_digest}"
    yield from wrapped(digests, width, style=FAINT)
    if found.removed:
        said = f"{found.removed:,} removed: purged on purpose, which is no loss"
        yield from wrapped(said, width, style=ODD)
    if found.foreign:
        said = f"{found.foreign:,} messages in the view stream are none of its own"
        yield from wrapped(said, width, style=ODD)


def _good(found: Verification) -> str:
    if any(count.unproven for count in found.counts.values()):
        return "everybody agrees with the log, as far as it can still be told"
    if any(count.equal for count in found.counts.values()):
        return "everybody agrees with the log"
    return "the log can be read from its first record to its last"


def _finding(finding: Finding, width: int) -> Iterator[Text]:
    when = "" if finding.recorded_at is None else f" ({finding.recorded_at:%F %T} UTC)"
    head = f"first divergence: {WORDS[finding.what]}, at revision {finding.revision}"
    yield from wrapped(f"{head}{when}", width, style=BAD)
    yield from wrapped(f"{finding.who} has {finding.said}", width, indent="  ")
    other = OTHER_SIDE.get(finding.what, "the log has")
    yield from wrapped(f"{other} {finding.found}", width, indent="  ")
