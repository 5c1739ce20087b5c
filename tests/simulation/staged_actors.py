"""The processes of the simulated stage, as scenarios hold them: see `stage`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Generic, TypeVar

from events import Incarnation, Revision
from projections import Fleet
from tests.support.stage import PATIENCE_S, Heard, Place, RouterNow

from .broker import SimBroker
from .staged_hosts import (
    StagedHost,
    StagedProjectorHost,
    StagedRouterHost,
    StagedWorkerHost,
)

H = TypeVar("H", bound=StagedHost)


class SimLink:
    """A machine's network, by the names that scenarios know."""

    def __init__(self, host: StagedHost) -> None:
        self._host = host
        self._through_black: list[SimBroker] = []

    def black_hole(self) -> None:
        host = self._host
        host.black = True
        host.troubled()
        self._through_black = list(host.brokers)
        for broker in host.brokers:
            broker.black = True
            broker.silent()

    def cut(self) -> None:
        host = self._host
        host.cut = True
        host.troubled()
        for broker in host.brokers:
            broker.cut = True
            broker.broken(landing=0.5)

    def heal(self) -> None:
        host = self._host
        host.troubled()
        was_black, host.black, host.cut = host.black, False, False
        for broker in dict.fromkeys([*self._through_black, *host.brokers]):
            broker.black = broker.cut = False
            if was_black:
                broker.flush()
            broker.may_connect()
        self._through_black = []

    def lose_answers(self, count: int = 1, *, breaking: bool = False) -> None:
        losses = self._host.losses
        losses.left += count
        losses.breaking = breaking

    @property
    def answers_lost(self) -> int:
        return self._host.losses.lost


class SimActor(Generic[H]):
    """One process; `start` as often as it ended."""

    def __init__(self, host: H) -> None:
        self.name = host.name
        self.host = host
        self.link = SimLink(host)

    async def start(self) -> None:
        await self.host.begin()

    async def kill(self) -> None:
        self.host.wanted = False
        self._process.kill()

    async def freeze(self) -> None:
        self._process.freeze()

    async def thaw(self) -> None:
        self.host.frozen_until = self.host.loop.time()
        self._process.thaw()

    async def stop(self) -> None:
        self.host.wanted = False
        await self._process.spawn(self.host.stop())

    @property
    def running(self) -> bool:
        return self.host.alive

    @property
    def _process(self) -> Any:
        assert self.host.alive, f"{self.name} does not run"
        return self.host.process

    @property
    def ended_by_itself(self) -> bool:
        """Whether it ended and nobody ended it."""
        return self.host.wanted and not self.running


class SimProjector(SimActor[StagedProjectorHost]):
    """A projector's process."""


class SimWorker(SimActor[StagedWorkerHost]):
    """A worker's process. See `StagedWorker`."""

    @property
    def notices(self) -> Sequence[str]:
        return self.host.notices

    @property
    def lost(self) -> str | None:
        return self.host.lost

    @property
    def incarnation(self) -> Incarnation:
        return self.host.incarnation

    async def say(self, verb: str, **values: Any) -> Revision:
        handle = self.host.handle
        assert handle is not None
        return await self.host.ask(lambda: getattr(handle, verb)(**values))


class SimRouter(SimActor[StagedRouterHost]):
    """A router's process. See `StagedRouter`."""

    async def freeze(self) -> None:
        self.host.signalled(stop=True)

    async def thaw(self) -> None:
        self.host.frozen_until = self.host.loop.time()
        self.host.signalled(stop=False)

    @property
    def places(self) -> Sequence[Place]:
        return self.host.places

    @property
    def sources(self) -> Sequence[str]:
        return self.host.sources

    @property
    def heard(self) -> Sequence[Heard]:
        return self.host.heard

    @property
    def now(self) -> RouterNow:
        return self.host.now

    async def synced(self, timeout_s: float = PATIENCE_S) -> None:
        view = self.host.view
        assert view is not None
        await self.host.ask(lambda: view.synced(timeout_s))

    async def fleet(self) -> Fleet:
        view = self.host.view
        assert view is not None

        async def tell() -> str:
            return view.fleet.to_json()

        return Fleet.from_json(await self.host.ask(tell))
