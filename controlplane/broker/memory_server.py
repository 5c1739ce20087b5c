"""The server half of the broker in memory: streams, listeners, who is connected."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Final, Protocol

from controlplane.broker import CoreMessage, Message, Outgoing, Stored, StreamSpec
from controlplane.broker.mailbox import Mailbox
from controlplane.broker.memory_stream import MemoryStream, RefusedError
from controlplane.broker.streams import config_differences, stream_config
from controlplane.broker.subjects import mappable, mapped, matches, overlap
from controlplane.broker.wire import stored_headers
from controlplane.errors import SettingsError, TopologyDriftError

_REMEMBERED_MAX: Final = 10_000
"""Subjects of which it is remembered who listens and who stores."""


def _has_wildcards(subject: str) -> bool:
    return "*" in subject or subject.endswith(">")


def _system_clock() -> datetime:
    return datetime.now(UTC)


class MemoryClient(Protocol):
    """What the server knows of a client."""

    @property
    def connected(self) -> bool:
        """Whether messages reach it."""
        ...

    def set_reachable(self, *, reachable: bool) -> None:
        """Break or mend the network between it and the server."""
        ...


class MemorySubscription(Mailbox):
    """A core subscription of one client."""

    def __init__(
        self, server: MemoryServer, client: MemoryClient, subject: str, *, limit: int
    ) -> None:
        super().__init__(limit=limit)
        self.client: Final = client
        self.subject: Final = subject
        self._server: Final = server

    async def close(self) -> None:
        """Unsubscribe; a pending iteration ends. Idempotent."""
        self.shut()
        self._server.unsubscribe(self)


class MemoryServer:
    """Streams and core messages for any number of `MemoryBroker` clients."""

    def __init__(self, clock: Callable[[], datetime] = _system_clock) -> None:
        self.server_id: Final = "MEMORY"
        self.streams: Final[dict[str, MemoryStream]] = {}
        self._clock: Final = clock
        self._subscriptions: Final[dict[str, dict[MemorySubscription, int]]] = {}
        """By subject or pattern, each with its number in order of subscribing."""
        self._numbers = 0
        self._patterns: Final[dict[str, tuple[str, ...]]] = {}
        """Which patterns with wildcards a subject falls under."""
        self._owners: Final[dict[str, MemoryStream | None]] = {}
        self._watchers: Final[dict[asyncio.Event, str]] = {}
        self._batches = 0

    # ---- clients ---------------------------------------------------------------
    def disconnect(self, client: MemoryClient) -> None:
        """Take ``client`` off the server, as a broken network would."""
        client.set_reachable(reachable=False)
        self.wake()

    def reconnect(self, client: MemoryClient) -> None:
        """Let ``client`` connect again."""
        client.set_reachable(reachable=True)
        self.wake()

    # ---- core ------------------------------------------------------------------
    def subscribe(self, subscription: MemorySubscription) -> None:
        """Deliver to ``subscription`` from now on."""
        subject = subscription.subject
        if subject not in self._subscriptions and _has_wildcards(subject):
            self._patterns.clear()
        self._numbers += 1
        self._subscriptions.setdefault(subject, {})[subscription] = self._numbers

    def unsubscribe(self, subscription: MemorySubscription) -> None:
        """Deliver to ``subscription`` no more."""
        self._subscriptions.get(subscription.subject, {}).pop(subscription, None)

    def drop(self, client: MemoryClient) -> None:
        """Forget a client that left."""
        for subscriptions in self._subscriptions.values():
            for subscription in list(subscriptions):
                if subscription.client is client:
                    subscription.shut()
                    self.unsubscribe(subscription)

    def publish(self, subject: str, payload: bytes) -> None:
        """Take a core message; a stream that listens there stores it, unasked."""
        stream = self.owner(subject)
        if stream is None:
            self.deliver(subject, payload, None)
            return
        with suppress(RefusedError):
            self.append(stream, [Outgoing(subject=subject, payload=payload)])

    def deliver(
        self, subject: str, payload: bytes, headers: Mapping[str, str] | None
    ) -> None:
        """Hand a message to who listens and is connected, in order of subscribing."""
        listening = self._listening_on(subject)
        if listening:
            message = CoreMessage(subject=subject, payload=payload, headers=headers)
            for subscription in listening:
                if subscription.client.connected:
                    subscription.put(message)

    def _listening_on(self, subject: str) -> list[MemorySubscription]:
        exact = self._subscriptions.get(subject)
        patterns = self._patterns.get(subject)
        if patterns is None:
            patterns = self._remember_patterns(subject)
        if not patterns:
            return list(exact) if exact else []
        found = dict(exact or {})
        for pattern in patterns:
            found.update(self._subscriptions[pattern])
        return sorted(found, key=found.__getitem__)

    def _remember_patterns(self, subject: str) -> tuple[str, ...]:
        if len(self._patterns) >= _REMEMBERED_MAX:
            self._patterns.clear()
        found = tuple(
            pattern
            for pattern in self._subscriptions
            if _has_wildcards(pattern) and matches(pattern, subject)
        )
        self._patterns[subject] = found
        return found

    # ---- streams ---------------------------------------------------------------
    def create(self, spec: StreamSpec) -> None:
        """See `Broker.create_stream`."""
        held = self.streams.get(spec.name)
        if held is not None:
            differences = config_differences(spec, stream_config(held.spec))
            if differences:
                raise TopologyDriftError(differences=differences)
            return
        if spec.republish is not None and not mappable(*spec.republish):
            raise SettingsError(
                field="republish",
                value=spec.republish,
                rule="the destination must carry the source's wildcards over",
            )
        for other in self.streams.values():
            if any(overlap(a, b) for a in spec.subjects for b in other.spec.subjects):
                raise SettingsError(
                    field="request",
                    value=f"creating stream {spec.name}",
                    rule=f"subjects overlap with stream {other.spec.name}",
                )
        self.streams[spec.name] = self.new_stream(spec)
        self._owners.clear()

    def new_stream(self, spec: StreamSpec) -> MemoryStream:
        """An empty stream."""
        return MemoryStream(spec, self._clock)

    def delete(self, name: str) -> None:
        """See `Broker.delete_stream`."""
        self.streams.pop(name, None)
        self._owners.clear()
        self.wake()

    def owner(self, subject: str) -> MemoryStream | None:
        """Return the stream that stores ``subject``."""
        if subject in self._owners:
            return self._owners[subject]
        if len(self._owners) >= _REMEMBERED_MAX:
            self._owners.clear()
        found = (
            stream
            for stream in self.streams.values()
            if any(matches(pattern, subject) for pattern in stream.spec.subjects)
        )
        owner = self._owners[subject] = next(found, None)
        return owner

    def append(self, stream: MemoryStream, messages: Sequence[Outgoing]) -> Stored:
        """Store, republish, wake followers. A refused append reaches listeners too."""
        for message in messages:
            self.deliver(message.subject, message.payload, stored_headers(message))
        before = {m.subject: stream.last_on(m.subject) for m in messages}
        if len(messages) == 1:
            stored, appended = stream.store(messages[0])
        else:
            self._batches += 1
            stored, appended = stream.store_batch(messages, f"{self._batches:032x}")
        for made in appended:
            self._republish(stream.spec, made, before[made.subject])
            before[made.subject] = made.sequence
        self.wake(stream.spec.name)
        return stored

    def _republish(self, spec: StreamSpec, message: Message, before: int) -> None:
        if spec.republish is None or not matches(spec.republish[0], message.subject):
            return
        headers = {
            **(message.headers or {}),
            "Nats-Stream": spec.name,
            "Nats-Subject": message.subject,
            "Nats-Sequence": str(message.sequence),
            "Nats-Time-Stamp": message.stored_at.isoformat().replace("+00:00", "Z"),
            "Nats-Last-Sequence": str(before),  # of this subject
        }
        subject = mapped(message.subject, *spec.republish)
        self.deliver(subject, message.payload, headers)

    # ---- waking ----------------------------------------------------------------
    def watch(self, stream: str) -> asyncio.Event:
        """Return an event that is set when ``stream`` or a connection changes."""
        event = asyncio.Event()
        self._watchers[event] = stream
        return event

    def unwatch(self, event: asyncio.Event) -> None:
        """Forget ``event``."""
        self._watchers.pop(event, None)

    def wake(self, stream: str | None = None) -> None:
        """Wake who watches ``stream``; None: everybody."""
        for event, watched in list(self._watchers.items()):
            if stream is None or stream == watched:
                event.set()
