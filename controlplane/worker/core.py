"""The life of one worker in the log: a state machine without IO; see `signals`.

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
subject's records since then are read from the leader and judged by the fold's rule;
all of them, if they do not show what the notice says.

| The subject is… | then |
|---|---|
| ours | go on; but if a leader past our registration knows us not: register again |
| ours, ended | register as a fresh incarnation on top of what is there |
| without us (another log, lost tail) | register again, as the same incarnation |
| another's, registered after us | `IncarnationSupersededError`, final |

A first registration takes a worker id over from whoever had it: that is how a restart
looks. If others keep coming first it gives up after a few attempts, at once if one of
them began later: two processes of one id do not duel.

**Ports** are claimed between the first read and the registration, which expects what
was read: an expiry in between is on the subject too, so it comes too late, and a fresh
incarnation begins. Each registration brings along the claims that its life lacks, all
or none: whoever expired has its ports back, or is not back. Another holder ends it for
good (`LeaseLostError`); what merely rests is waited for.

Who leaves gives the ports back, with the farewell or, unregistered, without one. Who
is lost for good falls silent and keeps them until the caller leaves, or the lease ends
it: the engine may use them yet.
"""

from __future__ import annotations

from typing import Final

from controlplane.beats import WireNotice
from controlplane.errors import AppendConflictError
from events import (
    ControlPlaneError,
    Incarnation,
    Revision,
    WorkerDeregistered,
    WorkerRegistered,
)
from projections import PortBlock, Want

from .declared import Declared, Draft, Drafting
from .phase import ANSWERED, OpenJob, Phase
from .signals import (
    Answer,
    Append,
    Appended,
    Begin,
    Cause,
    ClaimPorts,
    Command,
    Conflicted,
    Effect,
    End,
    Failed,
    Input,
    KeepBeating,
    Leave,
    Noticed,
    Pause,
    PortsClaimed,
    PortsRest,
    PortsReturned,
    PortsTaken,
    ReadSubject,
    Resumed,
    ReturnPorts,
    SetStatus,
    SubjectRead,
)
from .spec import ResolvedSpec
from .standing import Over, Standing, Superseded, Vacant, judge, taken_before
from .told import Told
from .wanting import wanted_after

ATTEMPTS_MAX: Final = 8
"""A first registration that others forestall so often gives up."""


