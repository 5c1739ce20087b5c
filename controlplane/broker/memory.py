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
from controlplane.broker.memory_server import MemoryServer, MemorySubscription
from controlplane.broker.memory_stream import MemoryStream, RefusedError
from controlplane.broker.streams import config_differences, stream_config
from controlplane.broker.subjects import matches
from controlplane.broker.translate import append_error, denied, named
from controlplane.errors import (
    AppendOutcomeUnknownError,
    HistoryForkedError,
    LogUnavailableError,
    SettingsError,
    StreamMissingError,
)

__all__ = ["MemoryBroker", "MemoryServer"]

_CHUNK: Final = 500
_MAX_BATCH: Final = 1000


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
        self._denied: Final = tuple(denied)
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
            raise self._unavailable(doing, "no answer") from error

    async def _await_connection(self, doing: str) -> None:
        await asyncio.sleep(0)  # a call to a broker lets others run
        while not self.connected:
            if self._stopped:
                raise self._unavailable(doing, "stopped")
            await self._changed.wait()

    def _unavailable(self, doing: str, reason: str) -> LogUnavailableError:
        return LogUnavailableError(url=self.url, doing=doing, reason=reason)

    def _allow(self, subject: str, *, verb: str) -> None:
        if any(matches(pattern, subject) for pattern in self._denied):
            raise denied(subject, verb=verb)

    # ---- core ------------------------------------------------------------------
    async def publish(
        self, subject: str, payload: bytes, *, reply: str | None = None
    ) -> None:
        """Send a core message; drop it while disconnected or if it is not allowed."""
        del reply  # nobody answers in this process
        if self.connected and not any(matches(p, subject) for p in self._denied):
            self._server.publish(subject, payload)

    async def subscribe(self, subject: str, *, limit: int = 65_536) -> Subscription:
        """Subscribe; the server has it at once."""
        self._allow(subject, verb="subscribe to")
        subscription = MemorySubscription(self._server, self, subject, limit=limit)
        self._server.subscribe(subscription)
        return subscription

    # ---- streams ---------------------------------------------------------------
    async def create_stream(self, spec: StreamSpec) -> None:
        """Create the stream; an identical existing one is fine."""
        await self._require(f"creating stream {spec.name}")
        self._server.create(spec)

    async def stream_differences(self, spec: StreamSpec) -> tuple[str, ...] | None:
        """How the existing stream differs from ``spec``; None: it does not exist."""
        await self._require(f"comparing stream {spec.name}")
        held = self._server.streams.get(spec.name)
        if held is None:
            return None
        return config_differences(spec, stream_config(held.spec))

    async def delete_stream(self, name: str) -> None:
        """Delete the stream; a missing one is fine."""
        await self._require(f"deleting stream {name}")
        self._server.delete(name)

    async def purge_stream(
        self, name: str, *, up_to: int | None = None, subject: str | None = None
    ) -> None:
        """Remove messages below sequence ``up_to`` and / or on ``subject``."""
        stream = await self._stream(name, f"purging {name}")
        stream.purge(up_to=up_to, pattern=subject)

    async def state(self, stream: str) -> StreamState:
        """Return where the stream stands."""
        return (await self._stream(stream, f"asking for the state of {stream}")).state()

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
        if not 0 < len(messages) <= _MAX_BATCH:
            raise SettingsError(
                field="batch", value=len(messages), rule=f"1 to {_MAX_BATCH} messages"
            )
        doing = f"appending to {stream}"
        await self._require(doing)
        for message in messages:
            self._allow(message.subject, verb="publish to")
        owner = self._server.owner(messages[-1].subject)
        if owner is None:
            reason = f"no stream listens on {messages[-1].subject}"
            raise self._unavailable(doing, reason)
        stored = self._append(owner, messages)
        if self.answers_to_lose > 0:
            self.answers_to_lose -= 1
            raise AppendOutcomeUnknownError(
                subject=named(messages), reason="no answer in time"
            )
        if owner.spec.name != stream:
            raise SettingsError(
                field="stream",
                value=owner.spec.name,
                rule=f"{named(messages)} must belong to {stream}",
            )
        return stored

    def _append(self, owner: MemoryStream, messages: Sequence[Outgoing]) -> Stored:
        try:
            return self._server.append(owner, messages)
        except RefusedError as refused:
            raise append_error(
                refused.error, stream=owner.spec.name, messages=messages, url=self.url
            ) from refused

    async def get(self, stream: str, sequence: int) -> Message | None:
        """The message at ``sequence``; None: a hole."""
        return (await self._stream(stream, f"reading {stream}")).get(sequence)

    async def last(self, stream: str, subject: str) -> Message | None:
        """The last message on ``subject``."""
        return (await self._stream(stream, f"reading {stream}")).last(subject)

    async def _stream(self, name: str, doing: str) -> MemoryStream:
        await self._require(doing)
        stream = self._server.streams.get(name)
        if stream is None:
            raise StreamMissingError(
                url=self.url, doing=doing, reason="stream not found"
            )
        return stream

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
        held = await self._stream(stream, doing)
        end = held.last_sequence if until is None else min(until, held.last_sequence)
        find = held.lasts if last_per_subject else held.between
        found = find(after, end, subject)
        for start in range(0, len(found), _CHUNK):
            if not self.connected:
                raise self._unavailable(doing, "connection lost")
            yield found[start : start + _CHUNK]

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
                held = self._checked(stream, seen)
                if place is not None and place != (held, self._connections):
                    read_up_to = seen
                    place = (held, self._connections)
                    yield []
                    continue
                place = (held, self._connections)
                end = min(held.last_sequence, read_up_to + _CHUNK)
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

    def _checked(self, name: str, seen: int) -> MemoryStream:
        """Return the stream, if it still holds what was seen."""
        held = self._server.streams.get(name)
        if held is None:
            raise HistoryForkedError(reason=f"stream {name} is missing", revision=seen)
        if held.last_sequence < seen:
            reason = f"it ends at {held.last_sequence} now"
            raise HistoryForkedError(reason=reason, revision=seen)
        return held
