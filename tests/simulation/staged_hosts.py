"""The machines of the simulated stage: those of any run, which tell the scenario more.

What a process tells reaches its machine, and outlives it. Nothing here starts again by
itself: a scenario starts what it wants started.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from prometheus_client import CollectorRegistry

from controlplane.broker import Outgoing, Stored
from controlplane.broker.memory_answers import MemoryAnswers
from controlplane.projector.service import ProjectorService
from controlplane.router.client import RouterView
from controlplane.runtime import StoppedError
from controlplane.telemetry import RouterMetrics
from controlplane.topology import Names
from controlplane.viewfeed import ViewFeed
from controlplane.worker import WorkerHandle, WorkerSpec
from events import ControlPlaneError, Incarnation
from projections import Change
from tests.support.stage import (
    CommandError,
    Heard,
    Place,
    RouterNow,
    heard,
    router_now,
)

from .broker import SimBroker
from .hosts import CELL, Host, ProjectorHost, RouterHost
from .loop import Process
from .workers import LoopBeats, WorkerHost

if TYPE_CHECKING:
    from .world import World

T = TypeVar("T")
TELL_EVERY_S = 0.1
NAMES = Names(CELL)


# ---- connections that lose answers -------------------------------------------------
class Losses(msgspec.Struct):
    """Answers to appends to the log that a machine's network is to lose."""

    left: int = 0
    breaking: bool = False
    lost: int = 0


class AnswerLostError(Exception):
    """It was stored, and the answer is not sent."""


class LossyAnswers(MemoryAnswers):
    """What the server answers, of which some is lost on the way."""

    losses: Losses

    def store(self, name: str, messages: Sequence[Outgoing]) -> Stored:
        stored = super().store(name, messages)
        if name == NAMES.log_stream and self.losses.left:
            self.losses.left -= 1
            self.losses.lost += 1
            raise AnswerLostError
        return stored


class LossyBroker(SimBroker):
    """A connection of a staged process."""

    def lose(self, losses: Losses) -> None:
        """Lose answers as ``losses`` says from now on."""
        self._losses = losses
        self._answers = LossyAnswers(self._server, self.url)
        self._answers.losses = losses

    def _answer(self, ask: Callable[[], T], future: asyncio.Future[T]) -> None:
        try:
            super()._answer(ask, future)
        except AnswerLostError:
            if self._losses.breaking:
                self.broken(landing=1.0)
            elif future in self._pending:
                self._arm(future, self._pending[future])


# ---- machines ----------------------------------------------------------------------
class StagedHost(Host):
    """A machine of the stage."""

    kind_of_broker = LossyBroker

    def __init__(self, world: World, name: str, **options: Any) -> None:
        super().__init__(world, name, **options)
        self.losses = Losses()
        self._asked: list[asyncio.Future[Any]] = []
        self._begun: asyncio.Future[None] | None = None

    def broker(self, label: str, *, mailbox_limit: int | None = None) -> LossyBroker:
        broker = super().broker(label, mailbox_limit=mailbox_limit)
        broker.lose(self.losses)
        return broker

    async def main(self) -> None:
        try:
            await self.play()
        except StoppedError:  # it was told to stop before it had begun
            if self.wanted:
                raise

    async def play(self) -> None:
        """What the process does."""
        raise NotImplementedError

    # ---- what the scenario asks of the process ---------------------------------
    async def begin(self) -> None:
        """Start the process; return when it says that it has begun."""
        assert not self.alive, f"{self.name} runs already"
        self._begun = asyncio.get_running_loop().create_future()
        self._asked.append(self._begun)
        self.wanted = True
        self.start()
        await self._begun

    def has_begun(self, error: ControlPlaneError | None = None) -> None:
        """The process is as its kind promises, or was refused."""
        if self._begun is None or self._begun.done():
            return
        if error is None:
            self._begun.set_result(None)
        else:
            self._begun.set_exception(_command_error(error))

    async def ask(self, do: Callable[[], Awaitable[T]]) -> T:
        """Have the process do it; what came of it."""
        assert self.process is not None
        assert self.alive, f"{self.name} does not run"
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._asked.append(answer)
        self.process.spawn(_carry_out(do, answer))
        return await answer

    def gone(self) -> None:
        """Nobody will answer any more."""
        asked, self._asked = self._asked, []
        for answer in asked:
            if not answer.done():
                answer.set_exception(CommandError("Ended", f"{self.name} has ended"))

    def ended(self) -> None:
        super().ended()
        self.gone()


async def _carry_out(do: Callable[[], Awaitable[T]], answer: asyncio.Future[T]) -> None:
    try:
        value = await do()
    except TimeoutError as error:
        _refuse(answer, error)
    except ControlPlaneError as error:
        _refuse(answer, _command_error(error))
    else:
        if not answer.done():
            answer.set_result(value)


def _refuse(answer: asyncio.Future[Any], error: Exception) -> None:
    if not answer.done():
        answer.set_exception(error)


def _command_error(error: Exception) -> CommandError:
    return CommandError(type(error).__name__, str(error))


