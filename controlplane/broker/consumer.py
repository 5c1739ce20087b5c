"""An ephemeral pull consumer: what it was asked for and what it delivered.

The server forgets it by itself when nobody pulls for `_FORGET_S`; `close` deletes it.
"""

from __future__ import annotations

import asyncio
from typing import Final

import msgspec
import nats.errors

from controlplane.broker import Message
from controlplane.broker.api import Answer, JetStreamApi, error_of
from controlplane.broker.link import Link
from controlplane.broker.translate import STREAM_NOT_FOUND, nats_errors
from controlplane.broker.wire import (
    RawMessage,
    Status,
    nanoseconds,
    parse_delivery,
    parse_status,
)

_BATCH: Final = 4096
_BATCH_BYTES: Final = 16 * 1024 * 1024
_EXPIRES_S: Final = 30.0
_HEARTBEAT_S: Final = 0.4
_SILENCE_S: Final = 1.0
_FORGET_S: Final = 30.0
_PONG_S: Final = 3.0
_PULL: Final = msgspec.json.encode(
    {
        "batch": _BATCH,
        "max_bytes": _BATCH_BYTES,
        "expires": nanoseconds(_EXPIRES_S),
        "idle_heartbeat": nanoseconds(_HEARTBEAT_S),
    }
)
_HEARTBEAT, _NO_MESSAGES, _EXPIRED = 100, 404, 408
_BATCH_ENDS: Final = ("Batch Completed", "Message Size Exceeds MaxBytes")
_UNSERVED: Final = "Nats-Pending-Messages"
_SENT: Final = "Nats-Last-Consumer"


class ConsumerLostError(Exception):
    """The consumer, or a delivery of it, is gone. Stays in this package."""


class StreamMissingError(Exception):
    """There is no such stream. Stays in this package."""


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """What to read."""

    stream: str
    after: int
    subject: str | None = None
    last_per_subject: bool = False


