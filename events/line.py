"""A record as a line of JSON, for archives: read by people, jq and this code alike.

``{"revision": 7, "recorded_at": "…Z", "subject": "log.worker.prod.w1", "event": {…}}``

The event is the payload as it is stored, byte for byte. A payload that is no event
stands as ``payload``, its text, or as ``payload_base64``, and is decided by
`decode_record` when it is read, as it is live.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from datetime import datetime
from typing import Annotated, Final

import msgspec
from msgspec import UNSET, UnsetType

from .codec import EVENT_BYTES_MAX, decode, decode_record
from .errors import InvalidIdentityError
from .identity import Revision
from .reading import UNREADABLE
from .record import AnyEvent, Record
from .subject import subject_of

BRACKETS_MAX: Final = 200
"""What may be nested deeper stands as text, which no reader has to take apart."""

_Revision = Annotated[Revision, msgspec.Meta(ge=1)]
_Time = Annotated[datetime, msgspec.Meta(tz=True)]


class StoredRecord(msgspec.Struct, frozen=True, gc=False):
    """A record with its payload as it is stored, for copies that are exact."""

    revision: Revision
    recorded_at: datetime
    subject: str
    payload: bytes

    @property
    def record(self) -> Record:
        """What it says."""
        return decode_record(
            self.revision, self.recorded_at, self.subject, self.payload
        )


class _Place(msgspec.Struct, kw_only=True, gc=False):
    revision: _Revision
    recorded_at: _Time
    subject: str


class _EventLine(_Place, kw_only=True, gc=False):
    event: AnyEvent


class _AnyLine(_Place, kw_only=True):
    event: msgspec.Raw | UnsetType = UNSET
    payload: str | UnsetType = UNSET
    payload_base64: str | UnsetType = UNSET


_ENCODER: Final = msgspec.json.Encoder()
_EVENTS: Final = msgspec.json.Decoder(_EventLine)
_ANY: Final = msgspec.json.Decoder(_AnyLine)


def encode_line(stored: StoredRecord) -> bytes:
    """The record as one line, without its end; `stored_of` gives the same back."""
    place = _ENCODER.encode(
        _Place(
            revision=stored.revision,
            recorded_at=stored.recorded_at,
            subject=stored.subject,
        )
    )
    return b"%b,%b}" % (place[:-1], _payload(stored.subject, stored.payload))


def records_of(lines: bytes) -> list[Record]:
    """The records in lines that `encode_line` made. Raises `UNREADABLE`."""
    if len(lines) <= EVENT_BYTES_MAX or not _has_long_line(lines):
        try:
            return [
                Record(line.revision, line.recorded_at, line.subject, line.event)
                for line in _EVENTS.decode_lines(lines)
                if _belongs(line)
            ]
        except _OTHER:
            pass  # something else than an event is among them
    return [stored.record for stored in stored_of(lines)]


def stored_of(lines: bytes) -> list[StoredRecord]:
    """As `records_of`, with each payload as it is stored. Raises `UNREADABLE`."""
    return [
        StoredRecord(line.revision, line.recorded_at, line.subject, _stored(line))
        for line in _ANY.decode_lines(lines)
    ]


class _MisplacedError(Exception):
    """An event stands on a subject that is not its own: that is no event."""


_OTHER: Final = (*UNREADABLE, _MisplacedError)


def _belongs(line: _EventLine) -> bool:
    """True. Raises `_MisplacedError`."""
    try:
        if subject_of(line.event) == line.subject:
            return True
    except InvalidIdentityError:
        pass
    raise _MisplacedError


def _has_long_line(lines: bytes) -> bool:
    return any(len(line) > EVENT_BYTES_MAX for line in lines.split(b"\n"))


def _payload(subject: str, payload: bytes) -> bytes:
    """The field that holds ``payload``, and its name."""
    try:
        text = payload.decode()
    except UnicodeDecodeError:
        return b'"payload_base64":"%b"' % b64encode(payload)
    if _stands_alone(payload) and isinstance(decode(subject, payload), AnyEvent):
        return b'"event":%b' % payload
    return b'"payload":%b' % _ENCODER.encode(text)


def _stands_alone(payload: bytes) -> bool:
    """Whether the bytes between two braces come back as they are, if they are JSON."""
    return (
        payload[:1] == b"{"
        and payload[-1:] == b"}"
        and b"\n" not in payload
        and payload.count(b"{") + payload.count(b"[") <= BRACKETS_MAX
    )


def _stored(line: _AnyLine) -> bytes:
    if not isinstance(line.event, UnsetType):
        return bytes(line.event)
    try:
        if not isinstance(line.payload, UnsetType):
            return line.payload.encode()
        if not isinstance(line.payload_base64, UnsetType):
            return b64decode(line.payload_base64, validate=True)
    except ValueError as error:
        message = f"revision {line.revision}: {error}"
        raise msgspec.ValidationError(message) from error
    message = f"revision {line.revision} has no payload"
    raise msgspec.ValidationError(message)
