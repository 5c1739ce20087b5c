"""A client's connection in the simulated network: how it comes, goes and carries.

Each way takes its time, and what one connection carries arrives in order, or, if it
breaks, not at all. What was on its way to the server then may still arrive, up to some
message: its sender does not know. A black hole passes nothing and refuses nothing; the
client notices by its pings, leaves the connection, and what it held lands later.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextvars import Context, copy_context
from random import Random
from typing import Any, Final

import msgspec

from controlplane.broker import CoreMessage
from controlplane.broker.memory_answers import MemoryAnswers
from controlplane.broker.memory_server import MemorySubscription

from .following import Box, LinkLostError
from .server import NODES, SimServer

PING_S: Final = (3.0, 4.0)
"""A silent connection is given up after so long: a ping each second, 3 s to answer."""
CONNECT_S: Final = (0.02, 0.4)
LATE_SHARE: Final = 0.5
_NEXT_S: Final = 1e-7
"""What one connection carries arrives one after the other."""


class Weather(msgspec.Struct):
    """How a client's network is. Times in seconds, shares from 0 to 1."""

    least_s: float = 0.0002
    more_s: float = 0.002
    """Every way takes ``least_s`` and a random part of ``more_s``."""
    lose: float = 0.0
    double: float = 0.0
    late_s: float = 0.0
    """Core messages to the client: lost, twice, up to so late and out of order."""
    deaf_s: float = 0.0
    """So long after subscribing what comes by way of the other node may be missed."""


class NoAnswerError(Exception):
    """No answer in time."""


class SimSubscription(MemorySubscription):
    """A core subscription at the far end of a link."""

    client: Link
    deaf_until_s = 0.0

    def put(self, message: CoreMessage) -> None:
        """Called by the server: the message sets out."""
        if not self.deaf_until_s or not self.client.misses(self):
            self.client.send_core(self, message)

    def arrive(self, message: CoreMessage) -> None:
        """It is here."""
        super().put(message)

    async def close(self) -> None:
        self.shut()
        self.client.unsubscribe(self)