class Consumer:
    """Delivers what is `Wanted`, in order, each message once, or says that it cannot.

    ``progress_s`` bounds the wait for a message; None: while heartbeats come.
    """

    def __init__(
        self,
        api: JetStreamApi,
        link: Link,
        wanted: Wanted,
        *,
        progress_s: float | None = None,
    ) -> None:
        self._api: Final = api
        self._link: Final = link
        self._wanted: Final = wanted
        self._progress_s: Final = progress_s
        self._inbox: Final = link.new_inbox()
        self._name = ""
        self._sid: int | None = None
        self._raw: list[RawMessage] = []
        self._heard = False
        self._wake: asyncio.Future[None] | None = None
        self._asked = 0
        self._delivered = 0
        self._pending = 0

    @property
    def exhausted(self) -> bool:
        """Whether the server had nothing more when it sent the last message taken."""
        return self._pending == 0

    async def open(self, *, timeout_s: float) -> None:
        """Create it. `StreamMissingError`, or what `JetStreamApi.query_on` raises.

        Each time that it has to be asked for, it gets another name: the first one may
        yet come to be, on a server that is gone by then.
        """
        doing = f"reading {self._wanted.stream}"
        with nats_errors(url=self._api.url, doing=doing):
            self._sid = await self._link.listen(self._inbox, self._on_message)
        answer = await self._api.query_on(
            self._link, self._creation, doing=doing, timeout_s=timeout_s
        )
        error = error_of(answer)
        if error is not None and error.err_code == STREAM_NOT_FOUND:
            raise StreamMissingError
        self._pending = self._api.checked(answer, doing=doing)["num_pending"]

    def _creation(self) -> tuple[str, Answer]:
        """How to ask for it, under a name that nobody asked for before."""
        self._name = self._link.new_inbox().rpartition(".")[2]
        config = self._config()
        path = f"CONSUMER.CREATE.{self._wanted.stream}.{self._name}"
        if "filter_subject" in config:
            path = f"{path}.{config['filter_subject']}"
        body = {
            "stream_name": self._wanted.stream,
            "config": config,
            "action": "create",
        }
        return path, body

    async def take(self) -> list[Message]:
        """Return what has been delivered and not been taken, at least one message.

        Raises `ConsumerLostError`, `LinkLostError` or `TimeoutError`.
        """
        async with asyncio.timeout(self._progress_s):
            while True:
                await self._pull()
                while not self._raw:
                    await self._hear()
                raw, self._raw = self._raw, []
                if messages := self._read(raw):
                    await self._pull()
                    return messages

    async def close(self) -> None:
        """Delete it, as far as that is possible now."""
        if self._sid is None:
            return
        sid, self._sid = self._sid, None
        await self._link.forget(sid)
        if self._link.up:
            path = f"$JS.API.CONSUMER.DELETE.{self._wanted.stream}.{self._name}"
            try:
                await self._link.send(path, b"")
            except nats.errors.Error:
                return  # the server forgets it by itself

    # ---- asking ----------------------------------------------------------------
    def _config(self) -> dict[str, object]:
        wanted = self._wanted
        config: dict[str, object] = {
            "name": self._name,
            "ack_policy": "none",
            "mem_storage": True,
            "num_replicas": 1,
            "inactive_threshold": nanoseconds(_FORGET_S),
        }
        if wanted.last_per_subject:
            config["deliver_policy"] = "last_per_subject"
            config["filter_subject"] = wanted.subject or ">"
            return config
        config["deliver_policy"] = "by_start_sequence"
        config["opt_start_seq"] = wanted.after + 1
        if wanted.subject is not None:
            config["filter_subject"] = wanted.subject
        return config

    async def _pull(self) -> None:
        """Keep at least one batch asked for beyond what has been delivered."""
        if self._asked > _BATCH:
            return
        path = f"$JS.API.CONSUMER.MSG.NEXT.{self._wanted.stream}.{self._name}"
        while self._asked <= _BATCH:
            self._asked += _BATCH
            with nats_errors(url=self._api.url, doing=f"reading {self._wanted.stream}"):
                await self._link.send(path, _PULL, reply=self._inbox)

    # ---- hearing ---------------------------------------------------------------
    def _on_message(self, raw: RawMessage) -> None:
        self._raw.append(raw)
        self._heard = True
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    async def _hear(self) -> None:
        """Wait until something arrives; silence beyond the heartbeat means: lost."""
        self._heard = False
        self._wake = asyncio.get_running_loop().create_future()
        self._link.watch(self._wake)
        try:
            async with asyncio.timeout(_SILENCE_S):
                await self._wake
        except TimeoutError:
            # If it was we who stood still, what came meanwhile is here after this.
            await self._link.round_trip(_PONG_S)
            if not self._heard:
                reason = "no heartbeat"
                raise ConsumerLostError(reason) from None
        finally:
            self._wake = None

    def _read(self, raws: list[RawMessage]) -> list[Message]:
        messages: list[Message] = []
        for raw in raws:
            if not raw.reply:
                self._note(parse_status(raw.headers))
                continue
            message, number, self._pending = parse_delivery(raw)
            self._delivered += 1
            if number != self._delivered:
                reason = "a delivery was lost"
                raise ConsumerLostError(reason)
            messages.append(message)
        self._asked -= len(messages)
        return messages

    def _note(self, status: Status | None) -> None:
        """Take account of a status: a heartbeat, the end of a pull, or of us."""
        if status is None:
            return
        if status.code == _HEARTBEAT:
            if int(status.headers.get(_SENT, 0)) > self._delivered:
                reason = "the last delivery was lost"
                raise ConsumerLostError(reason)
            return
        ended = (
            status.code in (_NO_MESSAGES, _EXPIRED) or status.description in _BATCH_ENDS
        )
        if not ended:
            raise ConsumerLostError(status.description)
        self._asked -= int(status.headers.get(_UNSERVED, 0))
