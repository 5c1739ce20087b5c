"""The processes of the real stage, as scenarios hold them: see `stage`."""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress
from itertools import count
from typing import Any

import msgspec

from controlplane.settings import Settings
from controlplane.topology import Names
from projections import Fleet
from tests.support import staged
from tests.support.nats_proxy import NatsProxy
from tests.support.processes import Process, Processes
from tests.support.stage import (
    PATIENCE_S,
    CommandError,
    Heard,
    Place,
    RouterNow,
)

_TOLD = msgspec.json.Decoder(staged.Told)


class Link:
    """A process's proxy, by the names that scenarios know."""

    def __init__(self, proxy: NatsProxy, log_stream: str) -> None:
        self._proxy, self._log_stream = proxy, log_stream

    def black_hole(self) -> None:
        self._proxy.pause()

    def cut(self) -> None:
        self._proxy.refusing = True
        self._proxy.drop()

    def heal(self) -> None:
        self._proxy.refusing = False
        self._proxy.resume()

    def lose_answers(self, count: int = 1, *, breaking: bool = False) -> None:
        self._proxy.lose_answers(count, self._log_stream, breaking=breaking)

    @property
    def answers_lost(self) -> int:
        return self._proxy.lost


class Actor:
    """One process and the socket that leads it. `start` as often as it ended."""

    kind = ""

    def __init__(
        self,
        name: str,
        cell: str,
        settings: Settings,
        processes: Processes,
        proxy: NatsProxy,
        **order: Any,
    ) -> None:
        self.name = name
        self._cell, self._settings = cell, settings
        self._processes, self._proxy = processes, proxy
        self._order = order
        self.link = Link(proxy, Names(cell).log_stream)
        self._process: Process | None = None
        self._wanted = False
        self._said: list[str] = []
        self._listening: asyncio.Task[None] | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._numbers = count(1)
        self._asked: dict[int, asyncio.Future[Any]] = {}

    # ---- its life --------------------------------------------------------------
    async def start(self) -> None:
        assert not self.running, f"{self.name} runs already"
        if not self._proxy.port:
            await self._proxy.__aenter__()
        self._wanted = True
        await self._spawn()

    async def kill(self) -> None:
        self._wanted = False
        self._process_there.kill()
        await self._ended()

    async def freeze(self) -> None:
        self._process_there.freeze()

    async def thaw(self) -> None:
        self._process_there.thaw()

    async def stop(self) -> None:
        self._wanted = False
        await self._process_there.stop()
        await self._ended()

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.running

    @property
    def _process_there(self) -> Process:
        assert self._process is not None, f"{self.name} was not started"
        return self._process

    @property
    def ended_by_itself(self) -> bool:
        """Whether it ended and nobody ended it."""
        return self._wanted and not self.running

    @property
    def said(self) -> str:
        """What all its lives wrote."""
        now = [self._process.said] if self._process is not None else []
        return "\n".join([*self._said, *now])

    async def clean_up(self) -> None:
        """End it and its proxy."""
        if self.running:
            await self.kill()
        if self._proxy.port:
            await self._proxy.__aexit__(None, None, None)

    async def _ended(self) -> None:
        """Read the last that it told, and keep what it wrote."""
        if self._listening is not None:
            await self._listening
        if self._writer is not None:
            self._writer.close()
            self._writer = None
        self._said.append(self._process_there.said)
        self._process_there.clean_up()
        self._process = None

    # ---- its socket ------------------------------------------------------------
    async def _spawn(self) -> None:
        here, there = socket.socketpair()
        order = staged.Order(
            url=self._proxy.url,
            cell=self._cell,
            name=self.name,
            settings=self._settings,
            **self._order,
        )
        told = msgspec.json.encode(order).decode()
        with there:
            self._process = self._processes.start(
                staged.PROGRAM, self.kind, told, channel=there
            )
        reader, self._writer = await asyncio.open_connection(
            sock=here, limit=staged.LINE_MAX
        )
        self._listening = asyncio.create_task(self._listen(reader))

    async def _listen(self, reader: asyncio.StreamReader) -> None:
        with suppress(ConnectionError):
            while (line := await reader.readline()).endswith(b"\n"):
                told = _TOLD.decode(line)
                if isinstance(told, staged.Answer):
                    self._answered(told)
                else:
                    self.hear(told)
        for future in self._asked.values():
            if not future.done():
                future.set_exception(CommandError("Ended", f"{self.name} has ended"))
        self._asked.clear()

    def _answered(self, answer: staged.Answer) -> None:
        future = self._asked.pop(answer.number, None)
        if future is None or future.done():
            return
        if not answer.error:
            future.set_result(answer.value)
        elif answer.error == "TimeoutError":
            future.set_exception(TimeoutError(answer.text))
        else:
            future.set_exception(CommandError(answer.error, answer.text))

    def hear(self, told: staged.Told) -> None:
        """It told something by itself."""

    async def ask(self, verb: str, **values: Any) -> Any:
        """Have it carry out a command; what came of it."""
        number = next(self._numbers)
        future = self._asked[number] = asyncio.get_running_loop().create_future()
        assert self._writer is not None, f"{self.name} does not run"
        command = staged.Command(number=number, verb=verb, values=values)
        self._writer.write(msgspec.json.encode(command) + b"\n")
        return await future


class ProjectorActor(Actor):
    """A projector's process. It is led by signals only."""

    async def _spawn(self) -> None:
        self._process = self._processes.projector(
            self._proxy.url, self._cell, self.name, self._settings
        )


class WorkerActor(Actor):
    """A worker's process. See `StagedWorker`."""

    kind = "worker"

    def __init__(self, *means: Any, spec: dict[str, Any]) -> None:
        super().__init__(*means, spec=spec)
        self.notices: list[str] = []
        self.lost: str | None = None
        self.incarnation = ""

    async def start(self) -> None:
        self.lost = None
        await super().start()
        self.incarnation = await self.ask("enter")

    async def say(self, verb: str, **values: Any) -> int:
        return await self.ask("say", name=verb, **values)

    def hear(self, told: staged.Told) -> None:
        match told:
            case staged.Life(incarnation=incarnation):
                self.incarnation = incarnation
            case staged.Noticed(kind=kind):
                self.notices.append(kind)
            case staged.Lost(error=error):
                self.lost = error


class RouterActor(Actor):
    """A router's process. See `StagedRouter`."""

    kind = "router"

    def __init__(self, *means: Any, **order: Any) -> None:
        super().__init__(*means, **order)
        self.places: list[Place] = []
        self.sources: list[str] = []
        self.heard: list[Heard] = []
        self.now = RouterNow()
        self._told = asyncio.Event()

    async def start(self) -> None:
        self.now = RouterNow()
        self._told.clear()
        await super().start()
        async with asyncio.timeout(PATIENCE_S):
            await self._told.wait()

    def hear(self, told: staged.Told) -> None:
        match told:
            case staged.Now(now=now):
                self._note(now)
            case staged.Change(heard=heard):
                self.heard.append(heard)

    def _note(self, now: RouterNow) -> None:
        self.now = now
        self._told.set()
        if self.sources[-1:] != [now.source]:
            self.sources.append(now.source)
        if now.epoch is None:
            return
        place = Place(now.epoch, now.revision, now.digest)
        if not self.places or self.places[-1] != place:
            self.places.append(place)

    async def synced(self, timeout_s: float = PATIENCE_S) -> None:
        await self.ask("synced", timeout_s=timeout_s)

    async def fleet(self) -> Fleet:
        return Fleet.from_json(await self.ask("fleet"))
