"""The processes of the real stage: one router or one worker, led over a socket.

``python -c "from tests.support.staged import main; main()" KIND ORDER FD``. Lines of
JSON go both ways: commands and their answers, and what the process tells by itself.
SIGTERM ends it as it should.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import msgspec

import controlplane as cp
from controlplane.broker import Subscription
from controlplane.logs import configure_logging
from controlplane.settings import Settings
from controlplane.viewfeed import ViewFeed
from tests.support.stage import Heard, RouterNow, heard, router_now

PROGRAM = "from tests.support.staged import main; main()"
LINE_MAX = 1 << 26
TELL_EVERY_S = 0.1


class Order(msgspec.Struct, kw_only=True):
    """What a process is to be."""

    url: str
    cell: str
    name: str
    settings: Settings
    spec: dict[str, Any] = {}
    checkpoint: str = ""
    reader_blocks_s: float = 0.0
    live_max: int | None = None


class Command(msgspec.Struct, kw_only=True):
    """A verb to carry out and answer."""

    number: int
    verb: str
    values: dict[str, Any] = {}


class Answer(msgspec.Struct, kw_only=True, tag="answer"):
    """What came of a command."""

    number: int
    value: Any = None
    error: str = ""
    text: str = ""


class Now(msgspec.Struct, kw_only=True, tag="now"):
    """Where a router stands."""

    now: RouterNow


class Change(msgspec.Struct, kw_only=True, tag="change"):
    """A router's reader got a change."""

    heard: Heard


class Life(msgspec.Struct, kw_only=True, tag="life"):
    """A worker lives as this incarnation."""

    incarnation: str


class Noticed(msgspec.Struct, kw_only=True, tag="noticed"):
    """A worker was told something."""

    kind: str


class Lost(msgspec.Struct, kw_only=True, tag="lost"):
    """A worker ended for good."""

    error: str


Told = Answer | Now | Change | Life | Noticed | Lost
Do = Callable[..., Awaitable[Any]]


class Wire:
    """The socket to the stage."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._reader, self._writer = reader, writer

    def tell(self, told: Told) -> None:
        self._writer.write(msgspec.json.encode(told) + b"\n")

    async def obey(self, verbs: dict[str, Do]) -> None:
        """Carry out commands, each as soon as it comes, for ever."""
        async with asyncio.TaskGroup() as tasks:
            while line := await self._reader.readline():
                command = msgspec.json.decode(line, type=Command)
                tasks.create_task(self._carry_out(command, verbs[command.verb]))
        os._exit(0)  # the stage is gone

    async def _carry_out(self, command: Command, do: Do) -> None:
        answer = Answer(number=command.number)
        try:
            answer.value = await do(**command.values)
        except (cp.ControlPlaneError, TimeoutError) as error:
            answer.error, answer.text = type(error).__name__, str(error)
        self.tell(answer)


# ---- routers -----------------------------------------------------------------------
class NarrowFeed(ViewFeed):
    """A view feed at which fewer live messages wait for their reader."""

    def __init__(self, feed: ViewFeed, live_max: int) -> None:
        super().__init__(feed._broker, feed.names.cell)
        self._live_max = live_max

    async def subscribe_live(self, *, limit: int = 65_536) -> Subscription:
        return await super().subscribe_live(limit=min(limit, self._live_max))


async def router(wire: Wire, plane: cp.Plane, order: Order) -> None:
    if order.live_max is not None:
        plane.feed = NarrowFeed(plane.feed, order.live_max)
    async with (
        plane.view(name=order.name, checkpoint=order.checkpoint or None) as view,
        asyncio.TaskGroup() as tasks,
    ):
        tasks.create_task(_tell_places(wire, plane, view))
        tasks.create_task(_tell_changes(wire, view, order.reader_blocks_s))

        async def fleet() -> Any:
            return view.fleet.to_json()

        await wire.obey({"synced": view.synced, "fleet": fleet})


async def _tell_places(wire: Wire, plane: cp.Plane, view: cp.RouterView) -> None:
    metrics = plane._router_metrics
    assert metrics is not None
    while True:
        moved = view._movement.next
        wire.tell(Now(now=router_now(view, metrics)))
        with suppress(TimeoutError):
            async with asyncio.timeout(TELL_EVERY_S):
                await moved.wait()


async def _tell_changes(wire: Wire, view: cp.RouterView, blocks_s: float) -> None:
    async for change in view.changes():
        wire.tell(Change(heard=heard(change)))
        if blocks_s:
            time.sleep(blocks_s)  # noqa: ASYNC251 - a callback that holds the loop


# ---- workers -----------------------------------------------------------------------
async def worker(wire: Wire, plane: cp.Plane, order: Order) -> None:
    handle = plane.worker(msgspec.convert(order.spec, cp.WorkerSpec))

    async def enter() -> str:
        await handle.start()
        tasks.create_task(_tell_notices(wire, handle))
        tasks.create_task(_tell_lost(wire, handle))
        tasks.create_task(_tell_lives(wire, handle))
        return handle.incarnation

    async def say(name: str, **values: Any) -> int:
        return await getattr(handle, name)(**values)

    try:
        async with asyncio.TaskGroup() as tasks:
            await wire.obey({"enter": enter, "say": say})
    finally:
        await handle.stop()


async def _tell_notices(wire: Wire, handle: cp.WorkerHandle) -> None:
    async for notice in handle.notices():
        wire.tell(Noticed(kind=notice.kind))


async def _tell_lost(wire: Wire, handle: cp.WorkerHandle) -> None:
    wire.tell(Lost(error=type(await handle.wait_lost()).__name__))


async def _tell_lives(wire: Wire, handle: cp.WorkerHandle) -> None:
    told = ""
    while True:
        if handle.incarnation != told:
            told = handle.incarnation
            wire.tell(Life(incarnation=told))
        await asyncio.sleep(TELL_EVERY_S / 10)


# ---- any process -------------------------------------------------------------------
async def play(kind: str, order: Order, descriptor: int) -> None:
    """Be what was ordered, until SIGTERM."""
    reader, writer = await asyncio.open_connection(
        sock=socket.socket(fileno=descriptor), limit=LINE_MAX
    )
    wire = Wire(reader, writer)
    part = {"router": router, "worker": worker}[kind]
    async with cp.connect(
        order.url, cell=order.cell, name=order.name, settings=order.settings
    ) as plane:
        playing = asyncio.ensure_future(part(wire, plane, order))
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, playing.cancel)
        with suppress(asyncio.CancelledError):
            await playing
    writer.close()


def main() -> None:
    """Run the process that the arguments name."""
    kind, order, descriptor = sys.argv[1:]
    configure_logging()
    told = msgspec.json.decode(order, type=Order)
    asyncio.run(play(kind, told, int(descriptor)))