class StagedProjectorHost(StagedHost, ProjectorHost):
    """A projector; it ends with an error instead of beginning anew."""

    async def play(self) -> None:
        self.has_begun()
        broker = self.broker("projector")
        await broker.start()
        self.service = ProjectorService(
            broker=broker,
            log=self.log(broker),
            feed=ViewFeed(broker, CELL),
            settings=self.world.settings,
            clock=self.clock,
            name=self.name,
        )
        await self.service.start()
        self.say("started")
        await self.service.join()


class StagedRouterHost(StagedHost, RouterHost):
    """A router; it tells where it stands, and what its reader of changes gets."""

    def __init__(
        self,
        world: World,
        name: str,
        *,
        checkpoint: Path | None,
        reader_blocks_s: float,
        live_max: int | None,
    ) -> None:
        super().__init__(world, name, checkpoint=checkpoint, mailbox_limit=live_max)
        self._blocks_s = reader_blocks_s
        self._stopped, self._blocked_until = False, 0.0
        self.places: list[Place] = []
        self.sources: list[str] = []
        self.heard: list[Heard] = []
        self.now = RouterNow()

    def build(self) -> None:
        super().build()
        self.now = RouterNow()
        self._stopped, self._blocked_until = False, 0.0

    async def play(self) -> None:
        broker = self.broker("router", mailbox_limit=self._limit)
        await broker.start()
        metrics = RouterMetrics(CollectorRegistry())
        view = self.view = RouterView(
            broker=broker,
            log=self.log(broker),
            feed=ViewFeed(broker, CELL),
            settings=self.world.settings,
            clock=self.clock,
            name=self.name,
            checkpoint=self._checkpoint,
            metrics=metrics,
        )
        await view.start()
        assert self.process is not None
        self.process.spawn(self._tell_places(view, metrics))
        async for change in view.changes():
            await self._told(change)
        if view.failure is not None:
            raise view.failure

    async def _tell_places(self, view: RouterView, metrics: RouterMetrics) -> None:
        while not view._over:
            moved = view._movement.next
            self._note(router_now(view, metrics))
            self.has_begun()
            with suppress(TimeoutError):
                async with asyncio.timeout(TELL_EVERY_S):
                    await moved.wait()

    def _note(self, now: RouterNow) -> None:
        self.now = now
        if self.sources[-1:] != [now.source]:
            self.sources.append(now.source)
        if now.epoch is None:
            return
        place = Place(now.epoch, now.revision, now.digest)
        if not self.places or self.places[-1] != place:
            self.places.append(place)

    async def _told(self, change: Change) -> None:
        with self.world.checking():
            self.order.look(change, self.loop.time())
        self.heard.append(heard(change))
        if self._blocks_s:
            await self._hold_up()

    async def _hold_up(self) -> None:
        """A callback that holds its process: nothing else of it runs meanwhile."""
        process = self.process
        assert process is not None
        process.freeze()
        self._blocked_until = self.loop.time() + self._blocks_s
        of_nobody = self.world.server.context
        at = self._blocked_until
        self.loop.call_at(at, self._go_on, process, context=of_nobody)
        await asyncio.sleep(0)

    def signalled(self, *, stop: bool) -> None:
        """SIGSTOP or SIGCONT: neither makes its callback any shorter."""
        assert self.process is not None
        self._stopped = stop
        self.process.freeze()
        self._go_on(self.process)

    def _go_on(self, process: Process) -> None:
        if not self._stopped and self.loop.time() >= self._blocked_until:
            process.thaw()


class StagedWorkerHost(StagedHost, WorkerHost):
    """A worker; it lives on without a life when that was lost for good."""

    def __init__(self, world: World, name: str, told: WorkerSpec) -> None:
        super().__init__(world, name)
        self._told = told
        self.notices: list[str] = []
        self.lost: str | None = None
        self.incarnation: Incarnation = ""

    @property
    def spec(self) -> WorkerSpec:
        return self._told

    async def play(self) -> None:
        broker = self.broker("worker")
        await broker.start()
        beats: Any = LoopBeats(self)
        handle = self.handle = WorkerHandle(
            self.spec,
            log=self.log(broker),
            broker=broker,
            beats=beats,
            settings=self.world.settings,
            clock=self.clock,
            by=self.name,
            environ={},
        )
        try:
            await handle.start()
        except ControlPlaneError as error:
            self.has_begun(error)
            return
        self.look()
        self.has_begun()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._tell_notices(handle))
            tasks.create_task(self._tell_lost(handle))

    async def _tell_notices(self, handle: WorkerHandle) -> None:
        async for notice in handle.notices():
            self.notices.append(notice.kind)

    async def _tell_lost(self, handle: WorkerHandle) -> None:
        self.lost = type(await handle.wait_lost()).__name__

    def build(self) -> None:
        super().build()
        self.lost = None

    def look(self) -> None:
        """Called after everything that the process does: who it is now."""
        handle = self.handle
        if handle is not None and handle.revision:
            self.incarnation = handle.incarnation

    async def stop(self) -> None:
        """A clean stop: SIGTERM."""
        if self.handle is not None:
            await self.handle.stop()
        self.say("stopped")
        self.ended()
