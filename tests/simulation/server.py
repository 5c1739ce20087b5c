"""The simulated NATS servers: streams that all share, links that each has alone.

Streams, batches, expectations and error codes are those of the product's broker in
memory. Here that gets a network (`broker.SimBroker` is a client's end of it) and
faults: servers that die and come back with less than they had, that stall and then
answer all at once, consumers that are deleted, a replica that lags.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextvars import Context
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Protocol

from controlplane.broker import Message, StreamSpec
from controlplane.broker.memory_server import MemoryServer
from controlplane.broker.memory_stream import MemoryStream

from .stream import SimStream

EPOCH: Final = datetime(2026, 1, 1, tzinfo=UTC)
NODES: Final = ("n1", "n2")
LEADER: Final = NODES[0]
"""Where stored messages are republished from."""
DYING_S: Final = 0.004
"""A message that is to land before the servers die is there by then."""


class Client(Protocol):
    """What the server knows of a client's link."""

    node: str

    def down(self, deliver: Callable[..., None], *args: object) -> None:
        """Send to the client: it is delivered there, later."""

    def broken(self, *, landing: float) -> None:
        """The connection broke."""

    def may_connect(self) -> None:
        """An obstacle went away."""

    def silent(self) -> None:
        """From now on nothing comes from the server, and nothing is refused."""

    def flush(self) -> None:
        """What was held in the network arrives now."""

    def hurry(self) -> None:
        """Answers may stay away from now on."""


class Observer(Protocol):
    """Who is told what the streams hold."""

    def stored(self, stream: str, message: Message) -> None: ...
    def cut(self, stream: str, last: int) -> None: ...
    def made(self, stream: str, spec: StreamSpec) -> None: ...
    def gone(self, stream: str) -> None: ...
    def beat_arrived(self, payload: bytes) -> None: ...
    def outage(self, begin: float, end: float) -> None: ...


class Consumer:
    """The server's side of one `follow`."""

    def __init__(
        self,
        client: Client,
        stream: MemoryStream | None,
        pattern: str | None,
        after: int,
        take: Callable[[list[Message]], None],
        lost: Callable[[], None],
    ) -> None:
        self.client, self.stream, self.pattern = client, stream, pattern
        self.sent_to, self.take, self.lost = after, take, lost

    def push(self, known: int | None = None) -> None:
        """Send what is new, as far as is known here."""
        end = self.stream.last_sequence
        if known is not None:
            end = min(end, known)
        if end > self.sent_to:
            found = self.stream.between(self.sent_to, end, self.pattern)
            self.sent_to = end
            if found:
                self.client.down(self.take, found)


