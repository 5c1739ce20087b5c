"""The broker as the rest of the code sees it: streams, core messages, nothing else.

This is the one seam between the control plane and NATS. Two adapters implement
`Broker`: `jetstream` (the real server, through nats-py) and `memory` (a server in
this process). One contract suite holds both to the same behaviour, error by error.

A KV bucket is a stream with one message per subject and an age limit, so it needs no
verbs of its own: create is `store` with an expectation of 0, update is `store` with
the entry's sequence, get is `last`, the listing is `read(last_per_subject=True)`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from datetime import datetime
from typing import Final, Protocol

import msgspec

OLDEST_SERVER: Final = (2, 12, 1)
"""The first nats-server that passes the contract suite; 2.12.0 fails it on batches."""
COUNTED_MAX: Final = 100_000
"""Of so many subjects the server tells in one answer how many messages they have."""


class Message(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A stored message: one position of one stream."""

    subject: str
    payload: bytes
    sequence: int
    stored_at: datetime
    """UTC, the broker's clock, truncated to microseconds."""
    headers: Mapping[str, str] | None = None


class CoreMessage(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A message of core NATS: delivered at most once, stored nowhere."""

    subject: str
    payload: bytes
    headers: Mapping[str, str] | None = None
    """A republished message carries ``Nats-Sequence``, ``Nats-Last-Sequence``…"""


class Outgoing(msgspec.Struct, frozen=True, kw_only=True):
    """A message to store, with what must hold for it to be stored."""

    subject: str
    payload: bytes
    message_id: str | None = None
    """``Nats-Msg-Id``; the stream's duplicate window knows it."""
    expect_subject_sequence: int | None = None
    """Last sequence of this subject; 0: the subject must be new."""
    expect_stream_sequence: int | None = None
    """Last sequence of the stream; in a batch on the first message only."""
    headers: Mapping[str, str] | None = None


class Stored(msgspec.Struct, frozen=True, kw_only=True):
    """The broker's acknowledgement: of a batch, the sequence of its last message."""

    sequence: int
    duplicate: bool = False


class StreamState(msgspec.Struct, frozen=True, kw_only=True):
    """Where a stream stands, answered by the stream's leader."""

    first_sequence: int
    """1 for a new stream; last_sequence + 1 when it holds nothing."""
    last_sequence: int
    messages: int
    bytes: int
    max_bytes: int
    """-1: no limit."""
    metadata: Mapping[str, str]
    now: datetime
    """UTC, the broker's clock when it answered."""
    replicas: int = 1
    subjects: int = 0
    """How many different subjects its messages have."""


class StreamSpec(msgspec.Struct, frozen=True, kw_only=True):
    """How a stream must be. Durations in seconds; 0 or -1: no limit."""

    name: str
    subjects: tuple[str, ...]
    description: str = ""
    max_age_s: float = 0.0
    max_bytes: int = -1
    max_messages_per_subject: int = -1
    discard_new: bool = False
    deny_delete: bool = False
    allow_atomic: bool = False
    allow_direct: bool = True
    allow_rollup: bool = False
    republish: tuple[str, str] | None = None
    """(source subject, destination subject)."""
    duplicate_window_s: float = 120.0
    replicas: int = 1
    metadata: Mapping[str, str] = {}
    """Set at creation. On an existing stream other values are no drift."""


class Subscription(Protocol):
    """A core subscription. Iterate it; close it."""

    lost: int
    """Messages dropped because the reader was slower than its limit."""

    def __aiter__(self) -> AsyncIterator[CoreMessage]:
        """Yield messages in order of arrival until closed."""
        ...

    async def close(self) -> None:
        """Unsubscribe; a pending iteration ends. Idempotent."""
        ...


class Broker(Protocol):
    """One client's connection to the broker.

    Every call below raises `LogUnavailableError` when there is no connection or no
    answer within ``settings.connect_timeout_s`` (unless said otherwise). No exception
    of nats-py leaves an adapter. A refused permission is `SettingsError`.
    """

    @property
    def url(self) -> str:
        """The URL or URLs asked for, as text, without credentials."""
        ...

    @property
    def server_id(self) -> str | None:
        """The id of the NATS server connected to, or None."""
        ...

    @property
    def connected(self) -> bool:
        """Whether there is a connection right now, as far as is known."""
        ...

    async def start(self) -> None:
        """Begin to connect, in the background, for ever. Returns at once."""
        ...

    async def stop(self) -> None:
        """Flush what is possible within a second and close. Idempotent."""
        ...

    async def wait_connected(self, timeout_s: float) -> None:
        """Return when connected to a JetStream server new enough, else raise.

        Raises `LogUnavailableError` after ``timeout_s``; `SettingsError` when
        JetStream is disabled, the server is older than `OLDEST_SERVER` or credentials
        are refused.
        """
        ...

    def on_connection(self, listener: Callable[[bool], None]) -> Callable[[], None]:
        """Call ``listener(connected)`` at each change; returns how to stop that."""
        ...

    # ---- core ------------------------------------------------------------------
    async def publish(
        self, subject: str, payload: bytes, *, reply: str | None = None
    ) -> None:
        """Send a core message: at most once, never acknowledged.

        While disconnected it is dropped (not buffered): it would be stale later.
        """
        ...

    async def subscribe(self, subject: str, *, limit: int = 65_536) -> Subscription:
        """Subscribe; on return the server has it (flushed) if connected.

        It survives reconnects. At most ``limit`` messages wait; then the oldest are
        dropped and `Subscription.lost` counts them.
        """
        ...

    # ---- streams ---------------------------------------------------------------
    async def create_stream(self, spec: StreamSpec) -> None:
        """Create the stream; an identical existing one is fine.

        Raises `TopologyDriftError` naming each difference to an existing stream.
        """
        ...

    async def stream_differences(self, spec: StreamSpec) -> tuple[str, ...] | None:
        """How the existing stream differs from ``spec``; None: it does not exist."""
        ...

    async def delete_stream(self, name: str) -> None:
        """Delete the stream; a missing one is fine."""
        ...

    async def purge_stream(
        self, name: str, *, up_to: int | None = None, subject: str | None = None
    ) -> None:
        """Remove messages below sequence ``up_to`` and / or on ``subject``."""
        ...

    async def state(self, stream: str) -> StreamState:
        """Ask the stream's leader. Raises `LogUnavailableError` if it is missing."""
        ...

    async def count(self, stream: str, subject: str) -> int:
        """How many messages the stream holds on ``subject``, by its leader.

        ``subject`` may have wildcards. Of more than `COUNTED_MAX` different subjects
        only the first are counted.
        """
        ...

    async def store(
        self, stream: str, message: Outgoing, *, timeout_s: float | None = None
    ) -> Stored:
        """Store one message, acknowledged.

        Raises `AppendConflictError` (10071, 10164) when an expectation failed,
        `LogFullError` when the stream is full, `AppendOutcomeUnknownError` when it was
        sent and no definite answer came (timeout, disconnection, 10158),
        `LogUnavailableError` when it certainly was not stored (never sent, or no
        stream listens). Any number may be in flight at once.
        """
        ...

    async def store_batch(
        self,
        stream: str,
        messages: Sequence[Outgoing],
        *,
        timeout_s: float | None = None,
    ) -> Stored:
        """Store up to 1000 messages atomically, all or nothing, in this order.

        They get consecutive sequences ending at `Stored.sequence`. Raises as `store`
        does. A known message id (10201) is `AppendConflictError` with that code. Each
        call uses a new batch id. One message is stored plainly.
        """
        ...

    async def get(self, stream: str, sequence: int) -> Message | None:
        """The message at ``sequence``, from the stream's leader; None: a hole."""
        ...

    async def last(self, stream: str, subject: str) -> Message | None:
        """The last message on ``subject``, from the stream's leader."""
        ...

    def read(
        self,
        stream: str,
        *,
        after: int = 0,
        until: int | None = None,
        subject: str | None = None,
        last_per_subject: bool = False,
    ) -> AsyncIterator[list[Message]]:
        """Yield what the stream holds in (after, until], in order, in batches; end.

        ``until=None``: the last sequence when called. Reads are complete or raise
        `LogUnavailableError`; holes are passed over.
        """
        ...

    def follow(
        self, stream: str, *, after: int = 0, subject: str | None = None
    ) -> AsyncIterator[list[Message]]:
        """Yield what the stream holds after ``after``, in order, once, for ever.

        It survives reconnects, server restarts, deleted consumers and overflow by
        resuming from its own last sequence. An empty list is yielded after each such
        resumption (so that the reader can look whether the history is still the same)
        and never otherwise. While the broker is away it waits. If the stream now ends
        below the last sequence seen, or is missing, it raises `HistoryForkedError`.
        """
        ...
