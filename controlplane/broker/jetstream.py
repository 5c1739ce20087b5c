"""`JetStreamBroker`: the broker protocol over nats-py and a real nats-server."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from typing import Final

from controlplane.broker import (
    Message,
    Outgoing,
    Stored,
    StreamSpec,
    StreamState,
    Subscription,
    publisher,
)
from controlplane.broker.api import JetStreamApi
from controlplane.broker.connection import Connection
from controlplane.broker.consumer import Wanted
from controlplane.broker.link import LinkLostError
from controlplane.broker.reader import Reader
from controlplane.broker.streams import Streams
from controlplane.broker.subscription import CoreSubscription
from controlplane.broker.translate import denied, nats_errors
from controlplane.errors import LogUnavailableError

_FLUSH_S: Final = 1.0


class JetStreamBroker:
    """One client's connection to NATS. See `Broker` for every promise."""

    def __init__(
        self,
        servers: str | Sequence[str],
        *,
        name: str,
        connect_timeout_s: float = 4.0,
        creds: str | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._connection: Final = Connection(
            servers,
            name=name,
            connect_timeout_s=connect_timeout_s,
            creds=creds,
            tls=tls,
        )
        api = JetStreamApi(self._connection)
        self._streams: Final = Streams(api)
        self._reader: Final = Reader(self._connection, api, self._streams)

    @property
    def url(self) -> str:
        """The URLs asked for, comma-separated, without credentials."""
        return self._connection.url

    @property
    def server_id(self) -> str | None:
        """The id of the NATS server connected to, or None."""
        link = self._connection.link
        return None if link is None else link.server_id

    @property
    def connected(self) -> bool:
        """Whether there is a connection right now, as far as is known."""
        return self._connection.link is not None

    # ---- lifetime --------------------------------------------------------------
    async def start(self) -> None:
        """Begin to connect, in the background, for ever."""
        self._connection.start()

    async def stop(self) -> None:
        """Flush within a second and close."""
        link = self._connection.link
        if link is not None:
            with suppress(LinkLostError, TimeoutError):
                await link.round_trip(_FLUSH_S)
        for attachment in list(self._connection.attachments):
            await attachment.close()
        await self._connection.stop()

    async def wait_connected(self, timeout_s: float) -> None:
        """Return when connected to a server that will do, else raise."""
        await self._connection.wait_judged(timeout_s)

    def on_connection(self, listener: Callable[[bool], None]) -> Callable[[], None]:
        """Call ``listener(connected)`` at each change; it must not raise."""
        return self._connection.on_change(listener)

    # ---- core ------------------------------------------------------------------
    async def publish(
        self, subject: str, payload: bytes, *, reply: str | None = None
    ) -> None:
        """Send a core message; drop it while disconnected."""
        link = self._connection.link
        if link is None:
            return
        with (
            suppress(LogUnavailableError),
            nats_errors(url=self.url, doing=f"publishing {subject}"),
        ):
            await link.send(subject, payload, reply=reply or "")

    async def subscribe(self, subject: str, *, limit: int = 65_536) -> Subscription:
        """Subscribe; on return the server has it if connected."""
        subscription = CoreSubscription(
            subject, limit=limit, attachments=self._connection.attachments
        )
        link = self._connection.link
        if link is None:
            return subscription
        try:
            with nats_errors(url=self.url, doing=f"subscribing to {subject}"):
                await subscription.attach(link)
                await link.round_trip(self._connection.connect_timeout_s)
        except LinkLostError:
            return subscription  # the next link will have it
        except BaseException:
            await subscription.close()
            raise
        if link.refused_subscription(subject):
            await subscription.close()
            raise denied(subject, verb="subscribe to")
        return subscription

    # ---- streams ---------------------------------------------------------------
    async def create_stream(self, spec: StreamSpec) -> None:
        """Create the stream; an identical existing one is fine."""
        await self._streams.create(spec)

    async def stream_differences(self, spec: StreamSpec) -> tuple[str, ...] | None:
        """How the existing stream differs from ``spec``; None: it does not exist."""
        return await self._streams.differences(spec)

    async def delete_stream(self, name: str) -> None:
        """Delete the stream; a missing one is fine."""
        await self._streams.delete(name)

    async def purge_stream(
        self, name: str, *, up_to: int | None = None, subject: str | None = None
    ) -> None:
        """Remove messages below sequence ``up_to`` and / or on ``subject``."""
        await self._streams.purge(name, up_to=up_to, subject=subject)

    async def state(self, stream: str) -> StreamState:
        """Ask the stream's leader."""
        return await self._streams.state(stream)

    async def count(self, stream: str, subject: str) -> int:
        """How many messages the stream holds on ``subject``."""
        return await self._streams.count(stream, subject)

    async def store(
        self, stream: str, message: Outgoing, *, timeout_s: float | None = None
    ) -> Stored:
        """Store one message, acknowledged."""
        return await publisher.store(
            self._connection, stream, message, timeout_s=timeout_s
        )

    async def store_batch(
        self,
        stream: str,
        messages: Sequence[Outgoing],
        *,
        timeout_s: float | None = None,
    ) -> Stored:
        """Store up to 1000 messages atomically."""
        return await publisher.store_batch(
            self._connection, stream, messages, timeout_s=timeout_s
        )

    async def get(self, stream: str, sequence: int) -> Message | None:
        """The message at ``sequence``, from the stream's leader; None: a hole."""
        return await self._streams.get(stream, sequence)

    async def last(self, stream: str, subject: str) -> Message | None:
        """The last message on ``subject``, from the stream's leader."""
        return await self._streams.last(stream, subject)

    def read(
        self,
        stream: str,
        *,
        after: int = 0,
        until: int | None = None,
        subject: str | None = None,
        last_per_subject: bool = False,
    ) -> AsyncIterator[list[Message]]:
        """Yield what the stream holds in (after, until], in order; end."""
        wanted = Wanted(
            stream=stream,
            after=after,
            subject=subject,
            last_per_subject=last_per_subject,
        )
        return self._reader.read(wanted, until)

    def follow(
        self, stream: str, *, after: int = 0, subject: str | None = None
    ) -> AsyncIterator[list[Message]]:
        """Yield what the stream holds after ``after``, in order, once, for ever."""
        return self._reader.follow(Wanted(stream=stream, after=after, subject=subject))
