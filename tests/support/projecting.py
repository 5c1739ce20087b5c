"""Cores without a world: a view stream in a list, and benches that hold a core each.

Whatever a core asks for lies on its bench until the test lets it happen: late, twice,
not at all, or without an answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta

from controlplane.eventlog import LogState
from controlplane.projector.core import Core, Limits
from controlplane.projector.effects import (
    Alarm,
    Effect,
    LookAtView,
    Publish,
    Rebuild,
    Resign,
    TakeSnapshot,
)
from controlplane.projector.finding import Found, base_of
from controlplane.projector.recovery import Begin, decide_start
from controlplane.viewfeed import ViewEntry
from events import Record
from projections import (
    FoldState,
    Guard,
    LeaseBook,
    Position,
    Snapshot,
    decode_view,
    fold_all,
    restore,
)
from tests.support.fleet_builder import START

LOG_ID = "log-1"


class ViewList:
    """A view stream in a list, with the broker's fence; it can be trimmed."""

    def __init__(self) -> None:
        self.payloads: list[bytes] = []
        self.first = 1

    @property
    def last(self) -> int:
        return len(self.payloads)

    def store(self, payloads: Sequence[bytes], after: int) -> int | None:
        """Store all if the last sequence is ``after``; the last one, or None."""
        if after != self.last:
            return None
        self.payloads += payloads
        return self.last

    def trim(self, up_to: int) -> None:
        """Forget what stands before ``up_to``."""
        self.first = max(self.first, min(up_to, self.last + 1))

    def at(self, view_seq: int) -> ViewEntry | None:
        if not self.first <= view_seq <= self.last:
            return None
        payload = self.payloads[view_seq - 1]
        return ViewEntry(view_seq, decode_view(payload), payload)

    def entries(self, after: int = 0, count: int | None = None) -> list[ViewEntry]:
        begin = max(after + 1, self.first)
        end = self.last if count is None else min(self.last, begin + count - 1)
        found = [self.at(view_seq) for view_seq in range(begin, end + 1)]
        return [entry for entry in found if entry is not None]


def log_state(records: Sequence[Record], log_id: str = LOG_ID) -> LogState:
    """What the log says of itself when it holds ``records``."""
    return LogState(
        log_id=log_id,
        first_revision=records[0].revision if records else 1,
        last_revision=records[-1].revision if records else 0,
        bytes=0,
        max_bytes=-1,
        now=START + timedelta(days=1),
    )


def record_at(records: Sequence[Record], revision: int) -> Record | None:
    return next((r for r in records if r.revision == revision), None)


def find_in(
    records: Sequence[Record],
    view: ViewList,
    snapshot: Snapshot | None,
    /,
    **other: object,
) -> Found:
    """What a projector finds that starts now."""
    entry = view.at(view.last)
    readable = next((e for e in view.entries()[::-1] if e.message is not None), None)
    base = None if entry is None else base_of(entry)
    message = None if entry is None else entry.message
    beginning = None if base is None else view.at(base)
    state = log_state(records)
    fields = {
        "log": state,
        "log_end": state.last_revision,
        "snapshot": None if snapshot is None else restore(snapshot, frozenset()),
        "snapshot_at": None if snapshot is None else snapshot.position,
        "snapshot_problem": None,
        "view_first": view.first if view.first <= view.last else view.last + 1,
        "view_last": view.last,
        "entry": entry,
        "readable": readable,
        "entry_record": None
        if message is None
        else record_at(records, message.revision),
        "beginning": beginning,
        "beginning_record": record_at(records, beginning.message.revision)
        if beginning is not None and beginning.message is not None
        else None,
    }
    return Found(**{**fields, **other})


