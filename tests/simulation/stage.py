"""The simulated stage: the scenarios of the real one, in one loop and virtual time.

See `tests.support.stage` for what a scenario may rely on. The processes are those of
any simulated run, and whoever watches such a run watches here too: a scenario fails as
well by a violation of what must always hold.
"""

from __future__ import annotations

import asyncio
import random
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from controlplane import topology
from controlplane.errors import LogUnavailableError
from controlplane.playback import replay_log
from controlplane.settings import Settings
from controlplane.viewfeed import ViewFeed
from controlplane.worker import WorkerSpec
from events import Record
from projections import PlaneState
from tests.support.stage import PATIENCE_S, Scenario, StreamKind, settings_of, spec_of
from tests.support.waiting import eventually

from .columns import fitted
from .hosts import CELL
from .plan import Plan
from .running import collected_afterwards
from .server import NODES
from .staged_actors import SimActor, SimProjector, SimRouter, SimWorker
from .staged_hosts import (
    NAMES,
    StagedHost,
    StagedProjectorHost,
    StagedRouterHost,
    StagedWorkerHost,
)
from .world import World, folder_of_a_run

T = TypeVar("T")

SEED = 7
POLL_S = 0.01
DOWN_S = 0.05
"""So long it takes to start a server."""
END_S = 600.0
"""A scenario that has not ended by then never will."""
SHOWN_MAX = 400
"""So many lines of the trace are shown when a scenario fails."""


class SimStagedBroker:
    """See `StagedBroker`."""

    def __init__(self, host: StageHost) -> None:
        self._host, self._server = host, host.world.server
        self._mark: dict[str, dict[str, Any]] = {}

    async def restart(self) -> None:
        await self.kill()
        await self.start()

    async def kill(self) -> None:
        self._server.crash(landing=0.5)
        await asyncio.sleep(DOWN_S)

    async def start(self) -> None:
        self._server.come_back()

    async def freeze(self) -> None:
        self._server.stall(NODES)

    async def thaw(self) -> None:
        self._server.resume(NODES)

    async def mark(self) -> None:
        self._mark = self._server.mark()

    async def roll_back(self, stream: StreamKind | None = None) -> None:
        assert self._mark
        await self.kill()
        names = list(self._mark) if stream is None else [_name(stream)]
        self._server.return_to({name: self._mark[name] for name in names})
        await self.start()

    async def delete_log(self) -> None:
        self._server.delete(NAMES.log_stream)

    async def create_log(self) -> None:
        await topology.init(self._host.connection, CELL, self._host.world.settings)

    async def drop_consumers(self) -> None:
        for stream in (NAMES.log_stream, NAMES.view_stream):
            self._server.drop_consumers(stream)

    async def trim_view(self, keep: int) -> None:
        view = self._server.held(NAMES.view_stream)
        assert view is not None
        view.trim_to(view.last_sequence - keep + 1)


def _name(stream: StreamKind) -> str:
    return NAMES.log_stream if stream == "log" else NAMES.view_stream


class StageHost(StagedHost):
    """The machine on which the scenario runs. Nothing ever happens to it."""

    error: BaseException | None = None
    over = False

    async def play(self) -> None:
        self.connection = self.broker("stage")
        await self.connection.start()
        await self.connection.wait_connected(PATIENCE_S)
        await topology.init(self.connection, CELL, self.world.settings)
        stage = SimStage(self)
        await self.world.scenario(stage)
        stage.check()

    async def _guarded(self) -> None:
        try:
            await self.main()
        except BaseException as error:  # noqa: BLE001 - the scenario's, raised later
            self.error = error
        finally:
            self.over = True
            self.loop.halt()


