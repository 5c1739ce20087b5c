"""What NATS says on the wire: headers, statuses, acknowledgements, times. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import msgspec

from controlplane.broker import Message, Outgoing

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_STATUS_LINE: Final = b"NATS/1.0 "


class ApiError(msgspec.Struct, frozen=True, kw_only=True):
    """The ``error`` of a JetStream answer."""

    code: int = 0
    err_code: int = 0
    description: str = ""


class Acknowledgement(msgspec.Struct, frozen=True, kw_only=True):
    """JetStream's answer to a publish."""

    stream: str = ""
    seq: int = 0
    duplicate: bool = False
    error: ApiError | None = None


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """An inline status: ``NATS/1.0 408 Request Timeout`` and its headers."""

    code: int
    description: str
    headers: Mapping[str, str]


class RawMessage(msgspec.Struct, frozen=True, gc=False):
    """A message as it came off the socket, not yet looked at."""

    subject: bytes
    reply: bytes
    payload: bytes
    headers: bytes | None


class Headers(Mapping[str, str]):
    """A header block that is taken apart at the first look: few ever look.

    ``get`` of a name that stands nowhere in it is answered without.
    """

    __slots__ = ("_raw", "_read")

    def __init__(self, raw: bytes) -> None:
        """Of the block ``raw``."""
        self._raw: Final = raw
        self._read: dict[str, str] | None = None

    def get(self, name: str, default: Any = None) -> Any:  # noqa: ANN401 - as a dict's
        """The value of ``name``, or ``default``."""
        if self._read is None and name.encode() not in self._raw:
            return default
        return self._all().get(name, default)

    def __getitem__(self, name: str) -> str:
        """The value of ``name``. Raises KeyError."""
        return self._all()[name]

    def __iter__(self) -> Iterator[str]:
        """The names, in their order."""
        return iter(self._all())

    def __len__(self) -> int:
        """How many there are."""
        return len(self._all())

    def _all(self) -> dict[str, str]:
        if self._read is None:
            self._read = parse_headers(self._raw) or {}
        return self._read


def parse_headers(raw: bytes | None) -> dict[str, str] | None:
    """Read a header block; None when there is none."""
    if not raw:
        return None
    headers: dict[str, str] = {}
    lines = raw.decode("utf-8", "replace").split("\r\n")
    for line in lines[1:-2]:  # after the version, before the two empty ones
        name, _, value = line.partition(":")
        headers[name] = value.strip()
    return headers or None


def parse_status(raw: bytes | None) -> Status | None:
    """Read an inline status; None when the headers carry none."""
    if not raw or not raw.startswith(_STATUS_LINE):
        return None
    line = raw.split(b"\r\n", 1)[0][len(_STATUS_LINE) :].decode()
    code, _, description = line.partition(" ")
    return Status(
        code=int(code) if code.isdigit() else 0,
        description=description,
        headers=parse_headers(raw) or {},
    )


def parse_delivery(raw: RawMessage) -> tuple[Message, int, int]:
    """Read a delivered message, its number in its consumer, and how many follow it.

    Its place and time stand in the reply subject: ``$JS.ACK.[domain.account.]stream.
    consumer.delivered.sequence.consumer sequence.nanoseconds.pending[.random]``.
    """
    tokens = raw.reply.split(b".")
    at = 5 if len(tokens) == 9 else 7  # noqa: PLR2004  # the two layouts above
    sequence, number, time_ns, pending = map(int, tokens[at : at + 4])
    message = Message(
        subject=raw.subject.decode(),
        payload=raw.payload,
        sequence=sequence,
        stored_at=_EPOCH + timedelta(0, 0, time_ns // 1000),
        headers=Headers(raw.headers) if raw.headers else None,
    )
    return message, number, pending


def stored_headers(
    message: Outgoing, *, batch: tuple[str, int, bool] | None = None
) -> dict[str, str] | None:
    """Return the headers a message is sent, and then stored, with.

    ``batch``: the batch's id, the message's place in it from 1, whether it commits.
    """
    headers = dict(message.headers) if message.headers else {}
    if message.message_id is not None:
        headers["Nats-Msg-Id"] = message.message_id
    if message.expect_subject_sequence is not None:
        expected = str(message.expect_subject_sequence)
        headers["Nats-Expected-Last-Subject-Sequence"] = expected
    if message.expect_stream_sequence is not None:
        headers["Nats-Expected-Last-Sequence"] = str(message.expect_stream_sequence)
    if batch is not None:
        batch_id, place, commits = batch
        headers["Nats-Batch-Id"] = batch_id
        headers["Nats-Batch-Sequence"] = str(place)
        if commits:
            headers["Nats-Batch-Commit"] = "1"
    return headers or None


def parse_time(text: str) -> datetime:
    """Read the server's RFC 3339 time, truncated to microseconds."""
    return datetime.fromisoformat(text).astimezone(UTC)


def nanoseconds(seconds: float) -> int:
    """Return seconds as the API's durations."""
    return round(seconds * 1e9)


def decode_object(payload: bytes) -> dict[str, Any]:
    """Read a JetStream API answer, which is always a JSON object."""
    answer: dict[str, Any] = msgspec.json.decode(payload, type=dict[str, Any])
    return answer