class WorkerCore:
    """One worker of one process, through all its incarnations."""

    def __init__(
        self,
        spec: ResolvedSpec,
        incarnation: Incarnation,
        wants: tuple[Want, ...] = (),
    ) -> None:
        """Begin unregistered, as ``incarnation`` which ``wants`` ports."""
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
        self.blocks: tuple[PortBlock, ...] = ()
        """The ports of this worker, one block for each want; none before the claim."""
        self._wants: Final = wants
        self._holds = True
        """Whether the log certainly has the ports of the current registration."""
        self._spec: Final = spec
        self._ours = {incarnation}
        self._status_reason = self._leave_reason = ""
        self._last_error: ControlPlaneError | None = None
        self._open: OpenJob | None = None
        self._sent: Draft | None = None
        self._question: WireNotice | AppendConflictError | None = None
        self._thorough = False  # whether all that the subject has is being read
        self._conflicts = 0
        self._told: Final = Told()

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
        if isinstance(given, Command):
            return self._want(given)
        match given:
            case Begin() | Resumed():
                self._end_pause()
                return self._go_on()
            case Noticed():
                return self._noticed(given.notice)
            case Leave():
                return self._leave(given.reason)
            case _:
                return self._answered(given)

    # ---- what comes from the caller --------------------------------------------
    def _want(self, command: Command) -> tuple[Effect, ...]:
        if isinstance(command, SetStatus):
            self._status_reason = command.reason
        self.wanted = wanted_after(self.wanted, command)
        return self._go_on() if self.phase is Phase.REGISTERED else ()

    def _leave(self, reason: str) -> tuple[Effect, ...]:
        if self.phase is Phase.LEAVING:
            return ()
        self.phase = Phase.LEAVING
        self._leave_reason = reason
        self._end_pause()
        return self._go_on()

    # ---- what comes from the leader --------------------------------------------
    def _noticed(self, notice: WireNotice) -> tuple[Effect, ...]:
        if notice.incarnation != self.incarnation or not self.registered:
            return ()
        if notice.kind in ("quarantined", "drain_requested"):
            return self._told.deliver(notice)
        if self._open in ("read", "append") or self.phase is Phase.LEAVING:
            return ()  # the answer will tell; the leader says it again if need be
        self._end_pause()
        self._question = notice
        return self._go_on()

    # ---- what comes from the log -----------------------------------------------
    def _answered(self, answer: Answer) -> tuple[Effect, ...]:
        if self._open is None or self._open not in ANSWERED[type(answer)]:
            return ()
        self._open = None
        match answer:
            case SubjectRead():
                effects = self._read(answer)
            case PortsClaimed():
                effects = self._claimed(answer)
            case Appended():
                effects = self._appended(answer)
            case Conflicted():
                effects = self._conflicted(answer)
            case PortsRest():
                effects = self._pause(None)
            case PortsTaken():
                effects = self._lost(answer.error)
            case PortsReturned():
                self.blocks = ()
                effects = self._end(self._last_error)
            case Failed():
                effects = self._failed(answer.error)
        return effects

    def _claimed(self, claimed: PortsClaimed) -> tuple[Effect, ...]:
        self.blocks = claimed.blocks
        self.wanted = self.wanted.placed(self._wants, claimed.blocks)
        if self.phase is Phase.LEAVING:
            return self._go_on()
        beat = KeepBeating(self.incarnation, claimed.log_id, claimed.revision)
        return (beat, self._register(self.incarnation, self.revision))

    def _appended(self, answer: Appended) -> tuple[Effect, ...]:
        sent, self._sent = self._sent, None
        if sent is None or isinstance(sent, WorkerDeregistered):
            self.blocks = ()
            return self._end(None)
        revision = self.revision = answer.revision
        self.fingerprint = answer.fingerprint
        if isinstance(sent, WorkerRegistered):
            self.incarnation, self.registered = sent.incarnation, revision
            self.said, self._holds = Declared.of(sent), answer.holds
            self._enter_registered()
        elif self.said is not None:
            self.said = self.said.after(sent)
        self._conflicts = 0
        return (*self._beat(self._holds), *self._go_on())

    def _conflicted(self, given: Conflicted) -> tuple[Effect, ...]:
        self._sent, self._question = None, given.error
        self._conflicts += 1
        if not self.registered and self._conflicts >= ATTEMPTS_MAX:
            return self._part_with(given.error)
        return self._go_on()

    def _failed(self, error: ControlPlaneError) -> tuple[Effect, ...]:
        return self._pause(error) if self.registered else self._lost(error)

    def _pause(self, error: ControlPlaneError | None) -> tuple[Effect, ...]:
        self._sent, self._open = None, "pause"
        return (Pause(error),)

    def _lost(self, error: ControlPlaneError) -> tuple[Effect, ...]:
        """It is over; whoever leaves anyway need not know why."""
        if self.phase is Phase.LEAVING:
            return self._part_with(None)
        return self._end(error) if self.registered else self._part_with(error)

    def _read(self, read: SubjectRead) -> tuple[Effect, ...]:
        question, self._question = self._question, None
        if read.whole or read.last < self.revision:  # what was known holds no longer
            self.said, self.revision, self.fingerprint = None, 0, ""
        notice = question if isinstance(question, WireNotice) else None
        before = None
        if self.said is not None:
            before = Standing(self.incarnation, self.said, self.registered)
        news = [one for one in read.records if one.revision > self.revision]
        verdict = judge(news, ours=self._ours, newest=self.incarnation, before=before)
        if isinstance(verdict, Standing) and notice is not None and not read.whole:
            if not self._thorough:  # the leader thinks otherwise: see all there is
                self._thorough, self._question, self._open = True, notice, "read"
                return (ReadSubject(0, self.log_id),)
            verdict = taken_before(read, self._ours, self.incarnation) or verdict
        moved, self.log_id = self.log_id != read.log_id, read.log_id
        match verdict:
            case Superseded():
                return self._lost(verdict.error(self._spec, self.incarnation))
            case Standing():
                return self._standing(verdict, read, notice, moved=moved)
            case Over():
                return self._again(read.fresh, read, notice, "expired")
            case Vacant():
                return self._again(self.incarnation, read, notice, "unknown")

    def _standing(
        self,
        standing: Standing,
        read: SubjectRead,
        notice: WireNotice | None,
        *,
        moved: bool,
    ) -> tuple[Effect, ...]:
        """The life is there: go on from the subject's last record."""
        if self.blocks and self.registered != standing.registered:
            self._holds = False  # nobody looked since it was stored
        changed = moved or self.revision != read.last or not self.registered
        self.incarnation, self.said = standing.incarnation, standing.said
        self.registered, self.revision = standing.registered, read.last
        self.fingerprint = read.fingerprint
        unknown = (
            notice is not None
            and notice.kind == "unknown"
            and not moved  # else the beat named another log: that was all
            and notice.revision >= self.registered
        )
        if unknown or not (self._holds or self.phase is Phase.LEAVING):
            return self._again(self.incarnation, read, notice, "unknown")
        self._enter_registered()
        return (*self._beat(changed), *self._go_on())

    def _again(
        self,
        incarnation: Incarnation,
        read: SubjectRead,
        notice: WireNotice | None,
        cause: Cause,
    ) -> tuple[Effect, ...]:
        """Register as ``incarnation`` on top of what was read."""
        if self.phase is Phase.LEAVING:
            return self._part_with(None)
        self._ours.add(incarnation)
        told = () if notice is None else self._told.deliver(notice)
        if self.registered:
            self.phase = Phase.REGISTERING_AGAIN
            return (*told, self._register(incarnation, read.last, cause))
        is_fresh, self.incarnation = incarnation != self.incarnation, incarnation
        self.revision = 0 if read.whole else read.last
        self.fingerprint = "" if read.whole else read.fingerprint
        if self._wants and not self.blocks:
            self._open = "claim"
            return (ClaimPorts(self._wants, incarnation),)
        # Whoever holds ports beats, and the end of the life that claimed is waited for.
        beat = self._beat(is_fresh and bool(self.blocks))
        return (*beat, self._register(incarnation, read.last))

    def _register(
        self, incarnation: Incarnation, expected: Revision, cause: Cause | None = None
    ) -> Append:
        """Be in the log, with all that is wanted and all ports, or not at all."""
        draft = Drafting(self._spec, incarnation).registered(self.wanted)
        return self._append(draft, expected, cause, self.blocks)

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
            return self._part_with(None)  # the log has no registration of this life
        draft = Drafting(self._spec, self.incarnation).deregistered(self._leave_reason)
        return (self._append(draft, self.revision, blocks=self.blocks),)

    def _part_with(self, error: ControlPlaneError | None) -> tuple[Effect, ...]:
        """Give back the ports, if there are any, and end."""
        if not self.blocks:
            return self._end(error)
        self.phase, self._last_error, self._open = Phase.LEAVING, error, "return"
        return (ReturnPorts(self.blocks),)

    def _ask(self) -> tuple[Effect, ...]:
        self._open, self._thorough = "read", False
        after = self.revision if self.log_id else None
        return (ReadSubject(after, self.log_id, self.fingerprint),)

    def _append(
        self,
        draft: Draft,
        expected: Revision,
        cause: Cause | None = None,
        blocks: tuple[PortBlock, ...] = (),
    ) -> Append:
        self._open, self._sent = "append", draft
        return Append(draft, expected, cause, blocks)

    def _beat(self, differs: bool) -> tuple[Effect, ...]:  # noqa: FBT001 - its one question
        life = KeepBeating(self.incarnation, self.log_id, self.revision)
        return (life,) if differs else ()

    def _end(self, error: ControlPlaneError | None) -> tuple[Effect, ...]:
        self.phase, self._open = Phase.ENDED, None
        return (End(error),)

    def _end_pause(self) -> None:
        if self._open == "pause":
            self._open = None

    def _enter_registered(self) -> None:
        if self.phase is not Phase.LEAVING:
            again = Phase.REGISTERING_AGAIN  # with the ports that it may lack
            self.phase = Phase.REGISTERED if self._holds else again