class SimStage:
    """See `Stage`."""

    def __init__(self, host: StageHost) -> None:
        self._world: StagedWorld = host.world
        self.settings, self.clock = host.world.settings, host.clock
        self.chance = random.Random(SEED)
        self.log = host.log(host.connection)
        self.feed = ViewFeed(host.connection, CELL)
        self.broker = SimStagedBroker(host)
        self._actors: dict[str, SimActor[Any]] = {}

    def check(self) -> None:
        """Nobody ended who was not ended."""
        for actor in self._actors.values():
            assert not actor.ended_by_itself, f"{actor.name} ended"

    # ---- time ------------------------------------------------------------------
    def count(self, *, real: int, simulated: int) -> int:
        del real
        return simulated

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
    def projector(self, name: str) -> SimProjector:
        return self._cast(SimProjector(StagedProjectorHost(self._world, name)))

    def worker(self, name: str, **spec: Any) -> SimWorker:
        is_to_be = msgspec.convert(spec_of(name, spec), WorkerSpec)
        return self._cast(SimWorker(StagedWorkerHost(self._world, name, is_to_be)))

    def router(
        self,
        name: str,
        *,
        checkpoint: bool = False,
        reader_blocks_s: float = 0.0,
        live_max: int | None = None,
    ) -> SimRouter:
        host = StagedRouterHost(
            self._world,
            name,
            checkpoint=self._world.folder / name if checkpoint else None,
            reader_blocks_s=reader_blocks_s,
            live_max=live_max,
        )
        return self._cast(SimRouter(host))

    def _cast(self, actor: T) -> T:
        assert isinstance(actor, SimActor)
        assert actor.name not in self._actors, f"there is a {actor.name} already"
        self._actors[actor.name] = self._world.add(actor)
        return actor

    # ---- the log ---------------------------------------------------------------
    async def records(self) -> list[Record]:
        return [record async for record in self.log.read()]

    async def replay(self) -> PlaneState:
        return await replay_log(self.log)


class StagedWorld(World):
    """A world that has a scenario in the place of a plan."""

    def __init__(
        self, scenario: Scenario, settings: Settings, folder: Path, *, trace: bool
    ) -> None:
        self.scenario, self.folder = scenario, folder
        nothing = Plan(seed=SEED, steps=(), faults_end_s=END_S, end_s=END_S)
        super().__init__(nothing, folder, trace=trace, settings=settings)

    def _cast(self, folder: Path) -> StageHost:
        del folder
        return self._add(StageHost(self, "stage"))

    def add(self, actor: SimActor[Any]) -> SimActor[Any]:
        self._add(actor.host)
        return actor

    def _begin(self) -> None:
        self.operator.wanted = True
        self.loop.call_at(0.0, self.operator.start)

    def _finish(self) -> None:
        """What must hold of a plan's end need not of a scenario's: it says that."""
        host: StageHost = self.operator
        if host.error is not None:
            raise host.error
        assert host.over, f"the scenario did not end within {END_S} s"


class SimWorld:
    """Plays scenarios in virtual time."""

    name = "simulated"
    trace_digest = ""
    """Of all that happened in the last play."""

    def run(self, scenario: Scenario, **settings: float) -> None:
        wanted = settings_of(settings)
        try:
            with collected_afterwards():
                self._play(scenario, wanted)
        except BaseException:
            self._show(scenario, wanted)
            raise

    def _play(
        self, scenario: Scenario, settings: Settings, kept: list[str] | None = None
    ) -> None:
        """Play it; ``kept`` gets the lines of the trace."""
        is_kept = kept is not None
        with folder_of_a_run() as folder:
            world = StagedWorld(scenario, settings, folder, trace=is_kept)
            if kept is not None:
                world.trace.kept = kept
            with world.trace.listening():
                world.run()
        self.trace_digest = world.trace.digest

    def _show(self, scenario: Scenario, settings: Settings) -> None:
        """Play it again, which goes the same way, and show how it ended."""
        kept: list[str] = []
        try:
            with collected_afterwards():
                self._play(scenario, settings, kept)
        except BaseException:  # noqa: BLE001 - the same as before
            shown = [piece for line in kept[-SHOWN_MAX:] for piece in fitted(line)]
            sys.stdout.write("\n".join([f"seed {SEED}", *shown, ""]))
