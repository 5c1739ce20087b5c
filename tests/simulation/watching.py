"""Who watches a run: hands what happens to the oracle, as it happens.

The broker tells what it stored and lost, hosts tell where their cores stand; every
check is made at once, so that a violation shows where it began.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from random import Random
from typing import TYPE_CHECKING, Any

import msgspec

from controlplane.beats import decode_beat
from controlplane.broker import Message, StreamSpec
from controlplane.eventlog import Appended, Pending
from controlplane.origin import RECORDED_AT
from controlplane.presence import Presence, RouterReport
from controlplane.topology import LOG_ID, Names
from controlplane.viewfeed import SnapshotPointer, decode_head, unpack_snapshot
from events import Record, Role, WorkerEvent, decode_record, read_or_none
from projections import (
    FOLD_VERSION,
    Epoch,
    Fleet,
    ModelNotFoundError,
    ModelUnavailableError,
)
from tests.simulation.history import Histories
from tests.simulation.views import Views

from .beating import LOOK_S, Beating
from .complaining import Complaining
from .ending import Ending
from .forward import Forward
from .hosts import CELL, Host, ProjectorHost, RouterHost
from .leading import Leading
from .loop import Process, State
from .numbering import Numbering
from .outcome import Violation
from .plan import Wait
from .pointing import Pointing
from .promises import Promises
from .rules import PLANTER
from .serving import Serving
from .versions import HISTORY_VERSIONS, OLD_FOLD_VERSION
from .waits import Waits

if TYPE_CHECKING:
    from .world import World

NAMES = Names(CELL)
HISTORY_REASONS = ("log_lost_tail", "log_forked", "log_replaced", "first")
OTHER_LOG_REASONS = ("log_replaced", "first")
MODELS = ("llama", "qwen")
ENTRY = (Role.AGGREGATED, Role.DECODE)
PRESENCE_SLACK_S = 5.0
"""So long a gate may look at presences before it says what came of it."""
PLANTED = b'{"what": "is this"}'
_PRESENCE = msgspec.json.Decoder(Presence)
_REPORT = msgspec.json.Decoder(RouterReport)
_POINTER = msgspec.json.Decoder(SnapshotPointer)


class Watch:
    """See the module."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.records = 0
        self.announced: list[float] = []
        """When somebody said that history was lost."""
        self.beating = Beating(world)
        self.waits = Waits(world)
        self.promises, self.serving = Promises(world), Serving(world)
        self.pointing, self.numbering = Pointing(world), Numbering(world)
        self.leading, self.complaining = Leading(), Complaining(world)
        self.histories = Histories(
            now=world.loop.time,
            is_beating=self._is_beating,
            versions=HISTORY_VERSIONS,
        )
        self.views = Views(self.histories, self._view_begins)
        self.forward = Forward(self.histories, self.views)
        self.witnesses: list[tuple[Any, Process]] = []
        """(lost lineage, a process that had folded some of what was lost)."""
        self._record: Record | None = None
        self._chance = Random(f"{world.plan.seed}/picks")
        self._models = itertools.cycle(MODELS)
        self._claims: set[tuple[str | None, int, str]] = set()
        """What was said, and found true of some history: that it stays."""
        self.head = b""
        """The last head that a leader said."""
        self._log_numbered = ""
        """The log that the latest epoch is of."""
        self._read = {
            NAMES.log_stream: self._log_stored,
            NAMES.view_stream: self._view_stored,
            NAMES.head_stream: self._head_stored,
            NAMES.report_stream: self._report_stored,
            NAMES.snapshot_stream: self._snapshot_stored,
            f"KV_{NAMES.presence_bucket}": self._presence_stored,
        }

    # ---- what the broker tells -------------------------------------------------
    def stored(self, stream: str, message: Message) -> None:
        read = self._read.get(stream)
        if read is not None:
            with self.world.checking():
                read(message)

    def made(self, stream: str, spec: StreamSpec) -> None:
        self.world.trace.line("broker", f"{stream} made")
        if stream == NAMES.log_stream:
            self.histories.log_created(spec.metadata[LOG_ID])
            self.beating.log_changed()

    def gone(self, stream: str) -> None:
        self.world.trace.line("broker", f"{stream} deleted")
        if stream == NAMES.log_stream:
            self._note_witnesses(0)
            self.histories.log_deleted()
            self.promises.forget()

    def cut(self, stream: str, last: int) -> None:
        self.world.trace.line("broker", f"{stream} lost all after {last}")
        if stream == NAMES.log_stream:
            self._note_witnesses(last)
            self.histories.log_truncated(last)
            self.beating.log_changed()
            self.promises.forget()
        elif stream == NAMES.view_stream:
            self.views.view_truncated(last)
            self.forward.cut(last)
        elif stream == NAMES.snapshot_stream:
            self.pointing.forget()

    def _note_witnesses(self, last: int) -> None:
        lineage = self.histories.current
        for host in self.world.of(ProjectorHost):
            core = None if host.service is None else host.service._core
            if host.running and core is not None and core.fold.revision > last:
                self.witnesses.append((lineage, host.process))

    def knows(self, lineage: Any) -> bool:
        """Whether somebody who lives on knew of what ``lineage`` lost."""
        return any(
            lost is lineage and process.state is not State.DEAD
            for lost, process in self.witnesses
        )

    # ---- streams ---------------------------------------------------------------
    def _log_stored(self, message: Message) -> None:
        self.records += 1
        headers = message.headers or {}
        assert RECORDED_AT not in headers
        subject = NAMES.relative(message.subject)
        record = decode_record(
            message.sequence, message.stored_at, subject, message.payload
        )
        event, trace = record.event, self.world.trace
        kind = type(event).__name__
        trace.line("log", f"{record.revision} {kind} {subject} {event.event_id}")
        before = self._shown(record) if trace.keeps else ""
        self._record = record
        self.beating.stored(record)
        self.histories.log_message(
            record.revision, record.recorded_at, subject, message.payload
        )
        if trace.keeps:
            trace.note(f"{before} -> {self._shown(record)}")
        self.promises.stored(record)
        self.serving.stored(record)

    def _shown(self, record: Record) -> str:
        """What the worker of the record is, in a few words."""
        event = record.event
        if not isinstance(event, WorkerEvent):
            return record.subject
        dumb = self.histories.dumb
        worker = dumb.workers.get((event.namespace, event.worker_id))
        if worker is None:
            return "nobody"
        shown = f"{worker['incarnation'][:18]} {worker['status']}"
        return f"{shown} checksum {worker['checksum'][:6]}"

    def _view_stored(self, message: Message) -> None:
        if message.payload == PLANTED:
            self.world.trace.line("view", f"{message.sequence} planted")
            self.views.view_planted(message.sequence)
            return
        started = b'"epoch_started' in message.payload[:60]
        what = "epoch start" if started else "delta"
        self.world.trace.line("view", f"{message.sequence} {what}")
        if started:
            self.world.trace.note(message.payload.decode())
            document = msgspec.json.decode(message.payload)
            epoch = msgspec.convert(document["epoch"], Epoch)
            self.forward.epoch_began(message.sequence, str(epoch))
            self.numbering.began(document["reason"])
            self._check_reason(epoch, document["reason"])
            if document["reason"] in HISTORY_REASONS:
                self.announced.append(self.world.loop.time())
        self.views.view_stored(message.sequence, message.payload)

    def _view_begins(self) -> int:
        stream = self.world.server.held(NAMES.view_stream)
        return 0 if stream is None else stream.state().first_sequence

    def _check_reason(self, epoch: Epoch, reason: str) -> None:
        """An epoch over another log says so, unless nothing told of the one before."""
        before, self._log_numbered = self._log_numbered, epoch.log_id
        if before not in ("", epoch.log_id) and reason not in OTHER_LOG_REASONS:
            what = f"{epoch} begins for {reason}; before, {before} was numbered"
            raise Violation("reason", what)

    def _head_stored(self, message: Message) -> None:
        if message.payload == self.head:
            return
        head = decode_head(message.payload)
        if head is not None and head.leader != PLANTER:
            self.head = message.payload
            self.views.check_head(head)

    def _presence_stored(self, message: Message) -> None:
        presence = read_or_none(_PRESENCE, message.payload)
        if presence is not None:
            self.waits.heard(presence.name)
            self._check_presence(presence)

    def said_by(self, router: str, since: float) -> Presence | None:
        """What a router said after ``since``, if it counts, and will for a while."""
        bucket = NAMES.presence_bucket
        stream = self.world.server.held(f"KV_{bucket}")
        said = None if stream is None else stream.last(NAMES.entry(bucket, router))
        if said is None or not said.payload:
            return None
        age_s = (self.world.server._now() - said.stored_at).total_seconds()
        limit_s = self.world.settings.presence_ttl_s - PRESENCE_SLACK_S
        counts = 0.0 <= age_s < min(limit_s, self.world.loop.time() - since)
        return read_or_none(_PRESENCE, said.payload) if counts else None

    def _report_stored(self, message: Message) -> None:
        report = read_or_none(_REPORT, message.payload)
        if report is not None:
            self._check_presence(report.presence)

    def _check_presence(self, said: Presence) -> None:
        claim = (said.epoch, said.revision, said.digest)
        if claim not in self._claims:
            self.views.check_claim(said.name, *claim)
            self._claims.add(claim)

    def _snapshot_stored(self, message: Message) -> None:
        if message.subject != NAMES.snapshot_pointer:
            return
        pointer = read_or_none(_POINTER, message.payload)
        stream = self.world.server.held(NAMES.snapshot_stream)
        if pointer is None or stream is None:
            raise Violation("snapshot", f"no pointer: {message.payload[:80]!r}")
        self.world.trace.line("snap", f"revision {pointer.revision}")
        subject = NAMES.snapshot_chunk
        chunks = [
            stream.last(subject(pointer.snapshot_id, number))
            for number in range(pointer.chunks)
        ]
        self.pointing.look(pointer, whole=None not in chunks)
        if None in chunks:  # spoilt by the plan between two of its pieces
            return
        packed = b"".join(chunk.payload for chunk in chunks if chunk is not None)
        self.views.check_snapshot(unpack_snapshot(packed, pointer.checksum))

    def beat_arrived(self, payload: bytes) -> None:
        """A beat is at the broker."""
        beat = decode_beat(payload)
        if beat is not None:
            self.beating.arrived(beat.incarnation)
            self.serving.heard(beat)

    def outage(self, begin: float, end: float) -> None:
        """The broker stood still from ``begin`` to ``end``."""
        self.beating.outage(begin, end)
        self.serving.outage(begin, end)
        self.waits.outage(begin, end)

    def _is_beating(self, *life: str) -> bool:
        return self.beating.beats(self._record, life[2])

    def look(self) -> None:
        """Look at what nobody tells, and again later."""
        with self.world.checking():
            self.beating.look()
            for host in self.world.of(ProjectorHost):
                self.leading.look(host)
            self.complaining.look()
        self.world.loop.call_later(LOOK_S, self.look)

    # ---- what hosts tell -------------------------------------------------------
    def appending(self, pending: Sequence[Pending]) -> None:
        for item in pending:
            self.beating.appending(item.event.event_id)

    def acknowledged(
        self, host: Host, pending: Sequence[Pending], done: Appended
    ) -> None:
        self.world.trace.line(host.name, f"acknowledged {done.revision}")
        for item in pending:
            self.histories.acknowledged(host.name, item.event.event_id)
        self.promises.granted(host.name, pending)

    def folded(self, host: ProjectorHost, core: Any) -> None:
        version = OLD_FOLD_VERSION if host.is_old else FOLD_VERSION
        name, log_id = host.name, core.line.log_id
        self.histories.check_fold(name, log_id, core.fold, version=version)
        self.leading.look(host)

    def router_began(self, host: RouterHost) -> None:
        self.forward.began(host.name)

    def moved(self, host: RouterHost, replica: Any) -> None:
        place = replica.position
        shown = f"{place.epoch} ordinal {place.ordinal} revision {replica.revision}"
        self.world.trace.line(host.name, f"at {shown}")
        self.forward.moved(host.name, replica)
        self.views.check_replica(host.name, replica)
        self.views.check_shown(host.name, Fleet(replica.fleet))
        self._check_picks(host)

    def _check_picks(self, host: RouterHost) -> None:
        """Whom a router picks now may be picked; who may be is not refused.

        The models take turns: one at each move.
        """
        view = host.view
        assert view is not None
        fleet, model = view.fleet, next(self._models)
        try:
            worker = view.pick(model, rng=self._chance)
        except (ModelNotFoundError, ModelUnavailableError) as error:
            right = self.histories.blockers(fleet.state)
            entered = [
                key
                for key, put in fleet.state.workers.items()
                if put.model == model and put.role in ENTRY and not right[key]
            ]
            if entered:
                what = f"{host.name} refuses {model}: {error}; there is {entered}"
                raise Violation("routable", what) from error
        else:
            self.views.check_pickable(host.name, fleet, [worker])

    def node_stalled(self, node: str, for_s: float) -> None:
        self.serving.stalled(node, for_s)

    def wait(self, step: Wait) -> None:
        self.waits.begin(step)

    # ---- the end ---------------------------------------------------------------
    def final(self) -> None:
        """All faults are long over."""
        with self.world.checking():
            Ending(self).check()
