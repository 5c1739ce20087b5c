"""The life of one worker in the log: a state machine without IO.

**States.** *Registering*: not in the log yet. *Registered*: the log has this life, and
the beats name it. *Registering again*: the life ended or the log lost it. *Leaving*:
only the farewell is wanted. *Ended*: for good; nothing comes out any more.

**One job at a time.** A job (read the subject, append an event, pause) is answered by
one input; until then no other job is given out. An answer that nobody waits for is
ignored.

**Wanted and said.** Commands change what is *wanted*. What the log has *said* of this
life follows, event by event, whenever no job is open. So a command that met an outage
is not lost: what is wanted is said when the log is back, or in the next registration.

**Expectations.** Every event expects the last revision on the worker's subject, as
this life knows it; the first registration expects what a read just found. Whatever
contradicts that (a conflict, a notice) is a *question*, and the log answers it: the
subject's records since then are read from the leader and judged by the fold's rule.

| The subject is… | then |
|---|---|
| ours | go on; but if a leader past our registration knows us not: register again |
| ours, ended | register as a fresh incarnation on top of what is there |
| without us (another log, lost tail) | register again, as the same incarnation |
| another's, registered after us | `IncarnationSupersededError`, final |

A first registration takes a worker id over from whoever had it: that is how a restart
looks. If others keep coming first it gives up after a few attempts, at once if one of
them began later: two processes of one id do not duel.

**Inputs and effects** are in `signals`.
"""

from __future__ import annotations

import enum
from typing import Final, Literal

from controlplane.beats import WireNotice
from controlplane.errors import AppendConflictError, IncarnationSupersededError
from events import (
    ControlPlaneError,
    Incarnation,
    Revision,
    WorkerDeregistered,
    WorkerRegistered,
)

from .declared import Declared, Draft, Drafting
from .signals import (
    Append,
    Appended,
    Begin,
    Cause,
    Command,
    Conflicted,
    Deliver,
    Effect,
    End,
    Failed,
    Input,
    KeepBeating,
    Leave,
    LoadAdapter,
    Noticed,
    Pause,
    ReadSubject,
    Resumed,
    SetStatus,
    SubjectRead,
    UnloadAdapter,
    Update,
)
from .spec import ResolvedSpec
from .standing import Over, Standing, Superseded, Vacant, judge

ATTEMPTS_MAX: Final = 8
"""A first registration that others forestall so often gives up."""
DELIVERED_MAX: Final = 256
"""So many notices are remembered, to tell the caller each only once."""


class Phase(enum.Enum):
    """Where the life stands."""

    REGISTERING = "registering"
    REGISTERED = "registered"
    REGISTERING_AGAIN = "registering again"
    LEAVING = "leaving"
    ENDED = "ended"


