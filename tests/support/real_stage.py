"""The real stage: nats-server, processes behind proxies of their own, and signals."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import signal
import sys
import tempfile
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Self, TypeVar

from controlplane.broker.jetstream import JetStreamBroker
from controlplane.clock import SystemClock
from controlplane.errors import LogUnavailableError
from controlplane.eventlog import EventLog
from controlplane.playback import replay_log
from controlplane.server import EmbeddedServer
from controlplane.settings import Settings
from controlplane.topology import init
from controlplane.viewfeed import ViewFeed
from events import Record
from projections import PlaneState
from tests.support.nats_proxy import NatsProxy
from tests.support.processes import Processes, stop_process
from tests.support.real_actors import (
    Actor,
    ProjectorActor,
    RouterActor,
    WorkerActor,
)
from tests.support.servers import StoreMark, consumers_of, raw_client, unique
from tests.support.stage import PATIENCE_S, Scenario, StreamKind, settings_of, spec_of
from tests.support.waiting import eventually

T = TypeVar("T")

POLL_S = 0.01


class RealBroker:
    """See `StagedBroker`."""

    def __init__(self, server: EmbeddedServer, stage: RealStage) -> None:
        self._server, self._stage = server, stage
        self._mark: StoreMark | None = None

    async def restart(self) -> None:
        await self.kill()
        await self.start()

    async def kill(self) -> None:
        await self._server.kill()

    async def start(self) -> None:
        await self._server.start()

    async def freeze(self) -> None:
        assert self._server.pid is not None
        stop_process(self._server.pid)

    async def thaw(self) -> None:
        assert self._server.pid is not None
        os.kill(self._server.pid, signal.SIGCONT)

    async def mark(self) -> None:
        self._mark = await StoreMark(self._server).take()

    async def roll_back(self, stream: StreamKind | None = None) -> None:
        assert self._mark is not None
        await self._mark.roll_back(None if stream is None else self._name(stream))

    async def delete_log(self) -> None:
        await self._stage.client.delete_stream(self._name("log"))

    async def create_log(self) -> None:
        await init(self._stage.client, self._stage.cell, self._stage.settings)

    async def drop_consumers(self) -> None:
        async with raw_client(self._server.url) as call:
            for stream in (self._name("log"), self._name("view")):
                for name in await consumers_of(self._server.url, stream):
                    await call(f"CONSUMER.DELETE.{stream}.{name}")

    async def trim_view(self, keep: int) -> None:
        view = await self._stage.feed.state()
        first_kept = view.last_sequence - keep + 1
        await self._stage.client.purge_stream(self._name("view"), up_to=first_kept)

    def _name(self, stream: StreamKind) -> str:
        names = self._stage.log.names
        return names.log_stream if stream == "log" else names.view_stream


class RealStage:
    """See `Stage`. Processes are processes; each has a proxy before the server."""

    def __init__(self, settings: Settings, seed: int) -> None:
        self.settings, self.seed = settings, seed
        self.cell = unique("stage")
        self.chance = random.Random(seed)
        self.clock = SystemClock()
        self._processes = Processes()
        self._actors: dict[str, Actor] = {}
        self._open = AsyncExitStack()
        self._server = EmbeddedServer()
        self._checkpoints = Path(tempfile.mkdtemp(prefix="checkpoints-"))

    # ---- set and struck --------------------------------------------------------
    async def __aenter__(self) -> Self:
        await self._open.enter_async_context(self._server)
        self.client = JetStreamBroker(
            self._server.url,
            name=self.cell,
            connect_timeout_s=self.settings.connect_timeout_s,
        )
        await self.client.start()
        self._open.push_async_callback(self.client.stop)
        await self.client.wait_connected(PATIENCE_S)
        await init(self.client, self.cell, self.settings)
        self.log = EventLog(self.client, self.cell, self.settings)
        self.feed = ViewFeed(self.client, self.cell)
        self.broker = RealBroker(self._server, self)
        return self

    async def __aexit__(self, *_: object) -> None:
        for actor in self._actors.values():
            await actor.clean_up()
        self._processes.clean_up()
        await self._open.aclose()
        shutil.rmtree(self._checkpoints)

    def check(self) -> None:
        """Nobody ended who was not ended."""
        for actor in self._actors.values():
            assert not actor.ended_by_itself, f"{actor.name} ended:\n{actor.said}"

    @property
    def said(self) -> str:
        """What every process wrote: for whoever reads a failure."""
        return "\n".join(f"--- {a.name}\n{a.said}" for a in self._actors.values())

    # ---- time ------------------------------------------------------------------
    def count(self, *, real: int, simulated: int) -> int:
        del simulated
        return real

    async def until(
        self,
        condition: Callable[[], T | Awaitable[T]],
        within_s: float = PATIENCE_S,
    ) -> T:
        absent = (LogUnavailableError,)
        return await eventually(condition, within_s, but_for=absent, poll_s=POLL_S)

    async def lapse(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    # ---- processes -------------------------------------------------------------
    def projector(self, name: str) -> ProjectorActor:
        return self._cast(ProjectorActor(*self._means(name)))

    def worker(self, name: str, **spec: Any) -> WorkerActor:
        return self._cast(WorkerActor(*self._means(name), spec=spec_of(name, spec)))

    def router(
        self,
        name: str,
        *,
        checkpoint: bool = False,
        reader_blocks_s: float = 0.0,
        live_max: int | None = None,
    ) -> RouterActor:
        path = str(self._checkpoints / name) if checkpoint else ""
        return self._cast(
            RouterActor(
                *self._means(name),
                checkpoint=path,
                reader_blocks_s=reader_blocks_s,
                live_max=live_max,
            )
        )

    def _means(self, name: str) -> tuple[str, str, Settings, Processes, NatsProxy]:
        assert name not in self._actors, f"there is a {name} already"
        proxy = NatsProxy(self._server.port)
        return name, self.cell, self.settings, self._processes, proxy

    def _cast(self, actor: T) -> T:
        assert isinstance(actor, Actor)
        self._actors[actor.name] = actor
        return actor

    # ---- the log ---------------------------------------------------------------
    async def records(self) -> list[Record]:
        return [record async for record in self.log.read()]

    async def replay(self) -> PlaneState:
        return await replay_log(self.log)


class RealWorld:
    """Plays scenarios with everything that is real."""

    name = "real"
    seed = 7

    def run(self, scenario: Scenario, **settings: float) -> None:
        asyncio.run(self._run(scenario, settings_of(settings)))

    async def _run(self, scenario: Scenario, settings: Settings) -> None:
        async with RealStage(settings, self.seed) as stage:
            try:
                await scenario(stage)
                stage.check()
            except BaseException:
                sys.stdout.write(f"seed {stage.seed}\n{stage.said}\n")
                raise
