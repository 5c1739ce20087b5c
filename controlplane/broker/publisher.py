"""Appending: single messages and atomic batches, each with its own answer.

An answer is awaited on the link's own inbox under its own timeout, so that a lost one
costs its caller nothing but the knowledge. Before the first byte is sent a failure is
definite; after it, only an answer is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final
from uuid import uuid4

import msgspec

from controlplane.broker import Outgoing, Stored
from controlplane.broker.connection import Connection
from controlplane.broker.link import Link, LinkLostError
from controlplane.broker.translate import append_error, named, nats_errors
from controlplane.broker.wire import (
    Acknowledgement,
    RawMessage,
    parse_status,
    stored_headers,
)
from controlplane.errors import AppendOutcomeUnknownError, SettingsError

MAX_BATCH: Final = 1000
ACK_TIMEOUT_S: Final = 1.5
"""So long an answer is awaited, unless said otherwise; then its sender asks again.

Nobody beats for what is not known to be stored. So two answers in a row may be lost
within the shortest lease (`LEASE_TTL_S_MIN`), with a beat's way to spare. Sending the
same message again is safe, and answered as a duplicate.
"""
_DECODER: Final = msgspec.json.Decoder(Acknowledgement)


async def store(
    connection: Connection, stream: str, message: Outgoing, *, timeout_s: float | None
) -> Stored:
    """Store one message; see `Broker.store`."""
    link = connection.link or await connection.require(f"appending to {stream}")
    with nats_errors(url=connection.url, doing=f"appending to {stream}"):
        answer = await link.ask(
            message.subject,
            message.payload,
            timeout_s=ACK_TIMEOUT_S if timeout_s is None else timeout_s,
            headers=stored_headers(message),
        )
    return await _outcome(connection, answer, stream, (message,))


async def store_batch(
    connection: Connection,
    stream: str,
    messages: Sequence[Outgoing],
    *,
    timeout_s: float | None,
) -> Stored:
    """Store several messages atomically; see `Broker.store_batch`."""
    if not 0 < len(messages) <= MAX_BATCH:
        raise SettingsError(
            field="batch", value=len(messages), rule=f"1 to {MAX_BATCH} messages"
        )
    if len(messages) == 1:
        return await store(connection, stream, messages[0], timeout_s=timeout_s)
    link = await connection.require(f"appending to {stream}")
    with nats_errors(url=connection.url, doing=f"appending to {stream}"):
        answer = await _send_batch(
            link, messages, ACK_TIMEOUT_S if timeout_s is None else timeout_s
        )
    return await _outcome(connection, answer, stream, messages)


async def _send_batch(
    link: Link, messages: Sequence[Outgoing], timeout_s: float
) -> asyncio.Future[RawMessage]:
    """Send all; only the last, which commits, asks for an answer (ADR-50)."""
    batch_id = uuid4().hex
    for place, message in enumerate(messages[:-1], 1):
        headers = stored_headers(message, batch=(batch_id, place, False))
        await link.send(message.subject, message.payload, headers=headers)
    last = messages[-1]
    return await link.ask(
        last.subject,
        last.payload,
        timeout_s=timeout_s,
        headers=stored_headers(last, batch=(batch_id, len(messages), True)),
        subjects=tuple({message.subject for message in messages}),
    )


async def _outcome(
    connection: Connection,
    answer: asyncio.Future[RawMessage],
    stream: str,
    messages: Sequence[Outgoing],
) -> Stored:
    """Await the answer to something sent and say what it means."""
    try:
        raw = await answer
    except TimeoutError as error:
        reason = "no answer in time"
        raise AppendOutcomeUnknownError(
            subject=named(messages), reason=reason
        ) from error
    except LinkLostError as error:
        reason = "the connection was lost before the answer came"
        raise AppendOutcomeUnknownError(
            subject=named(messages), reason=reason
        ) from error
    if parse_status(raw.headers) is not None:
        reason = f"no stream listens on {messages[-1].subject}"
        doing = f"appending to {stream}"
        raise connection.unavailable(doing, reason)
    return _stored(connection, raw, stream, messages)


def _stored(
    connection: Connection,
    raw: RawMessage,
    stream: str,
    messages: Sequence[Outgoing],
) -> Stored:
    acknowledgement = _DECODER.decode(raw.payload)
    if acknowledgement.error is not None:
        raise append_error(
            acknowledgement.error, stream=stream, messages=messages, url=connection.url
        )
    if acknowledgement.stream != stream:
        raise SettingsError(
            field="stream",
            value=acknowledgement.stream,
            rule=f"{named(messages)} must belong to {stream}",
        )
    return Stored(sequence=acknowledgement.seq, duplicate=acknowledgement.duplicate)