class SimServer(MemoryServer):
    """All servers of the system, which share their streams."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        *,
        context: Context | None = None,
        observer: Observer | None = None,
    ) -> None:
        super().__init__(self._now)
        self.loop: Final = loop
        self.context: Final = context
        self.observer = observer
        self.offset_s = 0.0
        """How wrong the servers' clock is."""
        self.up = True
        self.starts = 1
        self.stalled: set[str] = set()
        """Nodes that are stopped but not gone."""
        self.no_responders = False
        self.lag_s = 0.0
        self.origin = LEADER
        """The node from which what is delivered now comes."""
        self._dying = False
        self._marks: dict[str, list[tuple[float, int]]] = {}
        """While a replica lags: when each stream ended where."""
        self.clients: Final[list[Client]] = []
        self._consumers: Final[dict[str, list[Consumer]]] = {}
        self._held: list[tuple[str, Callable[..., None], tuple[Any, ...]]] = []
        self._instant = (-1.0, 0.0, EPOCH)
        self._still_since: float | None = None

    def _now(self) -> datetime:
        now_s, offset_s = self.loop.time(), self.offset_s
        before = self._instant
        if before[0] != now_s or before[1] != offset_s:
            at = EPOCH + timedelta(seconds=now_s + offset_s)
            self._instant = before = (now_s, offset_s, at)
        return before[2]

    def id_of(self, node: str) -> str:
        """A server's id is another after each start."""
        return f"{node}-{self.starts}"

    def new_stream(self, spec: StreamSpec) -> MemoryStream:
        if self.observer is not None:
            self.observer.made(spec.name, spec)
        return SimStream(spec, self._clock)

    def held(self, name: str) -> SimStream | None:
        """The stream of this name, with its faults."""
        stream = self.streams.get(name)
        return stream if isinstance(stream, SimStream) else None

    # ---- what arrives ----------------------------------------------------------
    def accept(self, node: str, do: Callable[..., None], args: tuple[Any, ...]) -> None:
        """Something arrived at ``node``; a stopped one looks at it later."""
        if self.stalled and node in self.stalled:
            self._held.append((node, do, args))
        else:
            self.origin = node
            do(*args)

    def publish(self, subject: str, payload: bytes) -> None:
        if self.observer is not None and ".beat." in subject:
            self.observer.beat_arrived(payload)
        super().publish(subject, payload)

    def _republish(self, spec: StreamSpec, message: Message, before: int) -> None:
        if self.observer is not None:
            self.observer.stored(spec.name, message)
        came_by, self.origin = self.origin, LEADER
        super()._republish(spec, message, before)
        self.origin = came_by

    def as_replica_sees(self, name: str, found: list[Message]) -> list[Message]:
        """What a listing contains when a replica serves it that lags."""
        stream = self.held(name)
        if not self.lag_s or stream is None:
            return found
        known = self.known_to_replica(name)
        seen = [
            message if message.sequence <= known else stream.before(message)
            for message in found
        ]
        return [message for message in seen if message is not None]

    def known_to_replica(self, name: str) -> int:
        """Where the stream ends on a replica that lags."""
        by_s = self.loop.time() - self.lag_s
        marks = self._marks.get(name, [(0.0, 0)])
        return max(last for at_s, last in marks if at_s <= by_s or at_s == marks[0][0])

    # ---- followers -------------------------------------------------------------
    def consume(self, name: str, consumer: Consumer) -> None:
        """Serve ``consumer``, beginning with what is there."""
        self._consumers.setdefault(name, []).append(consumer)
        if not self.lag_s:
            consumer.push()
            return
        consumer.push(self.known_to_replica(name))
        for stored_s, last in self._marks.get(name, [])[1:]:
            at_s = max(self.loop.time(), stored_s + self.lag_s)
            self.loop.call_at(at_s, consumer.push, last, context=self.context)

    def forget(self, name: str, consumer: Consumer) -> None:
        """Serve it no more."""
        consumers = self._consumers.get(name, [])
        if consumer in consumers:
            consumers.remove(consumer)

    def drop_consumers(self, name: str) -> None:
        """Delete every consumer of the stream; who follows finds out."""
        for consumer in self._consumers.pop(name, []):
            consumer.client.down(consumer.lost)

    def delete(self, name: str) -> None:
        if name in self.streams and self.observer is not None:
            self.observer.gone(name)
        super().delete(name)
        self.drop_consumers(name)

    def wake(self, stream: str | None = None) -> None:
        consumers = self._consumers.get(stream or "", ())
        held = self.streams.get(stream or "")
        if not self.lag_s or held is None:
            for consumer in consumers:
                consumer.push()
            return
        last = held.last_sequence
        self._marks.setdefault(held.spec.name, []).append((self.loop.time(), last))
        for consumer in consumers:
            self.loop.call_later(self.lag_s, consumer.push, last, context=self.context)

    # ---- faults ----------------------------------------------------------------
    def _look_whether_still(self) -> None:
        """Note from when to when no node did anything."""
        still = not self.up or self.stalled.issuperset(NODES)
        now = self.loop.time()
        if still and self._still_since is None:
            self._still_since = now
        elif not still and self._still_since is not None:
            since, self._still_since = self._still_since, None
            if self.observer is not None:
                self.observer.outage(since, now)

    @property
    def takes(self) -> bool:
        """Whether what arrives is taken; of what lands, the dying take a little."""
        return self.up or self._dying

    def crash(self, *, landing: float, tails: Mapping[str, int] | None = None) -> None:
        """Every node dies: links break, what is volatile is gone.

        ``landing`` is the share of what is on its way that is stored before the end,
        ``tails`` how many of the last messages of a stream the disk never had.
        """
        self.up, self._dying = False, not self.stalled
        self.stalled.clear()
        self._look_whether_still()
        self._held.clear()
        for consumers in self._consumers.values():
            consumers.clear()
        for client in list(self.clients):
            client.broken(landing=landing)
        self.loop.call_later(
            DYING_S, self._die, dict(tails or {}), context=self.context
        )

    def _die(self, tails: dict[str, int]) -> None:
        self._dying = False
        for name, count in tails.items():
            self.lose_tail(name, count)

    def come_back(self) -> None:
        """It runs again, with other ids."""
        self.up, self.starts = True, self.starts + 1
        self._look_whether_still()
        for client in list(self.clients):
            client.may_connect()

    def lose_tail(self, name: str, count: int) -> None:
        """The last ``count`` messages were never written to the disk."""
        stream = self.held(name)
        if stream is not None and count > 0 and stream.last_sequence:
            last = max(0, stream.last_sequence - count)
            stream.lose_after(last)
            if self.observer is not None:
                self.observer.cut(name, last)

    def mark(self) -> dict[str, dict[str, Any]]:
        """All that the streams hold now: see `return_to`."""
        return {
            name: stream.mark()
            for name in self.streams
            if (stream := self.held(name)) is not None
        }

    def return_to(self, marks: Mapping[str, dict[str, Any]]) -> None:
        """While it is down: these streams hold what they held then."""
        for name, mark in marks.items():
            stream = self.held(name)
            assert stream is not None, f"{name} was deleted since"
            is_cut = stream.last_sequence > mark["last"]
            stream.return_to(mark)
            if is_cut and self.observer is not None:
                self.observer.cut(name, mark["last"])

    def lose_leader(self) -> None:
        """JetStream has no leader: it stores nothing and answers nothing."""
        self.no_responders = True
        for client in self.clients:
            client.hurry()

    def elect(self) -> None:
        """JetStream has a leader again."""
        self.no_responders = False

    def fall_behind(self, by_s: float) -> None:
        """From now on replicas learn of everything so late."""
        self.lag_s, now = by_s, self.loop.time()
        self._marks = {
            name: [(now, stream.last_sequence)] for name, stream in self.streams.items()
        }

    def catch_up(self) -> None:
        """Replicas know everything."""
        self.lag_s = 0.0
        self._marks.clear()
        for name in self.streams:
            self.wake(name)

    def stall(self, nodes: Sequence[str]) -> None:
        """SIGSTOP: what arrives waits, what was to be sent waits."""
        self.stalled.update(nodes)
        self._look_whether_still()
        for client in list(self.clients):
            if client.node in nodes:
                client.silent()

    def resume(self, nodes: Sequence[str]) -> None:
        """SIGCONT: all that waited happens at once."""
        self.stalled.difference_update(nodes)
        self._look_whether_still()
        held, self._held = self._held, []
        for node, do, args in held:
            self.accept(node, do, args)
        for client in list(self.clients):
            if client.node in nodes:
                client.flush()
            client.may_connect()
