"""A broker in this process: `MemoryBroker`, a client of a `MemoryServer`.

It answers as nats-server does, error by error (the contract suite compares), and it is
deterministic: no randomness, no threads, no time but the clock the server is given. A
test or a simulation takes clients off the server and puts them back with
`MemoryServer.disconnect` and `reconnect`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Final

from controlplane.broker import (
    Message,
    Outgoing,
    Stored,
    StreamSpec,
    StreamState,
    Subscription,
)
from controlplane.broker.memory_answers import MemoryAnswers, check_batch_size
from controlplane.broker.memory_server import MemoryServer, MemorySubscription
from controlplane.broker.memory_stream import MemoryStream
from controlplane.broker.translate import named
from controlplane.errors import AppendOutcomeUnknownError

__all__ = ["MemoryBroker", "MemoryServer"]

CHUNK: Final = 500
"""So many messages are handed over at once."""


class MemoryBroker:
    """One client's connection to a `MemoryServer`. See `Broker` for every promise.

    ``denied`` are subject patterns it may neither publish nor subscribe to.
    """

    def __init__(
        self,
        server: MemoryServer,
        name: str = "memory",
        *,
        connect_timeout_s: float = 4.0,
        denied: Sequence[str] = (),
    ) -> None:
        self.name: Final = name
        self.answers_to_lose = 0
        """So many of the next appends are stored and their answer lost."""
        self._server: Final = server
        self._connect_timeout_s: Final = connect_timeout_s
        self._answers: Final = MemoryAnswers(server, self.url, denied)
        self._listeners: Final[dict[object, Callable[[bool], None]]] = {}
        self._reachable = True
        self._running = False
        self._stopped = False
        self._connections = 0
        self._changed = asyncio.Event()

    # ---- connection ------------------------------------------------------------
    @property
    def url(self) -> str:
        """A text in place of a URL."""
        return "memory://"

    @property
    def server_id(self) -> str | None:
        """The id of the server, while connected."""
        return self._server.server_id if self.connected else None

    @property
    def connected(self) -> bool:
        """Whether the server is reachable and we want it."""
        return self._reachable and self._running

    async def start(self) -> None:
        """Connect, or wait to be reconnected."""
        self._change(running=not self._stopped)

    async def stop(self) -> None:
        """Leave for good."""
        self._stopped = True
        self._change(running=False)
        self._server.drop(self)

    def set_reachable(self, *, reachable: bool) -> None:
        """Break or mend the network between this client and the server."""
        self._change(reachable=reachable)

    async def wait_connected(self, timeout_s: float) -> None:
        """Return when connected, else raise."""
        await self._require("connecting", timeout_s)

    def on_connection(self, listener: Callable[[bool], None]) -> Callable[[], None]:
        """Call ``listener(connected)`` at each change; it must not raise."""
        key = object()
        self._listeners[key] = listener

        def stop() -> None:
            self._listeners.pop(key, None)

        return stop

    def _change(
        self, *, running: bool | None = None, reachable: bool | None = None
    ) -> None:
        before = self.connected
        self._running = self._running if running is None else running
        self._reachable = self._reachable if reachable is None else reachable
        if self.connected and not before:
            self._connections += 1
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()
        self._server.wake()
        if self.connected != before:
            for listener in list(self._listeners.values()):
                listener(self.connected)

    async def _require(self, doing: str, timeout_s: float | None = None) -> None:
        limit_s = self._connect_timeout_s if timeout_s is None else timeout_s
        try:
            async with asyncio.timeout(limit_s):
                await self._await_connection(doing)
        except TimeoutError as error:
            raise self._answers.unavailable(doing, "no answer") from error

    async def _await_connection(self, doing: str) -> None:
        await asyncio.sleep(0)  # a call to a broker lets others run
        while not self.connected:
            if self._stopped:
                raise self._answers.unavailable(doing, "stopped")
            await self._changed.wait()

    # ---- core ------------------------------------------------------------------
    async def publish(
        self, subject: str, payload: bytes, *, reply: str | None = None
    ) -> None:
        """Send a core message; drop it while disconnected or if it is not allowed."""
        del reply  # nobody answers in this process
        if self.connected and self._answers.allows(subject):
            self._server.publish(subject, payload)

    async def subscribe(self, subject: str, *, limit: int = 65_536) -> Subscription:
        """Subscribe; the server has it at once."""
        self._answers.check(subject, verb="subscribe to")
        subscription = MemorySubscription(self._server, self, subject, limit=limit)
        self._server.subscribe(subscription)
        return subscription

    # ---- streams ---------------------------------------------------------------
    async def create_stream(self, spec: StreamSpec) -> None:
        """Create the stream; an identical existing one is fine."""
        await self._require(f"creating stream {spec.name}")
        self._answers.create(spec)

    async def stream_differences(self, spec: StreamSpec) -> tuple[str, ...] | None:
        """How the existing stream differs from ``spec``; None: it does not exist."""
        await self._require(f"comparing stream {spec.name}")
        return self._answers.differences(spec)

    async def delete_stream(self, name: str) -> None:
        """Delete the stream; a missing one is fine."""
        await self._require(f"deleting stream {name}")
        self._answers.delete(name)

    async def purge_stream(
        self, name: str, *, up_to: int | None = None, subject: str | None = None
    ) -> None:
        """Remove messages below sequence ``up_to`` and / or on ``subject``."""
        await self._require(f"purging {name}")
        self._answers.purge(name, up_to, subject)

    async def state(self, stream: str) -> StreamState:
        """Return where the stream stands."""
        await self._require(f"asking for the state of {stream}")
        return self._answers.state(stream)

    async def count(self, stream: str, subject: str) -> int:
        """How many messages the stream holds on ``subject``."""
        await self._require(f"counting what {stream} has on {subject}")
        return self._answers.count(stream, subject)

    async def store(
        self, stream: str, message: Outgoing, *, timeout_s: float | None = None
    ) -> Stored:
        """Store one message."""
        return await self.store_batch(stream, [message], timeout_s=timeout_s)

    async def store_batch(
        self,
        stream: str,
        messages: Sequence[Outgoing],
        *,
        timeout_s: float | None = None,
    ) -> Stored:
        """Store up to 1000 messages atomically."""
        del timeout_s  # this server answers at once
        check_batch_size(messages)
        await self._require(f"appending to {stream}")
        stored = self._answers.store(stream, messages)
        if self.answers_to_lose > 0:
            self.answers_to_lose -= 1
            raise AppendOutcomeUnknownError(
                subject=named(messages), reason="no answer in time"
            )
        return stored

    async def get(self, stream: str, sequence: int) -> Message | None:
        """The message at ``sequence``; None: a hole."""
        await self._require(f"reading {stream}")
        return self._answers.get(stream, sequence)

    async def last(self, stream: str, subject: str) -> Message | None:
        """The last message on ``subject``."""
        await self._require(f"reading {stream}")
        return self._answers.last(stream, subject)

    # ---- reading ---------------------------------------------------------------
    async def read(
        self,
        stream: str,
        *,
        after: int = 0,
        until: int | None = None,
        subject: str | None = None,
        last_per_subject: bool = False,
    ) -> AsyncIterator[list[Message]]:
        """Yield what the stream holds in (after, until], in order; end."""
        doing = f"reading {stream}"
        await self._require(doing)
        found = self._answers.read(
            stream, after, until, subject, last_per_subject=last_per_subject
        )
        for start in range(0, len(found), CHUNK):
            if not self.connected:
                raise self._answers.unavailable(doing, "connection lost")
            yield found[start : start + CHUNK]

    async def follow(
        self, stream: str, *, after: int = 0, subject: str | None = None
    ) -> AsyncIterator[list[Message]]:
        """Yield what the stream holds after ``after``, in order, once, for ever."""
        seen = read_up_to = after
        place: tuple[MemoryStream, int] | None = None
        changed = self._server.watch(stream)
        try:
            while True:
                await self._await_connection(f"following {stream}")
                changed.clear()
                held = self._answers.unbroken(stream, seen)
                if place is not None and place != (held, self._connections):
                    read_up_to = seen
                    place = (held, self._connections)
                    yield []
                    continue
                place = (held, self._connections)
                end = min(held.last_sequence, read_up_to + CHUNK)
                found = held.between(read_up_to, end, subject)
                if found:
                    seen = found[-1].sequence
                    yield found
                if end > read_up_to:
                    read_up_to = end
                else:
                    await changed.wait()
        finally:
            self._server.unwatch(changed)
