"""A view stream as a list: what a leader publishes of a story, and a router's shell."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from controlplane.router.core import CatchUp, Core, Diverged, Effect, Found, Moved
from controlplane.router.planning import (
    BeginWith,
    LoadSnapshot,
    ReadTail,
    StreamEnd,
    collected,
    plan,
)
from controlplane.router.replica import Replica, from_snapshot
from controlplane.viewfeed import Head, SnapshotPointer, ViewEntry
from events import Record
from projections import (
    EMPTY,
    FOLD_VERSION,
    Delta,
    Epoch,
    EpochStarted,
    FoldState,
    Position,
    Snapshot,
    encode_view,
    step,
    take,
)
from tests.support.fleet_builder import START, Story

LOG = "log-a"


class ViewLine:
    """The view stream of one story; `publish` appends what the story has grown by."""

    def __init__(self, *, log_id: str = LOG) -> None:
        self.log_id = log_id
        self.entries: list[ViewEntry] = []
        self.first = 1
        self.fold = FoldState()
        self.states: dict[tuple[Epoch, int], FoldState] = {}
        self.pointer: SnapshotPointer | None = None
        self.snapshot: Snapshot | None = None
        self.epoch: Epoch | None = None
        self.base = self.ordinal = self.delta_revision = 0

    # ---- the leader ------------------------------------------------------------
    def begin(self, *, count: int | None = None) -> ViewEntry:
        """Start the next epoch where the fold stands."""
        counted = 0 if self.epoch is None else self.epoch.count
        number = count or counted + 1
        self.epoch = Epoch(number, FOLD_VERSION, self.log_id, self.fold.revision)
        self.base, self.ordinal = len(self.entries) + 1, 0
        self.delta_revision = self.fold.revision
        return self._store(
            EpochStarted(
                epoch=self.epoch,
                fingerprint=self.fold.fingerprint,
                anomalies=self.fold.anomalies.counts,
                digest=self.fold.fleet_state.digest,
                reason="first",
            )
        )

    def publish(self, story: Story | Sequence[Record]) -> list[ViewEntry]:
        """Fold what the story has beyond the fold; store its deltas."""
        if self.epoch is None:
            self.begin()
        new = [r for r in story if r.revision > self.fold.revision]
        return [e for record in new if (e := self._fold(record)) is not None]

    def _fold(self, record: Record) -> ViewEntry | None:
        folded = step(self.fold, record)
        self.fold = folded.state
        if not folded.changes:
            return None
        self.ordinal += 1
        previous, self.delta_revision = self.delta_revision, record.revision
        return self._store(
            Delta(
                epoch=self._epoch(),
                ordinal=self.ordinal,
                revision=record.revision,
                fingerprint=folded.state.fingerprint,
                previous_revision=previous,
                changes=folded.changes,
                anomalies=folded.state.anomalies.counts,
                digest=folded.state.fleet_state.digest,
            )
        )

    def _epoch(self) -> Epoch:
        assert self.epoch is not None
        return self.epoch

    def _store(self, message: Delta | EpochStarted) -> ViewEntry:
        payload = encode_view(message)
        entry = ViewEntry(len(self.entries) + 1, message, payload)
        self.entries.append(entry)
        self.states[self._epoch(), self.ordinal] = self.fold
        return entry

    def foreign(self) -> ViewEntry:
        """Somebody stores what is no view message."""
        entry = ViewEntry(len(self.entries) + 1, None, b"?")
        self.entries.append(entry)
        return entry

    @property
    def position(self) -> Position:
        return Position(
            epoch=self._epoch(),
            base=self.base,
            ordinal=self.ordinal,
            delta_revision=self.delta_revision,
        )

    def take_snapshot(self) -> SnapshotPointer:
        self.snapshot = take(self.fold, self.position)
        self.pointer = SnapshotPointer(
            snapshot_id="s",
            position=self.position,
            revision=self.fold.revision,
            chunks=1,
            bytes=1,
            checksum="",
            taken_at=START,
            fold_version=FOLD_VERSION,
        )
        return self.pointer

    def head(self, **fields: Any) -> Head:
        said = Head(
            log_id=self.log_id,
            epoch=self._epoch(),
            ordinal=self.ordinal,
            revision=self.fold.revision,
            digest=self.fold.fleet_state.digest,
            anomalies=self.fold.anomalies.counts,
            unpublished_age_s=0.0,
            log_fill=0.0,
            leader="p",
            fingerprint=self.fold.fingerprint,
        )
        return msgspec.structs.replace(said, **fields)

    # ---- what a router reads ---------------------------------------------------
    def end(self) -> StreamEnd:
        held = self.entries[self.first - 1 :]
        entry = next((e for e in reversed(held) if e.message is not None), None)
        end = StreamEnd(
            first=self.first,
            last=len(self.entries),
            entry=entry,
            pointer=self.pointer,
        )
        if entry is None or end.base < self.first:
            return end
        return msgspec.structs.replace(end, beginning=self.entries[end.base - 1])

    def read(self, after: int, until: int) -> list[ViewEntry]:
        return self.entries[max(after, self.first - 1) : until]

    def found(self, own: Replica | None, end: StreamEnd) -> Found | None:
        """What a router finds at that end; None: it must wait."""
        match plan(end, own):
            case ReadTail(after) if own is not None:
                replica, changes = collected(own, self.read(after, end.last))
                return Found(replica=replica, changes=changes)
            case LoadSnapshot():
                assert self.snapshot is not None
                replica = from_snapshot(self.snapshot)
            case BeginWith(replica):
                pass
            case _:
                return None
        rest = self.read(replica.position.view_seq, end.last)
        return Found(replica=collected(replica, rest)[0], changes=None)

    def replica(self, *, ordinal: int | None = None) -> Replica:
        """A replica of this epoch at its end, or at that ordinal."""
        start = self.entries[self.base - 1]
        assert isinstance(start.message, EpochStarted)
        fold = self.states[self._epoch(), 0]
        begun = Replica(
            position=Position(
                epoch=self._epoch(),
                base=self.base,
                ordinal=0,
                delta_revision=start.message.revision,
            ),
            fleet=fold.fleet_state,
            revision=fold.revision,
            fingerprint=fold.fingerprint,
            fingerprint_at=fold.revision,
            anomalies=fold.anomalies.counts,
        )
        last = self.ordinal if ordinal is None else ordinal
        return collected(begun, self.entries[self.base : self.base + last])[0]


class Shell:
    """Drives a core over a `ViewLine`; catches up when told to."""

    def __init__(self, line: ViewLine, *, behind_max_s: float = 1.0) -> None:
        self.line, self.now = line, 100.0
        self.core = Core(behind_max_s=behind_max_s, now=self.now)
        self.wanted: CatchUp | None = None
        self.caught: list[str] = []
        self.moves: list[Moved] = []
        self.diverged: list[Diverged] = []

    def do(self, effects: list[Effect]) -> list[Effect]:
        for effect in effects:
            match effect:
                case CatchUp():
                    assert self.wanted is None, "one catch-up at a time"
                    self.wanted = effect
                case Moved():
                    self.moves.append(effect)
                case Diverged():
                    self.diverged.append(effect)
        return effects

    def begin(self, checkpoint: Replica | None = None, age_s: float = 0.0) -> None:
        told = None if checkpoint is None else (checkpoint, age_s)
        self.do(self.core.begin(told, self.now))

    def live(self, *entries: ViewEntry) -> None:
        for entry in entries:
            self.do(self.core.live(entry))

    def head(self, **fields: Any) -> None:
        self.do(self.core.head(self.line.head(**fields), self.now))

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        self.do(self.core.tick(self.now))

    def look(self) -> StreamEnd:
        self.core.looking()
        return self.line.end()

    def catch_up(self, end: StreamEnd | None = None) -> bool:
        """Do what is wanted; whether there was something to catch up from."""
        assert self.wanted is not None
        end = self.look() if end is None else end
        own = None if self.wanted.anew else self.core.replica
        found = self.line.found(own, end)
        if found is None:
            return False
        reason, self.wanted = self.wanted.reason, None
        self.caught.append(reason)
        self.do(self.core.caught_up(found, reason, self.now))
        return True

    def settle(self) -> None:
        """Catch up for as long as something is wanted."""
        for _ in range(1000):
            if self.wanted is None or not self.catch_up():
                return
        raise AssertionError(self.caught[-5:])

    @property
    def place(self) -> tuple[Epoch, int]:
        assert self.core.replica is not None
        position = self.core.replica.position
        return position.epoch, position.ordinal


def begun(*entries: ViewEntry, line: ViewLine) -> Shell:
    """A router that is live at the end of ``line``."""
    shell = Shell(line)
    shell.begin()
    shell.settle()
    shell.live(*entries)
    assert shell.core.source == "live"
    return shell


EMPTY_DIGEST = EMPTY.digest
