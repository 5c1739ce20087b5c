"""The core's jobs, carried out: reads and appends until the answer is definite."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final, TypeAlias

import msgspec

from controlplane.broker import Broker
from controlplane.clock import Clock
from controlplane.errors import (
    AppendConflictError,
    AppendOutcomeUnknownError,
    LeaseLostError,
    LogUnavailableError,
)
from controlplane.eventlog import EventLog, Pending
from controlplane.identifiers import new_uuid7
from controlplane.telemetry import WorkerMetrics
from events import ControlPlaneError, Record, Revision, WorkerRegistered, worker_subject

from .claiming import PortHands
from .declared import Draft
from .signals import (
    Append,
    Appended,
    ClaimPorts,
    Conflicted,
    Failed,
    PortsClaimed,
    PortsRest,
    PortsReturned,
    PortsTaken,
    ReadSubject,
    Resumed,
    ReturnPorts,
    SubjectRead,
)
from .spec import ResolvedSpec

PAUSE_S_MIN: Final = 0.1
PAUSE_S_MAX: Final = 2.0

AppendAnswer: TypeAlias = Appended | Conflicted | Failed | PortsRest | PortsTaken


class Performer:
    """Does one job at a time."""

    def __init__(
        self,
        *,
        log: EventLog,
        broker: Broker,
        clock: Clock,
        by: str,
        metrics: WorkerMetrics | None,
        ports: PortHands | None = None,
    ) -> None:
        """Work on ``log``, whose messages are reached through ``broker``.

        ``ports`` is there for whoever gives out jobs with ports.
        """
        self._log, self._broker, self._clock, self._by = log, broker, clock, by
        self._metrics, self._ports = metrics, ports
        self._pause_s = PAUSE_S_MIN
        self.excuse: ControlPlaneError | None = None
        """Why the job at hand has not succeeded yet."""
        self.in_doubt = False
        """Whether an event was sent, or just may have been, and nobody answered."""

    async def read(self, spec: ResolvedSpec, job: ReadSubject) -> SubjectRead | Failed:
        """How the worker's subject stands, by the log's leader."""
        try:
            return await self._read(spec, job)
        except ControlPlaneError as error:
            self.excuse = error
            return Failed(error)

    async def _read(self, spec: ResolvedSpec, job: ReadSubject) -> SubjectRead:
        subject = worker_subject(spec.namespace, spec.worker_id)
        state = await self._log.state()
        record = await self._log.last(subject)
        last = 0 if record is None else record.revision
        records: tuple[Record, ...] = ()
        whole = False
        if job.after is not None:
            whole = (
                state.log_id != job.log_id
                or last < job.after
                or await self._is_replaced(job)
            )
            after = 0 if whole else job.after
            records = await self._records(subject, after, last)
        return SubjectRead(
            log_id=state.log_id,
            last=last,
            records=records,
            whole=whole,
            fresh=new_uuid7(),
            fingerprint="" if record is None else record.fingerprint,
        )

    async def _is_replaced(self, job: ReadSubject) -> bool:
        """Whether the log holds another record at the last revision that is known.

        It lost its tail then, and gave the number again. A purged record is no loss.
        """
        if not job.after or not job.fingerprint:
            return False
        record = await self._log.at(job.after)
        return record is not None and record.fingerprint != job.fingerprint

    async def _records(
        self, subject: str, after: Revision, until: Revision
    ) -> tuple[Record, ...]:
        if until <= after:
            return ()
        names = self._log.names
        batches = self._broker.read(
            names.log_stream,
            after=after,
            until=until,
            subject=names.absolute(subject),
        )
        return tuple(
            [self._log.record(message) async for batch in batches for message in batch]
        )

    async def claim(self, job: ClaimPorts) -> PortsClaimed | Failed:
        """Claim the ports that are wanted."""
        try:
            return await self._hands.claim(job)
        except ControlPlaneError as error:
            self.excuse = error
            return Failed(error)

    async def give_back(self, job: ReturnPorts) -> PortsReturned:
        """Release what is still held."""
        return await self._hands.give_back(job)

    def forget(self) -> None:
        """The worker is over: its ports are no matter of this process any more."""
        if self._ports is not None:
            self._ports.forget()

    async def append(self, job: Append, *, give_up: bool) -> AppendAnswer:
        """Append the sealed draft, with what is to be said of its ports.

        While the outcome is unknown the same bytes are repeated, for ever unless one
        is to ``give_up``; a failure before anything was sent is definite.
        """
        event = self._sealed(job.draft)
        batch: Sequence[Pending] | None = (Pending(event, job.expected),)
        try:
            if job.blocks:
                batch = await self._hands.batch(job, Pending(event, job.expected))
        except LeaseLostError as error:
            return PortsTaken(error)
        except ControlPlaneError as error:
            self.excuse = error
            return Failed(error)
        if batch is None:
            self.excuse = LogUnavailableError(
                url=self._broker.url,
                doing=f"registering {event.worker_id} again",
                reason="its ports have to rest before they can be claimed",
            )
            return PortsRest()
        answer = await self._append_known(job, event, batch, give_up=give_up)
        registers = isinstance(event, WorkerRegistered)
        if isinstance(answer, Appended) and job.blocks and registers:
            holds = await self._hands.holds(job, batch)
            answer = msgspec.structs.replace(answer, holds=holds)
        return answer

    async def _append_known(
        self, job: Append, event: Draft, batch: Sequence[Pending], *, give_up: bool
    ) -> Appended | Conflicted | Failed:
        """Append ``batch``; meanwhile it is known why there is no answer yet."""
        subject = worker_subject(event.namespace, event.worker_id)
        self._count(job)
        self.in_doubt = self._broker.connected
        if self.in_doubt:
            reason = "no answer yet"
            self.excuse = AppendOutcomeUnknownError(subject=subject, reason=reason)
        stop_listening = self._broker.on_connection(self._may_be_sent)
        try:
            return await self._append(event, batch, give_up=give_up)
        finally:
            stop_listening()
            self.in_doubt = False

    def _may_be_sent(self, connected: bool) -> None:  # noqa: FBT001
        self.in_doubt = self.in_doubt or connected

    async def _append(
        self, event: Draft, batch: Sequence[Pending], *, give_up: bool
    ) -> Appended | Conflicted | Failed:
        subject = worker_subject(event.namespace, event.worker_id)
        in_doubt = False
        while True:
            try:
                done = await self._log.append_all(batch)
            except AppendConflictError as error:
                self._count_retry()
                return Conflicted(error)
            except ControlPlaneError as error:
                in_doubt = in_doubt or isinstance(error, AppendOutcomeUnknownError)
                self.in_doubt = in_doubt
                if in_doubt and isinstance(error, LogUnavailableError):
                    error = AppendOutcomeUnknownError(
                        subject=subject, reason=error.reason
                    )
                self.excuse = error
                if give_up or not in_doubt:
                    return Failed(error)
            else:
                self.excuse, self._pause_s = None, PAUSE_S_MIN
                return Appended(done.revision, event.event_id)
            self._count_retry()
            await asyncio.sleep(self._backoff_s())

    async def pause(self, news: asyncio.Event) -> Resumed | None:
        """Wait a moment, longer each time; None: there is something else to do."""
        try:
            async with asyncio.timeout(self._backoff_s()):
                await news.wait()
        except TimeoutError:
            return Resumed()
        return None

    def _backoff_s(self) -> float:
        pause_s, self._pause_s = self._pause_s, min(self._pause_s * 2, PAUSE_S_MAX)
        return pause_s

    @property
    def _hands(self) -> PortHands:
        assert self._ports is not None  # noqa: S101 - whoever wants ports has them
        return self._ports

    def _sealed(self, draft: Draft) -> Draft:
        seal: dict[str, Any] = {
            "event_id": new_uuid7(),
            "at": self._clock.now(),
            "by": self._by,
        }
        return msgspec.structs.replace(draft, **seal)

    def _count(self, job: Append) -> None:
        if self._metrics is not None and job.cause is not None:
            self._metrics.reregistrations.labels(reason=job.cause).inc()

    def _count_retry(self) -> None:
        if self._metrics is not None:
            self._metrics.append_retries.inc()
