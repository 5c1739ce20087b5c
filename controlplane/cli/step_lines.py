"""One moment of a walk through a log, as a screen. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec
from rich.cells import cell_len
from rich.text import Text

from controlplane.playback import Stop
from events import Revision
from projections import (
    Change,
    Fleet,
    FoldState,
    Touched,
    Worker,
    WorkerKey,
    worker_changes,
    worker_document,
)

from .columns import Cell, Column, cut, shown, table
from .lens import Lens
from .records import record_parts
from .tables import (
    BAD,
    DIGEST_SHORT,
    FAINT,
    GOOD,
    ODD,
    SHORT,
    everyone,
    name_of,
    routable,
    short_id,
)
from .wrapping import wrapped

KEYS: Final = "←/→ step  PgUp/PgDn 20  Home/End  c change  / search  ? help  q quit"
HELP: Final = (
    ("→ l space", "the next record"),
    ("← h", "the record before"),
    ("PgDn, PgUp", "20 records on, or back"),
    ("Home g", "the first record"),
    ("End G", "the last record"),
    ("c, C", "the next, or the last, record that changed what is shown"),
    ("p, P", "the next, or the last, record that nobody can read"),
    (":", "go to a revision"),
    ("/", "search in the records: a worker, a type, a reason"),
    ("n, N", "search on, or back"),
    ("↓ ↑", "more of the workers"),
    ("q Esc", "leave"),
)
MARKS: Final = {"added": "+", "changed": "~", "removed": "-"}
STYLES: Final = {"added": GOOD, "changed": ODD, "removed": BAD}
COLUMNS: Final = (
    Column(title=""),
    Column(title="worker", least=14, middle=True),
    Column(title="model", least=8, middle=True),
    Column(title="role"),
    Column(title="status"),
    Column(title="routable", least=9),
    Column(title="address", least=8, middle=True),
)
CHANGES_MAX: Final = 6
UNTOLD: Final = frozenset({"routable", "registered_at"})
"""What other fields tell."""


class Frame(msgspec.Struct, frozen=True, kw_only=True):
    """What is around a moment: the terminal, the lens, what was said last."""

    width: int
    height: int
    last: Revision
    lens: Lens = Lens()
    said: str = ""
    """The last line, in place of the keys."""
    scroll: int = 0
    """So many workers further down than where the change is."""


def changes_of(stop: Stop, lens: Lens) -> list[Change]:
    """What the record changed of what is seen through ``lens``, by worker."""
    if not stop.changes:
        return []
    before, after = _fleet(stop.before), _fleet(stop.after)
    touched = Touched()
    touched.add(stop.changes, before)
    found = worker_changes(before, after, touched)
    return [change for change in found if _is_seen(change, lens)]


def _fleet(state: FoldState) -> Fleet:
    return Fleet(state.fleet_state, revision=state.revision)


def _is_seen(change: Change, lens: Lens) -> bool:
    sides = (change.before, change.worker)
    return any(side is not None and lens.shows_worker(side) for side in sides)


def moment_screen(stop: Stop, frame: Frame) -> list[Text]:
    """Exactly as many lines as the terminal has: the record, its effect, the fleet."""
    changes = changes_of(stop, frame.lens)
    head = [*_head(stop, frame), *_effect(stop, changes, frame.width), Text()]
    room = frame.height - 1
    lines = [*head[:room], *_workers(stop, changes, frame, room - len(head))][:room]
    for line in lines:
        line.truncate(frame.width)
    lines += [Text()] * (room - len(lines))
    return [*lines, _foot(frame)]


def help_screen(frame: Frame) -> list[Text]:
    """The keys, on a screen of their own."""
    lines = [Text("keys", style="bold"), Text()]
    lines += [Text(cut(f"  {key:<12} {what}", frame.width)) for key, what in HELP]
    lines = lines[: frame.height - 1]
    lines += [Text()] * (frame.height - 1 - len(lines))
    return [*lines, Text(cut("any key: back", frame.width), style=FAINT)]


def empty_screen(frame: Frame) -> list[Text]:
    """Of a log without records."""
    lines = [Text("the log has no record", style=FAINT)]
    lines += [Text()] * (frame.height - 2)
    return [*lines, _foot(frame)]


def _foot(frame: Frame) -> Text:
    through = "" if frame.lens.is_clear else f"{frame.lens.words}  "
    text = shown(frame.said or f"{through}{KEYS}")
    return Text(cut(text, frame.width), style=ODD if frame.said else FAINT)


def _head(stop: Stop, frame: Frame) -> Iterator[Text]:
    record, digest = stop.record, stop.after.fleet_state.digest[:DIGEST_SHORT]
    place = f"revision {record.revision} of {frame.last}"
    when = f"{record.recorded_at:%F %T.%f}"[:-3]
    said = f"{place} · {when} UTC · digest {digest}"
    yield Text(cut(said, frame.width), style="bold")
    kind, who, what = record_parts(record)
    line = Text(kind.plain, style=kind.style or "bold")
    rest = "".join(f"  {part}" for part in (who, what) if part)
    room = frame.width - cell_len(kind.plain)
    yield line.append(cut(shown(rest), room), style="")
    by = getattr(record.event, "by", "")
    event_id = record.event.event_id
    told = f"by {by}, event {event_id}" if by else f"event {event_id or 'unnamed'}"
    yield Text(cut(shown(told), frame.width), style=FAINT)


def _effect(stop: Stop, changes: Sequence[Change], width: int) -> Iterator[Text]:
    """What the record did, marked so that it shows without colours too."""
    anomaly = stop.anomaly
    if anomaly is not None:
        said = f"! changes nothing, {anomaly.kind}: {anomaly.reason}"
        yield from wrapped(said, width, style=BAD)
        return
    if not changes:
        yield Text(cut(_quietly(stop), width), style=FAINT)
        return
    for change in changes[:CHANGES_MAX]:
        said = f"{MARKS[change.kind]} {_change(change)}"
        yield Text(cut(shown(said), width), style=STYLES[change.kind])
    if len(changes) > CHANGES_MAX:
        more = f"  and {len(changes) - CHANGES_MAX} workers more"
        yield Text(cut(more, width), style=FAINT)


def _quietly(stop: Stop) -> str:
    if stop.after.ports is not stop.before.ports:
        return "changes ports, no worker"
    if stop.changes:
        return "changes no worker that is shown"
    return "changes nothing in the fleet"


def _change(change: Change) -> str:
    worker = change.worker or change.before
    assert worker is not None  # noqa: S101 - a change is of somebody
    name = name_of(worker)
    if change.before is None or change.worker is None:
        state = ", ".join((worker.status.value, *_beyond_status(worker)))
        return f"{name} {'comes' if change.before is None else 'goes'}: {state}"
    return f"{name} {', '.join(_fields(change.before, change.worker))}"


def _fields(before: Worker, after: Worker) -> Iterator[str]:
    was, now = worker_document(before), worker_document(after)
    untold = set(UNTOLD)
    if _beyond_status(before) == _beyond_status(after):
        untold.add("blockers")
    for name in was:
        if was[name] != now[name] and name not in untold:
            yield f"{name} {_plain(name, was[name])} -> {_plain(name, now[name])}"


def _beyond_status(worker: Worker) -> list[str]:
    return [reason for reason in worker.blockers if reason != worker.status.value]


def _plain(name: str, value: object) -> str:
    if isinstance(value, str):
        short = short_id(value) if name == "incarnation" else value
        return (short[:SHORT] if name == "checksum" else short) or "-"
    if isinstance(value, list | tuple) and all(isinstance(one, str) for one in value):
        return "+".join(value) or "-"
    return msgspec.json.encode(value).decode()


# ---- the fleet -----------------------------------------------------------------
def _workers(
    stop: Stop, changes: Sequence[Change], frame: Frame, room: int
) -> list[Text]:
    """As many workers as there is room for; those that changed are among them."""
    marked = {_key(change): change for change in changes}
    there = everyone(frame.lens.over(_fleet(stop.after)))
    gone = [c.before for c in changes if c.worker is None and c.before is not None]
    rows = sorted([*there, *gone], key=_worker_key)
    if not rows:
        return [Text("no worker is registered", style=FAINT)]
    places = [i for i, worker in enumerate(rows) if _worker_key(worker) in marked]
    if room < len(("heading", "worker", "more")):
        return []
    begin, end = _window(len(rows), room - 1, places, frame.scroll)
    lines = table(
        COLUMNS, [_row(rows[i], marked) for i in range(begin, end)], frame.width
    )
    for place in places:
        if begin <= place < end:
            lines[place - begin + 1].stylize("bold reverse")
    hidden = len(rows) - (end - begin)
    if hidden:
        said = f"{hidden} more, {begin} of them above: ↓ ↑"
        lines.append(Text(cut(said, frame.width), style=FAINT))
    return lines


def _window(
    count: int, room: int, places: Sequence[int], scroll: int
) -> tuple[int, int]:
    """Which of the rows are shown: a few above the first that changed."""
    if count <= room:
        return 0, count
    room -= 1  # for what is not shown
    above = room // 3
    begin = (max(0, places[0] - above) if places else 0) + scroll
    begin = max(0, min(begin, count - room))
    return begin, begin + room


def _row(worker: Worker, marked: dict[WorkerKey, Change]) -> list[Cell]:
    change = marked.get(_worker_key(worker))
    is_gone = change is not None and change.worker is None
    return [
        "" if change is None else MARKS[change.kind],
        name_of(worker),
        worker.model,
        worker.role.value,
        Text("gone", style=BAD) if is_gone else worker.status.value,
        "" if is_gone else routable(worker),
        worker.address,
    ]


def _key(change: Change) -> WorkerKey:
    worker = change.worker or change.before
    assert worker is not None  # noqa: S101 - a change is of somebody
    return _worker_key(worker)


def _worker_key(worker: Worker) -> WorkerKey:
    return (worker.namespace, worker.worker_id)
