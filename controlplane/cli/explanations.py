"""Explanations as text. Pure: what is printed depends on the arguments alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import date, datetime
from typing import Final

from rich.cells import cell_len
from rich.text import Text

from events import Record
from projections import (
    Explanation,
    Link,
    ModelExplanation,
    NamespaceOfModel,
    Stretch,
    Turn,
    Worker,
)

from .columns import Cell, Column, heading, line, shown, stream_widths, table
from .records import record_parts
from .tables import BAD, FAINT, GOOD, ODD, SHORT, YES
from .tables import NO as NO_CELL
from .wrapping import wrapped

CHAIN_COLUMNS: Final = (
    Column(title="revision", usual=8, right=True),
    Column(title="time", usual=8),
    Column(title="record", usual=21),
    Column(title="who", usual=23, least=12, middle=True),
    Column(title="by", usual=10, least=6, middle=True),
)
PLACE_COLUMNS: Final = (
    Column(title="namespace", least=12, middle=True),
    Column(title="serving"),
    Column(title="routable", right=True),
    Column(title="workers", right=True),
    Column(title="blockers", least=12),
)
RULE_INDENT: Final = " " * 20
INDENT: Final = "  "
UNKNOWN_TIME: Final = "the beginning"
_STATES: Final = {
    "routable": ("is routable", GOOD),
    "blocked": ("is not routable", BAD),
    "gone": ("is gone", BAD),
    "never_registered": ("was never registered", ODD),
}
_MODEL_STATES: Final = {
    "serving": ("is served", GOOD),
    "unavailable": ("is not served: 503", BAD),
    "not_found": ("is not known: 404", ODD),
}


# ---- a worker ------------------------------------------------------------------
def explanation_lines(found: Explanation, width: int) -> Iterator[Text]:
    """The state and its reasons, then the chain of records."""
    said, style = _STATES[found.state]
    since = "" if found.since is None else f" since revision {found.since}"
    yield from wrapped(
        f"{found.name} {said}{since}, {_at(found.revision, found.recorded_at)}",
        width,
        style=style,
    )
    for reason in found.reasons:
        yield from _named(reason.blocker, reason.why, width)
    if found.worker is not None:
        yield from wrapped(_facts(found.worker), width)
    if found.ports:
        held = ", ".join(_ports(stretch) for stretch in found.ports)
        yield from wrapped(f"holds {held}", width)
    for warning in found.warnings:
        yield from wrapped(f"! {warning}", width, style=ODD)
    if found.chain:
        yield Text()
        yield from _chain(found.chain, width)


def _at(revision: int, recorded_at: datetime | None) -> str:
    when = UNKNOWN_TIME if recorded_at is None else f"{recorded_at:%F %T} UTC"
    return f"at revision {revision} ({when})"


def _named(name: str, why: str, width: int) -> Iterator[Text]:
    """A reason under its name: side by side if there is room."""
    label = f"{INDENT}{name:<17}  "
    first, *rest = wrapped(why, width, indent=" " * cell_len(label))
    whole = Text(label, style=ODD)
    yield whole.append(first.plain.lstrip(), style="")
    yield from rest


def _facts(worker: Worker) -> str:
    return ", ".join(
        (
            f"{worker.model} {worker.role.value}",
            worker.status.value,
            f"checksum {worker.checksum[:SHORT]}",
            worker.address,
            f"incarnation {worker.incarnation}",
            f"registered {worker.registered_at:%F %T}",
        )
    )


def _ports(stretch: Stretch) -> str:
    last = f"-{stretch.end}" if stretch.end > stretch.start else ""
    return f"{stretch.host}:{stretch.start}{last} ({stretch.reason})"


def _chain(chain: Sequence[Link], width: int) -> Iterator[Text]:
    widths = stream_widths(CHAIN_COLUMNS, width)
    yield heading(CHAIN_COLUMNS, widths)
    day: date | None = None
    before: tuple[object, ...] = (None, ())
    for link in chain:
        record = link.record
        if record.recorded_at.date() != day:
            day = record.recorded_at.date()
            yield Text(f"{day} (UTC)", style=FAINT)
        kind, who, _ = record_parts(record)
        row: list[Cell] = [
            str(record.revision),
            f"{record.recorded_at:%H:%M:%S}",
            kind,
            who,
            str(getattr(record.event, "by", "")),
        ]
        yield line(CHAIN_COLUMNS, row, widths)
        until = "" if link.through is None else f" (to revision {link.through})"
        ignored = ODD if link.anomaly is not None else ""
        yield from wrapped(
            f"{link.rule}{until}", width, indent=RULE_INDENT, style=ignored
        )
        now = (link.state, link.blockers)
        if link.state is not None and now != before:
            before = now
            yield from _then(link, width)


def _then(link: Link, width: int) -> Iterator[Text]:
    match link.state:
        case "blocked":
            said, style = f"not routable: {', '.join(link.blockers)}", BAD
        case "routable":
            said, style = "routable", GOOD
        case "gone":
            said, style = "gone", BAD
        case _:
            return
    yield from wrapped(f"-> {said}", width, indent=RULE_INDENT, style=style)


# ---- a model -------------------------------------------------------------------
def model_lines(found: ModelExplanation, width: int) -> Iterator[Text]:
    """Whether it is served and since when, then each namespace."""
    said, style = _MODEL_STATES[found.state]
    yield from wrapped(
        f"{found.model} {said}, {_at(found.revision, found.recorded_at)}",
        width,
        style=style,
    )
    if found.alike:
        yield from wrapped(f"! there is {', '.join(found.alike)}", width, style=ODD)
    yield from _turns(found.began, found.ended, width, INDENT)
    if found.forgotten is not None:
        yield from wrapped(_forgotten(found.forgotten), width, indent=INDENT)
    if not found.namespaces:
        return
    yield Text()
    rows = [_place(place) for place in found.namespaces]
    first, *lines = table(PLACE_COLUMNS, rows, width)
    yield first
    for row, place in zip(lines, found.namespaces, strict=True):
        yield row
        for why in place.whys:
            yield from wrapped(why, width, indent=INDENT)
        began = None if place.began == found.began else place.began
        ended = None if place.ended == found.ended else place.ended
        yield from _turns(began, ended, width, INDENT)


def _forgotten(record: Record) -> str:
    said = f"forgotten with revision {record.revision} ({record.recorded_at:%F %T})"
    by, reason = (getattr(record.event, name, "") for name in ("by", "reason"))
    return shown(": ".join(part for part in (f"{said} by {by}", reason) if part))


def _place(place: NamespaceOfModel) -> list[Cell]:
    counts = sorted(place.blockers.items())
    return [
        place.namespace,
        YES if place.serving else NO_CELL,
        str(place.routable),
        str(place.workers),
        Text(", ".join(f"{number} {name}" for name, number in counts), style=ODD),
    ]


def _turns(
    began: Turn | None, ended: Turn | None, width: int, indent: str
) -> Iterator[Text]:
    """The last time it began and ended, in their order."""
    turns = [
        (turn, verb) for turn, verb in ((began, "began"), (ended, "ended")) if turn
    ]
    for turn, verb in sorted(turns, key=lambda one: one[0].record.revision):
        record = turn.record
        kind, who, _ = record_parts(record)
        said = (
            f"{verb} with revision {record.revision} ({record.recorded_at:%F %T}), "
            f"{kind.plain} {shown(who)}: {turn.rule}"
        )
        if verb == "ended":
            said += f"; last served at revision {turn.before}"
        yield from wrapped(said, width, indent=indent)