class Link:
    """One connection of one process. `broker.SimBroker` asks questions over it."""

    def __init__(
        self,
        server: SimServer,
        rng: Random,
        *,
        name: str = "sim",
        weather: Weather | None = None,
        connect_timeout_s: float = 4.0,
        mailbox_limit: int | None = None,
        reconnect_s: tuple[float, float] = CONNECT_S,
        denied: Sequence[str] = (),
    ) -> None:
        self.name: Final = name
        self.weather = weather or Weather()
        self.node = NODES[0]
        self.answers_to_lose = 0
        self.black = False
        self.cut = False
        """While it is, no connection comes about."""
        self._server, self._rng, self._loop = server, rng, server.loop
        self._answers = MemoryAnswers(server, self.url, denied)
        self._context = copy_context()
        self._call_at = getattr(server.loop, "schedule", self._call_real_loop)
        self._connect_timeout_s = connect_timeout_s
        self._mailbox_limit = mailbox_limit
        self._reconnect_s = reconnect_s
        self._listeners: dict[object, Callable[[bool], None]] = {}
        self._running = self._stopped = self._connected = False
        self._connecting = self._dead = self._linked = False
        self._generation = 0
        self._landing = 0.0
        self._sunk = 0
        """Up to this generation nothing lands any more."""
        self._changed = asyncio.Event()
        self._up_at = self._down_at = 0.0
        self._held_up: list[tuple[Any, ...]] = []
        self._held_down: list[tuple[int, Callable[..., None], tuple[Any, ...]]] = []
        self._pending: dict[asyncio.Future[Any], float] = {}
        self._subscriptions: list[SimSubscription] = []
        self._boxes: list[Box] = []
        server.clients.append(self)

    # ---- connection ------------------------------------------------------------
    @property
    def url(self) -> str:
        return "sim://"

    @property
    def server_id(self) -> str | None:
        return self._server.id_of(self.node) if self._connected else None

    @property
    def connected(self) -> bool:
        """Whether the client thinks so; its server thinks so too, or will soon."""
        return self._connected

    async def start(self) -> None:
        self._running = not self._stopped
        self.may_connect()

    async def stop(self) -> None:
        self._stopped, self._running = True, False
        self._break(landing=1.0)
        self._leave()

    def die(self) -> None:
        """The process was killed: what it sent may have left."""
        self._dead = True
        self._generation += 1
        self._landing, self._linked = 0.5, False
        self._leave()

    def _leave(self) -> None:
        for subscription in self._subscriptions:
            subscription.shut()
            self._server.unsubscribe(subscription)
        self._subscriptions.clear()
        for box in self._boxes:
            self._server.forget(box.stream, box.consumer)
        if self in self._server.clients:
            self._server.clients.remove(self)

    async def wait_connected(self, timeout_s: float) -> None:
        await self._require("connecting", timeout_s)

    def on_connection(self, listener: Callable[[bool], None]) -> Callable[[], None]:
        key = object()
        self._listeners[key] = listener

        def stop() -> None:
            self._listeners.pop(key, None)

        return stop

    def may_connect(self) -> None:
        """Nothing is known to be in the way: try, in a moment."""
        if self._wants_connection and not self._connecting:
            self._connecting = True
            low, high = self._reconnect_s
            self._loop.call_later(
                low + self._rng.random() * (high - low),
                self._connect,
                context=self._context,
            )

    @property
    def _wants_connection(self) -> bool:
        return self._running and not self._connected and not self._dead

    def _connect(self) -> None:
        self._connecting = False
        server = self._server
        if not self._wants_connection or self.cut or self.black or not server.up:
            return  # who takes the obstacle away calls `may_connect`
        nodes = [node for node in NODES if node not in server.stalled]
        if not nodes:
            return
        self.node = nodes[self._rng.randrange(len(nodes))]
        self._generation += 1
        self._up_at = self._down_at = 0.0
        self._linked = True
        for subscription in self._subscriptions:
            self.listen(subscription)
        self._change(connected=True)

    def broken(self, *, landing: float) -> None:
        """The network broke the connection; both ends see it."""
        self._loop.call_soon(self._break_off, self._generation, context=self._context)
        self._cut_off(landing)

    def _break_off(self, generation: int) -> None:
        if self._connected and self._generation == generation + 1:
            self._break(landing=self._landing)
            self.may_connect()

    def _cut_off(self, landing: float) -> None:
        """From now on nothing of this connection arrives, but what landed."""
        self._generation += 1
        self._landing, self._linked = landing, False
        self._held_down.clear()
        for subscription in self._subscriptions:
            self._server.unsubscribe(subscription)
        for box in self._boxes:
            self._server.forget(box.stream, box.consumer)

    def _break(self, *, landing: float) -> None:
        """The client gives its connection up, or learns that it is no more."""
        if self._linked:
            self._cut_off(landing)
        if not self._connected:
            return
        pending, self._pending = self._pending, {}
        for future in pending:
            if not future.done():
                future.set_exception(LinkLostError())
        for box in self._boxes:
            box.lose()
        self._change(connected=False)

    def _change(self, *, connected: bool) -> None:
        self._connected = connected
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()
        for listener in list(self._listeners.values()):
            listener(connected)

    # ---- faults ----------------------------------------------------------------
    def silent(self) -> None:
        """Nothing passes any more; the pings will tell."""
        self.hurry()
        if self._connected:
            low, high = PING_S
            self._loop.call_later(
                low + self._rng.random() * (high - low),
                self._give_up,
                self._generation,
                context=self._context,
            )

    def _give_up(self, generation: int) -> None:
        stopped = self.black or self.node in self._server.stalled
        if self._connected and generation == self._generation and stopped:
            self._break(landing=0.7)
            self.may_connect()

    def flush(self) -> None:
        """The black hole or the stop is over: what was held arrives, in order."""
        held_up, self._held_up = self._held_up, []
        for held in held_up:
            self._arrive(*held)
        if self._held_down:
            self._loop.call_soon(self._drain, context=self._context)

    def _drain(self) -> None:
        """Deliver what was held, before anything that came later."""
        if self.black or self.node in self._server.stalled:
            return
        held_down, self._held_down = self._held_down, []
        for generation, deliver, args in held_down:
            if generation == self._generation:
                deliver(*args)

    def hurry(self) -> None:
        """What is asked may remain without an answer: watch the clock."""
        for future, deadline in list(self._pending.items()):
            self._arm(future, deadline)

    def _arm(self, future: asyncio.Future[Any], deadline: float) -> None:
        self._loop.call_at(deadline, expire, future, context=self._context)

    def _call_real_loop(
        self,
        at: float,
        callback: Callable[..., None],
        args: tuple[Any, ...],
        context: Context,
    ) -> None:
        self._loop.call_at(at, callback, *args, context=context)

    # ---- travelling ------------------------------------------------------------
    def _delay_s(self) -> float:
        weather = self.weather
        if not weather.more_s:
            return weather.least_s
        return weather.least_s + self._rng.random() * weather.more_s

    def _up(self, do: Callable[..., None], *args: object) -> None:
        """Send to the server: ``do`` happens there; into a dead socket: nothing."""
        if not self._linked:
            return
        at = self._loop.time() + self._delay_s()
        if at <= self._up_at:
            at = self._up_at + _NEXT_S
        self._up_at = at
        sent = (self._generation, self.node, do, args)
        self._call_at(at, self._arrive, sent, self._server.context)

    def _arrive(
        self,
        generation: int,
        node: str,
        do: Callable[..., None],
        args: tuple[Any, ...],
    ) -> None:
        server = self._server
        if not server.takes:
            return
        if self.black:
            self._held_up.append((generation, node, do, args))
        elif generation == self._generation or self._lands(generation):
            server.accept(node, do, args)

    def _lands(self, generation: int) -> bool:
        """Whether what a broken connection carried arrives: up to some message."""
        if generation > self._sunk and self._rng.random() >= self._landing:
            self._sunk = generation
        return generation > self._sunk

    def down(self, deliver: Callable[..., None], *args: object) -> None:
        """Send to the client: it is delivered there, later."""
        at = self._loop.time() + self._delay_s()
        if at <= self._down_at:
            at = self._down_at + _NEXT_S
        self._down_at = at
        sent = (self._generation, deliver, args)
        self._call_at(at, self._deliver, sent, self._context)

    def _deliver(
        self, generation: int, deliver: Callable[..., None], args: tuple[Any, ...]
    ) -> None:
        if generation != self._generation:
            return
        if self.black or self.node in self._server.stalled:
            self._held_down.append((generation, deliver, args))
        elif self._held_down:
            self._held_down.append((generation, deliver, args))
            self._drain()
        else:
            deliver(*args)

    # ---- core messages ---------------------------------------------------------
    def listen(self, subscription: SimSubscription) -> None:
        """At the server: deliver to it, unless nobody wants it any more."""
        if not self._linked or subscription not in self._subscriptions:
            return
        deaf_s = self.weather.deaf_s
        if deaf_s:
            deaf_s *= self._rng.random()
            subscription.deaf_until_s = self._loop.time() + deaf_s
        self._server.subscribe(subscription)

    def misses(self, subscription: SimSubscription) -> bool:
        """Whether the message's node has not heard of the subscription yet."""
        deaf = self._loop.time() < subscription.deaf_until_s
        return deaf and self._server.origin != self.node

    def unsubscribe(self, subscription: SimSubscription) -> None:
        self._server.unsubscribe(subscription)
        if subscription in self._subscriptions:
            self._subscriptions.remove(subscription)

    def send_core(self, subscription: SimSubscription, message: CoreMessage) -> None:
        """A core message sets out to the client; much may become of it."""
        weather, rng = self.weather, self._rng
        if weather.lose and rng.random() < weather.lose:
            return
        if weather.late_s and rng.random() < LATE_SHARE:
            self._loop.call_later(
                rng.random() * weather.late_s,
                self._deliver,
                self._generation,
                subscription.arrive,
                (message,),
                context=self._context,
            )
        else:
            self.down(subscription.arrive, message)
        if weather.double and rng.random() < weather.double:
            self.down(subscription.arrive, message)


def expire(future: asyncio.Future[Any]) -> None:
    """No answer came in time."""
    if not future.done():
        future.set_exception(NoAnswerError())