class WorkerCore:
    """One worker of one process, through all its incarnations."""

    def __init__(self, spec: ResolvedSpec, incarnation: Incarnation) -> None:
        """Begin unregistered, as ``incarnation``."""
        self.phase = Phase.REGISTERING
        self.incarnation = incarnation
        self.registered: Revision = 0
        """Of the current registration; 0: none yet."""
        self.revision: Revision = 0
        """The last one of this life; before it, the last that was read…"""
        self.fingerprint = ""
        """…and which record that is: the log may lose it and number another so."""
        self.log_id = ""
        self.wanted = Declared.of(spec)
        self.said: Declared | None = None
        self._spec: Final = spec
        self._ours = {incarnation}
        self._status_reason = ""
        self._leave_reason = ""
        self._open: Literal["read", "append", "pause"] | None = None
        self._sent: Draft | None = None
        self._question: WireNotice | AppendConflictError | None = None
        self._conflicts = 0
        self._delivered: dict[tuple[str, Revision], None] = {}

    @property
    def ended(self) -> bool:
        """Whether it is over for good."""
        return self.phase is Phase.ENDED

    @property
    def settled(self) -> bool:
        """Whether the log says all that is wanted."""
        return self.phase is Phase.REGISTERED and self.said == self.wanted

    def step(self, given: Input) -> tuple[Effect, ...]:
        """What follows from ``given``."""
        if self.ended:
            return ()
        match given:
            case Begin() | Resumed():
                return self._resumed()
            case SubjectRead() | Appended() | Conflicted() | Failed():
                return self._answered(given)
            case Noticed():
                return self._noticed(given.notice)
            case Leave():
                return self._leave(given.reason)
            case _:
                return self._want(given)

    # ---- what comes from the caller --------------------------------------------
    def _want(self, command: Command) -> tuple[Effect, ...]:
        wanted = self.wanted
        match command:
            case SetStatus():
                self._status_reason = command.reason
                wanted = wanted.with_fields(status=command.status)
            case Update():
                wanted = wanted.with_fields(
                    address=command.address,
                    capacity=command.capacity,
                    labels=command.labels,
                )
            case LoadAdapter():
                adapters = wanted.adapters | {command.adapter}
                wanted = wanted.with_fields(adapters=adapters)
            case UnloadAdapter():
                adapters = wanted.adapters - {command.adapter}
                wanted = wanted.with_fields(adapters=adapters)
        self.wanted = wanted
        return self._go_on() if self.phase is Phase.REGISTERED else ()

    def _leave(self, reason: str) -> tuple[Effect, ...]:
        if self.phase is Phase.LEAVING:
            return ()
        self.phase = Phase.LEAVING
        self._leave_reason = reason
        self._close("pause")
        return self._go_on()

    # ---- what comes from the leader --------------------------------------------
    def _noticed(self, notice: WireNotice) -> tuple[Effect, ...]:
        if notice.incarnation != self.incarnation or not self.registered:
            return ()
        if notice.kind in ("quarantined", "drain_requested"):
            return self._deliver(notice)
        if self._open in ("read", "append") or self.phase is Phase.LEAVING:
            return ()  # the answer will tell; the leader says it again if need be
        self._close("pause")
        self._question = notice
        return self._go_on()

    def _deliver(self, notice: WireNotice) -> tuple[Effect, ...]:
        key = (notice.kind, notice.revision)
        if key in self._delivered:
            return ()
        self._delivered[key] = None
        while len(self._delivered) > DELIVERED_MAX:
            self._delivered.pop(next(iter(self._delivered)))
        return (Deliver(notice.kind, notice.reason, notice.revision),)

    # ---- what comes from the log -----------------------------------------------
    def _answered(
        self, answer: SubjectRead | Appended | Conflicted | Failed
    ) -> tuple[Effect, ...]:
        match answer:
            case SubjectRead() if self._close("read"):
                return self._read(answer)
            case Appended() if self._close("append"):
                return self._appended(answer)
            case Conflicted() if self._close("append"):
                return self._conflicted(answer)
            case Failed() if self._close("read") or self._close("append"):
                return self._failed(answer.error)
        return ()

    def _resumed(self) -> tuple[Effect, ...]:
        self._close("pause")
        return self._go_on()

    def _appended(self, answer: Appended) -> tuple[Effect, ...]:
        sent, self._sent = self._sent, None
        if sent is None or isinstance(sent, WorkerDeregistered):
            return self._end(None)
        revision = self.revision = answer.revision
        self.fingerprint = answer.fingerprint
        if isinstance(sent, WorkerRegistered):
            self.incarnation, self.registered = sent.incarnation, revision
            self.said = Declared.of(sent)
            self._enter_registered()
        elif self.said is not None:
            self.said = self.said.after(sent)
        self._conflicts = 0
        return (*self._beat(), *self._go_on())

    def _conflicted(self, given: Conflicted) -> tuple[Effect, ...]:
        self._sent, self._question = None, given.error
        self._conflicts += 1
        if not self.registered and self._conflicts >= ATTEMPTS_MAX:
            return self._end(given.error)
        return self._go_on()

    def _failed(self, error: ControlPlaneError) -> tuple[Effect, ...]:
        self._sent = None
        if not self.registered:
            return self._end(None if self.phase is Phase.LEAVING else error)
        self._open = "pause"
        return (Pause(error),)

    def _read(self, read: SubjectRead) -> tuple[Effect, ...]:
        question, self._question = self._question, None
        if read.whole or read.last < self.revision:  # what was known holds no longer
            self.said, self.revision, self.fingerprint = None, 0, ""
        before = None
        if self.said is not None:
            before = Standing(self.incarnation, self.said, self.registered)
        verdict = judge(
            read.records, ours=self._ours, newest=self.incarnation, before=before
        )
        moved = self.log_id != read.log_id
        self.log_id = read.log_id
        notice = question if isinstance(question, WireNotice) else None
        match verdict:
            case Superseded(by=by):
                return self._superseded(by)
            case Standing():
                return self._standing(verdict, read, notice, moved=moved)
            case Over():
                return self._again(read.fresh, read, notice, "expired")
            case Vacant():
                return self._again(self.incarnation, read, notice, "unknown")

    def _superseded(self, by: Incarnation) -> tuple[Effect, ...]:
        error = IncarnationSupersededError(
            namespace=self._spec.namespace,
            worker_id=self._spec.worker_id,
            incarnation=self.incarnation,
            by=by,
        )
        return self._end(None if self.phase is Phase.LEAVING else error)

    def _standing(
        self,
        standing: Standing,
        read: SubjectRead,
        notice: WireNotice | None,
        *,
        moved: bool,
    ) -> tuple[Effect, ...]:
        """The life is there: go on from the subject's last record."""
        changed = moved or self.revision != read.last or not self.registered
        self.incarnation, self.said = standing.incarnation, standing.said
        self.registered, self.revision = standing.registered, read.last
        self.fingerprint = read.fingerprint
        if (
            notice is not None
            and notice.kind == "unknown"
            and not moved  # else the beat named another log: that was all
            and notice.revision >= self.registered
        ):
            return self._again(self.incarnation, read, notice, "unknown")
        self._enter_registered()
        return (*(self._beat() if changed else ()), *self._go_on())

    def _again(
        self,
        incarnation: Incarnation,
        read: SubjectRead,
        notice: WireNotice | None,
        cause: Cause,
    ) -> tuple[Effect, ...]:
        """Register as ``incarnation`` on top of what was read."""
        if self.phase is Phase.LEAVING:
            return self._end(None)
        if self.registered:
            self.phase = Phase.REGISTERING_AGAIN
        else:
            self.incarnation = incarnation  # what came before is not tried again
            self.revision = 0 if read.whole else read.last
            self.fingerprint = "" if read.whole else read.fingerprint
        self._ours.add(incarnation)
        draft = Drafting(self._spec, incarnation).registered(self.wanted)
        told = () if notice is None else self._deliver(notice)
        again = cause if self.registered else None
        return (*told, self._append(draft, read.last, again))

    # ---- what to do next -------------------------------------------------------
    def _go_on(self) -> tuple[Effect, ...]:
        """Give out the next job, if none is open and there is one."""
        if self._open is not None:
            return ()
        if self.phase is Phase.LEAVING:
            return self._part()
        if self._question is not None or self.phase is not Phase.REGISTERED:
            return self._ask()
        if self.said is None:
            return ()
        drafting = Drafting(self._spec, self.incarnation)
        draft = drafting.toward(self.said, self.wanted, self._status_reason)
        return () if draft is None else (self._append(draft, self.revision),)

    def _part(self) -> tuple[Effect, ...]:
        if isinstance(self._question, AppendConflictError):
            return self._ask()
        if not self.registered or self.said is None:
            return self._end(None)  # the log has nothing of this life
        drafting = Drafting(self._spec, self.incarnation)
        return (self._append(drafting.deregistered(self._leave_reason), self.revision),)

    def _ask(self) -> tuple[Effect, ...]:
        self._open = "read"
        after = self.revision if self.log_id else None
        return (ReadSubject(after, self.log_id, self.fingerprint),)

    def _append(
        self, draft: Draft, expected: Revision, cause: Cause | None = None
    ) -> Append:
        self._open, self._sent = "append", draft
        return Append(draft, expected, cause)

    def _beat(self) -> tuple[Effect, ...]:
        return (KeepBeating(self.incarnation, self.log_id, self.revision),)

    def _end(self, error: ControlPlaneError | None) -> tuple[Effect, ...]:
        self.phase, self._open = Phase.ENDED, None
        return (End(error),)

    # ---- small change ----------------------------------------------------------
    def _close(self, job: Literal["read", "append", "pause"]) -> bool:
        """Whether this was the open job; it is no longer."""
        if self._open != job:
            return False
        self._open = None
        return True

    def _enter_registered(self) -> None:
        if self.phase is not Phase.LEAVING:
            self.phase = Phase.REGISTERED
