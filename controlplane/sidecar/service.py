"""`Sidecar`: carries out what the core decides, and brings it the answers."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Coroutine
from typing import Any, Final

from controlplane.errors import (
    AppendOutcomeUnknownError,
    LogUnavailableError,
    StreamMissingError,
)
from controlplane.logs import get_logger
from controlplane.plane import Plane
from events import (
    ControlPlaneError,
    Status,
    WorkerHeld,
    WorkerResumed,
    setting_subject,
)
from projections import PortBlock

from .adapters import AdapterWatch
from .child import Child
from .core import Phase, SidecarCore, describe_end
from .environment import child_environment
from .plan import HTTP, Plan
from .probing import probed, scraped
from .steps import (
    ChildEnded,
    ChildNotStarted,
    ChildStarted,
    Drain,
    DrainAsked,
    DrainTakenBack,
    Effect,
    EndKin,
    Input,
    KillKin,
    KinGone,
    Leave,
    Loaded,
    Lost,
    Registered,
    ReportLoad,
    RoutersTold,
    SetStatus,
    SignalChild,
    Signalled,
    StartChild,
    TimePassed,
)

PASSED_ON: Final = (
    signal.SIGTERM,
    signal.SIGINT,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
)
CONNECT_S: Final = 2.0
"""A broker that does not answer for so long is away."""
WAITING_SAID_EVERY_S: Final = 10.0
REASON_MAX: Final = 250
"""Characters of a reason that the log keeps."""
FIRST_PROBES_S: Final = 0.5
"""A child that was not healthy yet is asked at least so often: it is waited for."""
UNHEALTHY_SAID_EVERY_S: Final = 30.0
ORDERS_EVERY_S: Final = 1.0
"""So often a drained worker looks whether it has to be."""
ANSWER_S: Final = 0.5
"""Left for the answer of who waits for the routers."""
SAY_S_MAX: Final = 2.0
"""So long the last status may take before the farewell; else it goes unsaid."""

_log = get_logger("sidecar")


class Sidecar:
    """Runs one child as one worker, from the claim of its ports to their release.

    `run` may be called once, in the main thread of a process that has no other
    children.
    """

    def __init__(self, plane: Plane, plan: Plan, *, require_broker: bool) -> None:
        """Prepare. Raises `InvalidIdentityError` or `SettingsError` for the spec.

        Without a broker it waits for one, unless ``require_broker``.
        """
        self._plane, self._plan = plane, plan
        self._require_broker = require_broker
        self._worker = plane.worker(plan.spec, ports=plan.ports)
        plan.check_urls(
            namespace=self._worker.namespace, worker_id=self._worker.worker_id
        )
        self._core: Final = SidecarCore(plan.limits, plan.command[0])
        self._child: Final = Child()
        self._over: asyncio.Future[Leave] | None = None
        self._tasks: asyncio.TaskGroup | None = None
        self._saying: set[asyncio.Task[None]] = set()
        self._news: Final = asyncio.Event()
        self._orders: Final = asyncio.Event()

    async def run(self) -> int:
        """Run the child to its end; its exit code.

        Raises what ended it instead: `ChildNotStartedError`, `ChildNotHealthyError`,
        whatever prevented the registration or ended the worker for good.
        """
        loop = asyncio.get_running_loop()
        self._over = loop.create_future()
        heard = [n for n in PASSED_ON if signal.getsignal(n) is not signal.SIG_IGN]
        for number in heard:
            loop.add_signal_handler(number, self._feed, Signalled(number))
        work = asyncio.create_task(self._work())
        try:
            either: tuple[asyncio.Future[Any], ...] = (work, self._over)
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if work.done():
                work.result()  # it only ends by an error of ours
            if self._saying:
                await asyncio.wait(self._saying, timeout=SAY_S_MAX)
        finally:
            work.cancel()
            await asyncio.wait({work})
            await self._leave()
        leave = self._over.result()
        if leave.error is not None:
            raise leave.error
        return leave.code

    async def _leave(self) -> None:
        """Release the ports when nobody uses them any more."""
        if self._child.running:  # an error of ours: nobody else would end it
            self._child.kill_kin()
            await self._child.ended()
        await self._worker.stop()

    async def _work(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            tasks.create_task(self._keep_time())
            tasks.create_task(self._register())

    # ---- the core's hands ------------------------------------------------------
    def _feed(self, given: Input) -> None:
        before = self._core.phase
        for effect in self._core.step(given, _now()):
            self._perform(effect)
        if self._core.phase is not before:
            _log.debug("sidecar moved on", phase=self._core.phase.value)
        self._news.set()

    def _perform(self, effect: Effect) -> None:
        match effect:
            case StartChild():
                self._start_child()
            case SignalChild(number=number):
                _log.info("signal sent to child", signal=_name(number))
                self._child.signal(number)
            case KillKin():
                _log.warning("child killed, with all that it started")
                self._child.kill_kin()
            case EndKin(within_s=within_s):
                self._spawn(self._end_kin(within_s))
            case SetStatus(status=status, reason=reason):
                self._say(self._set_status(status, reason))
            case Drain():
                self._spawn(self._drain(effect))
            case ReportLoad(load=load):
                self._worker.report_load(
                    kv_usage=load.kv_usage, running=load.running, waiting=load.waiting
                )
            case Leave() if self._over is not None and not self._over.done():
                self._over.set_result(effect)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        assert self._tasks is not None  # noqa: S101 - effects come while it works
        self._tasks.create_task(work)

    def _say(self, work: Coroutine[Any, Any, None]) -> None:
        """As `_spawn`; the farewell waits for it."""
        assert self._tasks is not None  # noqa: S101 - as there
        task = self._tasks.create_task(work)
        self._saying.add(task)
        task.add_done_callback(self._saying.discard)

    async def _keep_time(self) -> None:
        while True:
            wake_at = self._core.wake_at
            timeout = None if wake_at is None else max(0.0, wake_at - _now())
            try:
                async with asyncio.timeout(timeout):
                    await self._news.wait()
            except TimeoutError:
                self._feed(TimePassed())
            self._news.clear()

    # ---- the worker ------------------------------------------------------------
    async def _register(self) -> None:
        """Claim the ports and register, however long the broker is away."""
        try:
            await self._registered()
        except ControlPlaneError as error:
            self._feed(Lost(error))
            return
        self._spawn(self._watch_notices())
        self._spawn(self._watch_orders())
        self._spawn(self._watch_lost())
        self._feed(Registered())

    async def _registered(self) -> None:
        said_at = -WAITING_SAID_EVERY_S
        while True:
            try:
                await self._plane.broker.wait_connected(CONNECT_S)
                await self._worker.start()
            except StreamMissingError:
                raise
            except (LogUnavailableError, AppendOutcomeUnknownError) as error:
                if self._require_broker:
                    raise
                if _now() - said_at >= WAITING_SAID_EVERY_S:
                    said_at = _now()
                    _log.warning("waiting for the broker", reason=str(error))
            else:
                return

    async def _watch_notices(self) -> None:
        async for notice in self._worker.notices():
            if notice.kind == "drain_requested":
                self._feed(DrainAsked(notice.reason))
                self._orders.set()
            elif notice.kind == "quarantined":
                _log.warning("no router picks this worker", reason=notice.reason)

    async def _watch_orders(self) -> None:
        """Look whether the order still stands; nobody tells when it does not."""
        worker = self._worker
        subject = setting_subject("hold", worker.namespace, worker.worker_id)
        while True:
            await self._orders.wait()
            self._orders.clear()
            while self._core.obeys_order:
                await asyncio.sleep(ORDERS_EVERY_S)
                try:
                    record = await self._plane.log.last(subject)
                except ControlPlaneError:
                    continue  # no broker: it stands as long as nobody knows better
                match record.event if record is not None else None:
                    case WorkerResumed() | WorkerHeld(drain=False):
                        self._feed(DrainTakenBack())

    async def _watch_lost(self) -> None:
        error = await self._worker.wait_lost()
        _log.error("worker lost for good, ending the child", reason=str(error))
        self._feed(Lost(error))

    async def _set_status(self, status: Status, reason: str) -> None:
        _log.info("worker status", status=status.value, reason=reason)
        try:
            await self._worker.set_status(status, reason[:REASON_MAX])
        except (LogUnavailableError, AppendOutcomeUnknownError) as error:
            # It is wanted now, and said as soon as the log is back.
            _log.warning("status not said yet", status=status.value, reason=str(error))
        except ControlPlaneError:
            return  # the worker is over: whoever waits for that says so

    async def _drain(self, drain: Drain) -> None:
        """Have every router know, as far as they can be told in time."""
        reason, within_s = drain.reason, drain.within_s
        _log.info("worker status", status=Status.DRAINING.value, reason=reason)
        until = _now() + within_s
        try:
            async with asyncio.timeout(within_s):
                revision = await self._worker.drain(reason[:REASON_MAX])
                if await self._plane.routers():
                    left_s = max(0.0, until - _now() - ANSWER_S)
                    told = await self._plane.wait(revision, timeout_s=left_s)
                    if not told.reached:
                        _log.warning("routers do not know", missing=told.missing)
        except (ControlPlaneError, TimeoutError) as error:
            said = str(error) or "no answer in time"
            _log.warning("routers may not know", reason=said)
        self._feed(RoutersTold(drain.drain))

    # ---- the child -------------------------------------------------------------
    def _start_child(self) -> None:
        worker = self._worker
        facts = {
            "host": worker.ports[HTTP].host,
            "model": self._plan.spec.model,
            "namespace": worker.namespace,
            "worker_id": worker.worker_id,
        }
        engine = self._plan.at(worker.ports, facts)
        environ = child_environment(os.environ, worker.ports, worker.worker_id)
        try:
            self._child.start(engine.command, environ)
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            self._feed(ChildNotStarted(reason))
            return
        starts = {name: block.start for name, block in worker.ports.items()}
        name = engine.command[0]
        _log.info("child started", pid=self._child.pid, command=name, ports=starts)
        # Arguments may hold what is no matter of a log.
        _log.debug("child's arguments", arguments=engine.command[1:])
        self._feed(ChildStarted())
        self._spawn(self._await_end())
        self._spawn(self._probe(engine.health, worker.ports[HTTP]))
        if engine.metrics is not None:
            self._spawn(self._scrape(engine.metrics))
        if engine.adapters is not None:
            self._spawn(self._watch_adapters(engine.adapters))

    async def _await_end(self) -> None:
        code = await self._child.ended()
        say = _log.info if self._core.phase is Phase.STOPPING else _log.error
        known = (
            {} if self._core.was_healthy else {"last_health": self._core.last_answer}
        )
        say("child ended", how=describe_end(code), **known)
        self._feed(ChildEnded(code))

    async def _end_kin(self, within_s: float) -> None:
        await self._child.end_kin(within_s)
        self._feed(KinGone())

    async def _probe(self, health: str, http: PortBlock) -> None:
        """Ask for the child's health for as long as it runs."""
        plan, said_at = self._plan, _now()
        while self._child.running:
            answered = await probed(health, http, plan.probe_timeout_s)
            self._feed(answered)
            pause_s = plan.health_interval_s
            if not self._core.was_healthy:
                pause_s = min(pause_s, FIRST_PROBES_S)
                if _now() - said_at >= UNHEALTHY_SAID_EVERY_S:
                    said_at = _now()
                    _log.info("child not healthy yet", answer=answered.said)
            await asyncio.sleep(pause_s)

    async def _scrape(self, url: str) -> None:
        """Read the child's metrics for as long as it runs."""
        plan, silent = self._plan, self._plan.metrics_guessed
        while self._child.running:
            asked_at, problem = _now(), ""
            try:
                load = await scraped(url, plan.probe_timeout_s)
            except (OSError, ValueError) as error:
                problem = str(error) or "no answer in time"
            else:
                self._feed(Loaded(load, asked_at))
            if problem and not silent and self._core.was_healthy:
                silent = True  # it is said once
                _log.warning("metrics not read", url=url, reason=problem)
            await asyncio.sleep(plan.metrics_interval_s)

    async def _watch_adapters(self, url: str) -> None:
        """Say which adapters the child lists, for as long as it runs."""
        plan = self._plan
        watch = AdapterWatch(self._worker, url, declared=plan.spec.adapters)
        while self._child.running:
            try:
                await watch.look(plan.probe_timeout_s)
            except (OSError, ValueError) as error:
                _log.debug("adapters not listed", url=url, reason=str(error))
            await asyncio.sleep(plan.health_interval_s)


def _name(number: int) -> str:
    return signal.Signals(number).name


def _now() -> float:
    return asyncio.get_running_loop().time()
