"""`WorkerHandle`: one worker in the fleet, from entering to leaving."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any, Final

from controlplane.beats import Beat, WireNotice, decode_notice
from controlplane.broker import Broker, Subscription
from controlplane.clock import Clock
from controlplane.errors import (
    AppendOutcomeUnknownError,
    LeaseLostError,
    LogUnavailableError,
)
from controlplane.eventlog import EventLog
from controlplane.identifiers import new_uuid7
from controlplane.logs import get_logger
from controlplane.runtime import Lifetime
from controlplane.settings import Settings
from controlplane.telemetry import WorkerMetrics
from events import (
    ControlPlaneError,
    Host,
    Incarnation,
    Namespace,
    Revision,
    Status,
    WorkerId,
)
from projections import PortBlock, Want

from .beat import BeatThread
from .claiming import Claiming, hands_for, ports_of, wants_of
from .core import WorkerCore
from .inbox import Answers, Notice, NoticeBox, hang_up
from .patience import Patience
from .performing import Performer
from .reporting import LoadReporter
from .signals import (
    Append,
    Begin,
    ClaimPorts,
    Command,
    Deliver,
    Effect,
    End,
    Input,
    Job,
    KeepBeating,
    Leave,
    Noticed,
    Pause,
    ReadSubject,
    ReturnPorts,
)
from .speaking import Speaking
from .spec import WorkerSpec, resolve

LEAVE_S: Final = 4.0
"""So long the farewell may take; then the lease cleans up."""

_log = get_logger("worker")


class WorkerHandle(Lifetime, Speaking):
    """A worker: registered while inside, beating, put right when the log forgot it.

    Entering needs the log only. It raises `LogUnavailableError`,
    `AppendOutcomeUnknownError`, `AppendConflictError`, `LogFullError` or
    `IncarnationSupersededError`; with ports also `PortsExhaustedError`, `SettingsError`
    or `LeaseLostError`, and then none are held. Afterwards no outage ends it, however
    long. Leaving deregisters and releases its ports at once, also when cancelled,
    within 5 s; what cannot be said then the lease says later.
    """

    def __init__(  # noqa: PLR0913 - each is a dependency, and named
        self,
        spec: WorkerSpec,
        *,
        log: EventLog,
        broker: Broker,
        beats: BeatThread,
        settings: Settings,
        clock: Clock,
        by: str,
        environ: Mapping[str, str],
        ports: Mapping[str, int | Want] | None = None,
        claiming: Claiming | None = None,
        host: Host | None = None,
        bind_check: bool = True,
        metrics: WorkerMetrics | None = None,
    ) -> None:
        """Decide who the worker is; nothing is sent yet.

        ``claiming`` is who claims its ``ports``, on ``host`` (None: this one).
        Raises `InvalidIdentityError` for what the environment adds and for ports that
        nobody could have, `SettingsError` for what are no ports.
        """
        super().__init__()
        self._wants: Final = wants_of(ports)
        self._spec = resolve(spec, environ=environ, generated=new_uuid7())
        hands = hands_for(
            self._wants, claiming, log, self._spec, host=host, bind_check=bind_check
        )
        self._log, self._broker, self._beats = log, broker, beats
        self._metrics = metrics
        self._performer: Final = Performer(
            log=log, broker=broker, clock=clock, by=by, metrics=metrics, ports=hands
        )
        self._names: Final = log.names
        self._core = WorkerCore(self._spec, new_uuid7(), self._wants)
        self._job: Job | None = None
        self._doing: Job | None = None
        self._news: Final = asyncio.Event()
        self._beating = False
        self._announced: tuple[Incarnation, str, Revision] | None = None
        self._error: ControlPlaneError | None = None
        self._failed: Final = asyncio.Event()
        self._answers: Final = Answers()
        self._patience: Final = Patience(broker, settings, self._in_doubt)
        self._notices: Final = NoticeBox()
        self._loads = LoadReporter(broker, settings.load_every_s)
        self.drain_requested = asyncio.Event()

    # ---- who it is -------------------------------------------------------------
    @property
    def namespace(self) -> Namespace:
        """Where it lives."""
        return self._spec.namespace

    @property
    def worker_id(self) -> WorkerId:
        """Its name there."""
        return self._spec.worker_id

    @property
    def incarnation(self) -> Incarnation:
        """The life it is in; another one after it expired."""
        return self._core.incarnation

    @property
    def revision(self) -> Revision:
        """Where its current registration stands in the log."""
        return self._core.registered

    @property
    def status(self) -> Status:
        """The status that is wanted; the log says it as soon as it can."""
        return self._core.wanted.status

    @property
    def ports(self) -> Mapping[str, PortBlock]:
        """Its blocks by their names, the same through all its lives; empty outside."""
        return ports_of(self._wants, self._core.blocks)

    # ---- what it is told -------------------------------------------------------
    def notices(self) -> AsyncIterator[Notice]:
        """Yield what the leader told, each once, until the worker has ended.

        The last `NOTICES_MAX` wait for their reader. Each goes to one reader.
        """
        return self._notices.read()

    async def wait_lost(self) -> ControlPlaneError:
        """Return the error that ended this worker for good.

        A worker that left by itself was not lost: then this never returns.
        """
        while self._error is None:
            await self._failed.wait()
        return self._error

    # ---- lifetime --------------------------------------------------------------
    async def _enter(self) -> None:
        """Enter: register and begin to beat."""
        self._core = WorkerCore(self._spec, new_uuid7(), self._wants)
        self._job, self._doing, self._error = None, None, None
        self._failed.clear()
        self.drain_requested.clear()
        self._notices.open()
        await super()._enter()

    @property
    def _reason_of_end(self) -> BaseException:
        return self._error or super()._reason_of_end

    async def _stop(self) -> None:
        """Leave: deregister, fall silent, tidy up; within 5 s."""
        runner = self._runner
        if runner is not None and not runner.done() and self._told:
            self._feed(Leave())
            await asyncio.wait({runner}, timeout=LEAVE_S)
            if not runner.done():
                _log.warning("farewell not said", **self._who)
        self._silence()
        await super()._stop()
        if self._core.ended and self._core.blocks:  # it was lost, with its ports
            await self._performer.give_back(ReturnPorts(self._core.blocks))
            self._core.blocks = ()
        self._performer.forget()
        self._settle()
        self._notices.close()

    @property
    def _told(self) -> bool:
        """Whether the log has this life, or may have it soon."""
        saying = isinstance(self._doing, Append | ClaimPorts)
        return bool(self._core.registered or self._core.blocks) or saying

    async def _run(self, tasks: asyncio.TaskGroup) -> None:
        subject = self._names.notice(self.namespace, self.worker_id)
        subscription = await self._broker.subscribe(subject)
        try:
            tasks.create_task(self._listen(subscription))
            loads = self._names.load(self.namespace, self.worker_id)
            self._loads.start(tasks, loads, lambda: self.incarnation)
            self._feed(Begin())
            await self._work()
        except Exception as error:
            if error is not self._error:
                _log.exception("worker failed", **self._who)
            raise
        finally:
            self._loads.stop()
            await hang_up(subscription)

    async def _work(self) -> None:
        while not self._core.ended:
            await self._news.wait()
            self._news.clear()
            self._doing, self._job = self._job, None
            if self._doing is None:
                continue
            answer = await self._perform(self._doing)
            self._doing = None
            if answer is not None:
                self._feed(answer)
        if self._error is not None and not self._ready.is_set():
            raise self._error

    async def _perform(self, job: Job) -> Input | None:
        match job:
            case ReadSubject():
                return await self._performer.read(self._spec, job)
            case Append():
                first = not self._core.registered
                return await self._performer.append(job, give_up=first)
            case ClaimPorts():
                return await self._performer.claim(job)
            case ReturnPorts():
                return await self._performer.give_back(job)
            case Pause():
                return await self._performer.pause(self._news)

    async def _listen(self, subscription: Subscription) -> None:
        async for message in subscription:
            notice = decode_notice(message.payload)
            if notice is None or notice.incarnation != self.incarnation:
                continue
            self._count(notice)
            self._feed(Noticed(notice))

    def _count(self, notice: WireNotice) -> None:
        if self._metrics is not None:
            self._metrics.notices.labels(kind=notice.kind).inc()

    # ---- the core's hands ------------------------------------------------------
    def _feed(self, given: Input) -> None:
        for effect in self._core.step(given):
            self._effect(effect)
        self._settle()

    def _effect(self, effect: Effect) -> None:
        match effect:
            case KeepBeating():
                self._beat(effect)
            case Deliver():
                self._deliver(effect)
            case End(error=error):
                self._end(error)
            case Pause(error=error):
                self._refuse(error)
                self._assign(effect)
            case _:
                self._assign(effect)

    def _assign(self, job: Job) -> None:
        self._job = job
        self._news.set()

    def _beat(self, life: KeepBeating) -> None:
        beat = Beat(
            incarnation=life.incarnation, log_id=life.log_id, revision=life.revision
        )
        if self._beating:
            self._beats.change(self._key, beat)
        else:
            subject = self._names.beat(self.namespace, self.worker_id)
            self._beats.keep(self._key, subject, beat, self._spec.lease_ttl_s)
            self._beating = True
        announced = (life.incarnation, life.log_id, self.revision)
        if self.revision and announced != self._announced:
            self._announced = announced
            _log.info("worker registered", revision=self.revision, **self._who)
            self._ready.set()

    def _silence(self) -> None:
        self._beats.drop(self._key)
        self._beating = False

    def _deliver(self, told: Deliver) -> None:
        _log.info(
            "worker was told",
            kind=told.kind,
            reason=told.reason,
            revision=told.revision,
            **self._who,
        )
        if told.kind == "drain_requested":
            self.drain_requested.set()
        self._notices.put(Notice(told.kind, told.reason, told.revision))

    def _end(self, error: ControlPlaneError | None) -> None:
        self._silence()
        self._job, self._error = None, error
        self._news.set()
        self._notices.close()
        if error is not None:
            self._failed.set()
        if not self._ready.is_set():
            return  # whoever is entering is told
        if error is None:
            _log.info("worker left", **self._who)
        else:
            _log.error("worker lost", reason=str(error), **self._who)

    # ---- commands --------------------------------------------------------------
    async def _command(self, given: Command) -> Revision:
        if self._over:
            raise self._lost
        try:
            return await self._answers.ask(lambda: self._feed(given), self._patience)
        except TimeoutError as error:
            raise self._excuse from error

    def _settle(self) -> None:
        """Answer the commands that wait, if there is an answer."""
        if self._over:
            self._answers.refuse(self._lost)
        elif self._core.settled:
            self._answers.give(self._core.revision)

    def _refuse(self, error: ControlPlaneError | None) -> None:
        """Tell the commands that wait; an absent broker may come back in time."""
        if error is not None and not isinstance(error, LogUnavailableError):
            self._answers.refuse(error)

    @property
    def _over(self) -> bool:
        return self._core.ended or super()._over

    @property
    def _lost(self) -> ControlPlaneError:
        return self._error or LeaseLostError(
            namespace=self.namespace,
            worker_id=self.worker_id,
            reason="it is not in the fleet: it has left, or was not entered",
        )

    @property
    def _excuse(self) -> ControlPlaneError:
        excuse = self._performer.excuse
        certain = not self._in_doubt()
        if excuse is None or (
            certain and isinstance(excuse, AppendOutcomeUnknownError)
        ):
            doing = f"telling the log about {self.worker_id}"
            return LogUnavailableError(url=self._broker.url, doing=doing)
        return excuse

    def _in_doubt(self) -> bool:
        return self._performer.in_doubt

    @property
    def _key(self) -> tuple[Namespace, WorkerId, int]:
        return (self.namespace, self.worker_id, id(self))

    @property
    def _who(self) -> dict[str, Any]:
        return {
            "namespace": self.namespace,
            "worker_id": self.worker_id,
            "incarnation": self.incarnation,
        }
