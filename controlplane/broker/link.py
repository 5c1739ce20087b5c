"""One connection to one NATS server, from its handshake to its loss. Never reused.

nats-py speaks the protocol. What it does around a reconnection (buffering publishes,
giving up for good) is not used: when a link is lost, `Connection` opens another.
Messages of listened-to subjects go from the parser straight to a plain function,
without a task and a queue each: that is what replay's speed rests on.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Sequence
from typing import Final, Self

import msgspec
from nats.aio.client import PING_PROTO, Client
from nats.aio.transport import TcpTransport
from nats.errors import MaxPayloadError, SecureConnWantedError

from controlplane.broker.parsing import MessageParser
from controlplane.broker.translate import denied, denied_subject
from controlplane.broker.wire import RawMessage
from controlplane.logs import get_logger

_log: Final = get_logger("broker")

Sink = Callable[[RawMessage], None]

_CONNECT_TIMEOUT_S: Final = 2
_RETRY_S: Final = 0.1
_CLOSE_TIMEOUT_S: Final = 1.0
_NEVER_S: Final = 10**9
_HEADER_ROOM: Final = 4096


class LinkLostError(Exception):
    """The connection went away before the answer came. Stays in this package."""


class Login(msgspec.Struct, frozen=True, kw_only=True):
    """How to introduce oneself to a server."""

    name: str
    user: str | None = None
    password: str | None = None
    token: str | None = None
    creds: str | None = None
    tls: ssl.SSLContext | None = None


class _Waiting(msgspec.Struct, frozen=True, eq=False):
    """A request whose answer has not come."""

    answer: asyncio.Future[RawMessage]
    subjects: tuple[str, ...]
    timer: asyncio.TimerHandle


class Link(Client):
    """A connected NATS client with its own answers, sinks and loss signal."""

    def __init__(self) -> None:
        super().__init__()
        self.lost: Final = asyncio.Event()
        self.last_failure: Exception | None = None
        self._sinks: Final[dict[int, Sink]] = {}
        self._ps = MessageParser(self, self._sinks)
        self._waiting: Final[dict[bytes, _Waiting]] = {}
        self._watchers: Final[set[asyncio.Future[None]]] = set()
        self._refused: Final[set[str]] = set()
        self._tokens = 0
        self._inbox = ""

    async def open(self, servers: Sequence[str], login: Login) -> Self:
        """Try the servers in turn until one answers; raises what nats-py raises."""
        await self.connect(
            list(servers),
            name=login.name,
            allow_reconnect=False,
            max_reconnect_attempts=-1,
            reconnect_time_wait=_RETRY_S,  # type: ignore[arg-type]  # it only sleeps
            connect_timeout=_CONNECT_TIMEOUT_S,
            ping_interval=_NEVER_S,  # `Connection` pings
            pending_size=0,  # while disconnected nothing is buffered
            user=login.user,
            password=login.password,
            token=login.token,
            user_credentials=login.creds,
            tls=login.tls,
            error_cb=self._on_error,
        )
        self._inbox = f"{self.new_inbox()}."
        await self.listen(f"{self._inbox}*", self._on_answer)
        return self

    def _connect_command(self) -> bytes:
        """Who we are, for the server; not in the clear where TLS was asked for."""
        transport, server = self._transport, self._current_server
        wanted = self.options.get("tls") is not None or (
            server is not None and server.uri.scheme == "tls"
        )
        if wanted and isinstance(transport, TcpTransport):
            writer = transport._io_writer  # noqa: SLF001 - it goes by no other name
            if writer is None or writer.get_extra_info("ssl_object") is None:
                raise SecureConnWantedError
        return super()._connect_command()

    @property
    def up(self) -> bool:
        """Whether the link is usable, as far as is known."""
        return self.is_connected and not self.lost.is_set()

    @property
    def server_id(self) -> str:
        """The id that the server gave in its greeting."""
        return str(self._server_info.get("server_id", ""))

    @property
    def greeted_jetstream(self) -> bool:
        """Whether the server said in its greeting that it runs JetStream."""
        return bool(self._server_info.get("jetstream", False))

    async def shut(self) -> None:
        """Close, within a second, whatever the state. Nothing is raised for it."""
        self._mark_lost()
        if self._flush_queue is None:  # it never began to connect
            return
        try:
            async with asyncio.timeout(_CLOSE_TIMEOUT_S):
                await self.close()
        except (OSError, TimeoutError):
            if self._transport is not None:
                self._transport.close()  # type: ignore[no-untyped-call]

    # ---- sending ---------------------------------------------------------------
    async def send(
        self,
        subject: str,
        payload: bytes,
        *,
        reply: str = "",
        headers: dict[str, str] | None = None,
    ) -> None:
        """Publish now or raise what nats-py raises; never later."""
        size = len(payload)
        if headers and size > self.max_payload - _HEADER_ROOM:
            size += 12 + sum(len(k) + len(v) + 4 for k, v in headers.items())
        if size > self.max_payload:
            raise MaxPayloadError
        await self.publish(subject, payload, reply, headers)

    async def ask(
        self,
        subject: str,
        payload: bytes,
        *,
        timeout_s: float,
        headers: dict[str, str] | None = None,
        subjects: tuple[str, ...] = (),
    ) -> asyncio.Future[RawMessage]:
        """Send and return the future answer; an exception here means: not sent.

        The future fails with `TimeoutError`, with `LinkLostError`, or with
        `SettingsError` when the server refuses ``subject`` or one of ``subjects``.
        """
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[RawMessage] = loop.create_future()
        self._tokens += 1
        reply = f"{self._inbox}{self._tokens}"
        token = reply.encode()
        await self.send(subject, payload, reply=reply, headers=headers)
        timer = loop.call_later(timeout_s, self._expire, token)
        self._waiting[token] = _Waiting(answer, (subject, *subjects), timer)
        return answer

    async def round_trip(self, timeout_s: float) -> None:
        """Return when the server has seen everything sent before, else raise.

        nats-py's ``flush`` would not do. Its ping overtakes what waits to be written,
        and a caller that gives up on it kills the reader: the late pong finds a
        cancelled future. Here the ping queues up, and the future is left alone.
        """
        pong: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        if self.lost.is_set():
            raise LinkLostError
        self._pongs.append(pong)
        await self._send_command(PING_PROTO)
        await self._flush_pending()
        await asyncio.wait({pong}, timeout=timeout_s)
        if not pong.done():
            raise TimeoutError
        if not pong.result():
            raise LinkLostError

    def watch(self, future: asyncio.Future[None]) -> None:
        """Fail ``future`` with `LinkLostError` when the link is lost."""
        if self.lost.is_set():
            future.set_exception(LinkLostError())
            return
        self._watchers.add(future)
        future.add_done_callback(self._watchers.discard)

    # ---- receiving -------------------------------------------------------------
    async def listen(self, subject: str, sink: Sink) -> int:
        """Have each message on ``subject`` given to ``sink``, which must not raise."""
        await self.subscribe(subject)
        sid = self._sid  # nats-py numbers subscriptions in the order of the calls
        self._sinks[sid] = sink
        return sid

    async def forget(self, sid: int) -> None:
        """Stop listening; on a lost link there is nothing to stop."""
        self._sinks.pop(sid, None)
        subscription = self._subs.get(sid)
        if subscription is not None and self.up:
            await subscription.unsubscribe()

    def check_hearing(self) -> None:
        """Raise `SettingsError` if the server refused to let us hear any answer."""
        answers = f"{self._inbox}*"
        if self.refused_subscription(answers):
            raise denied(answers, verb="subscribe to")

    def refused_subscription(self, subject: str) -> bool:
        """Whether the server refused to let us listen to ``subject``."""
        return subject.lower() in self._refused

    def _on_answer(self, message: RawMessage) -> None:
        waiting = self._waiting.pop(message.subject, None)
        if waiting is None:
            return
        waiting.timer.cancel()
        if not waiting.answer.done():
            waiting.answer.set_result(message)

    def _expire(self, token: bytes) -> None:
        waiting = self._waiting.pop(token, None)
        if waiting is not None and not waiting.answer.done():
            waiting.answer.set_exception(TimeoutError())

    async def _on_error(self, error: Exception) -> None:
        self.last_failure = error
        found = denied_subject(error)
        if found is None:
            return
        verb, subject = found
        _log.warning("nats refused a subject", verb=verb, subject=subject)
        if verb == "subscription":
            self._refused.add(subject)
            return
        for waiting in list(self._waiting.values()):
            mine = next((s for s in waiting.subjects if s.lower() == subject), None)
            if mine is not None and not waiting.answer.done():
                waiting.answer.set_exception(denied(mine, verb="publish to"))

    # ---- losing ----------------------------------------------------------------
    async def _close(self, status: int, do_cbs: bool = True) -> None:  # noqa: FBT001, FBT002  # nats-py's signature
        self._mark_lost()
        await super()._close(status, do_cbs)

    def _mark_lost(self) -> None:
        self.lost.set()
        for waiting in self._waiting.values():
            waiting.timer.cancel()
            if not waiting.answer.done():
                waiting.answer.set_exception(LinkLostError())
        self._waiting.clear()
        for watcher in list(self._watchers):
            if not watcher.done():
                watcher.set_exception(LinkLostError())
        for pong in self._pongs:
            if not pong.done():
                pong.set_result(False)