class Bench:
    """One projector: its core, what it asked for, and how far it has read."""

    def __init__(
        self,
        records: list[Record],
        view: ViewList,
        *,
        name: str = "a",
        limits: Limits | None = None,
        snapshots: list[Snapshot] | None = None,
    ) -> None:
        self.records, self.view, self.name = records, view, name
        self.limits = limits or Limits()
        self.snapshots = [] if snapshots is None else snapshots
        self.now = 0.0
        self.leads = False
        self.rebuilds: list[str] = []
        self.alarms: list[Alarm] = []
        self.book = LeaseBook(Guard())
        self.begin()

    def begin(self, found: Found | None = None) -> Begin:
        """Start a term, as the service does."""
        snapshot = self.snapshots[-1] if self.snapshots else None
        begin = decide_start(found or find_in(self.records, self.view, snapshot))
        self.core = Core(
            begin.fold,
            begin.start,
            self.book,
            self.limits,
            name=self.name,
            now=self.now,
            snapshot_at=begin.snapshot_at,
        )
        self.log_end, self.read_to = begin.log_end, begin.view_after
        self.asked: list[Effect] = []
        self.limbo: list[Publish] = []
        if self.leads:
            self.do(self.core.won())
        if self.core.fold.revision >= self.log_end:
            self.do(self.core.reached_end(self.now))
        return begin

    # ---- what happens to it ----------------------------------------------------
    def win(self) -> None:
        self.leads = True
        self.do(self.core.won())

    def lose(self) -> None:
        self.leads = False
        self.core.lost()

    def read_log(self, count: int | None = None) -> None:
        """Fold the next ``count`` records, or all."""
        at = self.core.fold.revision
        end = None if count is None else at + count
        news = [
            r
            for r in self.records
            if r.revision > at and (end is None or r.revision <= end)
        ]
        if news:
            self.do(self.core.records(news, self.now))
        if not self.core.caught_up and self.core.fold.revision >= self.log_end:
            self.do(self.core.reached_end(self.now))

    def read_view(self, count: int | None = None) -> None:
        """See the next ``count`` messages of the view stream, or all."""
        entries = self.view.entries(self.read_to, count)
        if entries:
            self.read_to = entries[-1].view_seq
            self.do(self.core.view_seen(entries, self.now))

    def tick(self, s: float = 0.5) -> list[Effect]:
        self.now += s
        effects = self.core.tick(self.now)
        self.do(effects)
        return effects

    def do(self, effects: Iterable[Effect]) -> None:
        core = self.core
        for effect in effects:
            match effect:
                case Rebuild(reason):
                    self.rebuilds.append(reason)
                    self.begin()
                    return
                case Alarm():
                    self.alarms.append(effect)
                case Resign():
                    self.lose()
                case TakeSnapshot(snapshot):
                    if not self.snapshots or _is_later(snapshot, self.snapshots[-1]):
                        self.snapshots.append(snapshot)
                    self.asked.append(effect)
                case Publish() | LookAtView():
                    self.asked.append(effect)
            assert self.core is core

    # ---- what becomes of what it asked for -------------------------------------
    def take(self, kind: type[Effect]) -> Effect | None:
        """Take the first effect of this kind off the bench."""
        found = next((e for e in self.asked if isinstance(e, kind)), None)
        if found is not None:
            self.asked.remove(found)
        return found

    def answer(self, *, lose_answer: bool = False, late: bool = False) -> bool:
        """Let the first thing asked for happen; whether there was one."""
        if not self.asked:
            return False
        effect = self.asked.pop(0)
        match effect:
            case LookAtView(at):
                first = self.view.first if self.view.first <= self.view.last else None
                first = first or self.view.last + 1
                held = None if at is None else self.view.at(at)
                payload = None if held is None else held.payload
                self.do(self.core.view_ends(first, self.view.last, self.now, payload))
            case Publish(payloads, after) if late:
                self.limbo.append(effect)
                self.do(self.core.publish_failed())
            case Publish(payloads, after):
                last = self.view.store(payloads, after)
                if last is None or lose_answer:
                    self.do(self.core.publish_failed())
                else:
                    self.do(self.core.published(last, self.now))
            case TakeSnapshot(snapshot):
                self.do(self.core.snapshot_stored(snapshot.position, self.now))
        return True

    def land(self) -> None:
        """What was sent long ago arrives at the broker after all."""
        for effect in self.limbo:
            self.view.store(effect.payloads, effect.after)
        self.limbo = []

    def settle(self) -> None:
        """Let everything happen until there is nothing left to do."""
        for _ in range(1000):
            before = self.core.line.view_end, self.read_to, self.core.fold.revision
            self.read_log()
            self.read_view()
            busy = self.answer()
            after = self.core.line.view_end, self.read_to, self.core.fold.revision
            if not busy and before == after:
                return
        message = "it never comes to rest"
        raise AssertionError(message)


def settled(records: list[Record], view: ViewList, **options: object) -> Bench:
    """A leader that has published all there is."""
    bench = Bench(records, view, **options)
    bench.win()
    bench.settle()
    return bench


def folded(records: Iterable[Record]) -> FoldState:
    return fold_all(FoldState(), records)


def _is_later(new: Snapshot, old: Snapshot) -> bool:
    def place(at: Position) -> tuple[object, ...]:
        return (at.epoch, at.ordinal)

    return place(new.position) >= place(old.position)


Do = Callable[[Bench], None]
