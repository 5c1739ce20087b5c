"""Bytes of events, and what to make of bytes that are none.

Reading never fails: a payload becomes an event, an `UnknownEvent` or an
`Undecodable`, decided by payload and subject alone, so live, restart, rebuild and
replay decide the same.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final, get_args

import msgspec

from .errors import InvalidIdentityError, UndecodableRecordError
from .identity import Revision
from .reading import UNREADABLE
from .record import AnyEvent, Record, Undecodable, UnknownEvent
from .subject import subject_of
from .upcast import Upcaster, UpcasterChain

EVENT_BYTES_MAX: Final = 262_144
"""What an event may take. A delta repeats it with more around it, and has to fit into
a broker's message (1 MiB) too: one giant would stop the view for good."""

UPCASTERS: Final[tuple[Upcaster, ...]] = ()
"""Steps from tags of the past; none yet: every event is in its first version."""


def _tag(event_type: type[msgspec.Struct]) -> str:
    return str(event_type.__struct_config__.tag)


EVENT_TYPES: Final = {_tag(kind): kind for kind in get_args(AnyEvent)}
"""Every current tag and the event that has it."""
CHAIN: Final = UpcasterChain(UPCASTERS, EVENT_TYPES)

_ENCODER: Final = msgspec.json.Encoder(order="deterministic")
_EVENT: Final = msgspec.json.Decoder(AnyEvent)
_JSON: Final = msgspec.json.Decoder()


def encode(event: AnyEvent) -> bytes:
    """The event as JSON; equal events are equal bytes.

    Raises `InvalidIdentityError` for an event that nobody would read: it is too large.
    """
    payload = _ENCODER.encode(event)
    if len(payload) > EVENT_BYTES_MAX:
        rule = f"at most {EVENT_BYTES_MAX} bytes as JSON"
        raise InvalidIdentityError(field="event", value=_size(payload), rule=rule)
    return payload


def decode(subject: str, payload: bytes) -> AnyEvent | UnknownEvent | Undecodable:
    """What ``payload`` on the relative ``subject`` says. Never raises."""
    if len(payload) > EVENT_BYTES_MAX:
        reason = f"{_size(payload)}, more than {EVENT_BYTES_MAX}"
        return Undecodable(reason=reason, payload=payload)
    try:
        event = _EVENT.decode(payload)
        if subject_of(event) == subject:
            return event
    except UNREADABLE:
        return _second_look(subject, payload, CHAIN)
    except InvalidIdentityError:
        pass  # it says why below
    return _placed(event, subject, payload)


def decode_event(subject: str, payload: bytes) -> AnyEvent:
    """As `decode`, for a caller that can use nothing but an event.

    Raises `UndecodableRecordError`.
    """
    match decode(subject, payload):
        case UnknownEvent(tag=tag):
            raise UndecodableRecordError(subject=subject, reason=f"unknown tag {tag}")
        case Undecodable(reason=reason):
            raise UndecodableRecordError(subject=subject, reason=reason)
        case event:
            return event


def decode_record(
    revision: Revision, recorded_at: datetime, subject: str, payload: bytes
) -> Record:
    """The record that a stored message is. Never raises."""
    return Record(revision, recorded_at, subject, decode(subject, payload))


def _size(payload: bytes) -> str:
    return f"{len(payload)} bytes"


def _placed(
    event: AnyEvent, subject: str, payload: bytes
) -> AnyEvent | UnknownEvent | Undecodable:
    try:
        belongs = subject_of(event)
    except InvalidIdentityError as error:
        return Undecodable(reason=str(error), payload=payload, event_id=event.event_id)
    if belongs == subject:
        return event
    return Undecodable(
        reason=f"the payload belongs on {belongs}, not on {subject}",
        payload=payload,
        event_id=event.event_id,
    )


def _second_look(
    subject: str, payload: bytes, chain: UpcasterChain
) -> AnyEvent | UnknownEvent | Undecodable:
    try:
        document = _JSON.decode(payload)
    except UNREADABLE as error:
        return Undecodable(reason=f"not JSON: {error}", payload=payload)
    if not isinstance(document, dict) or not isinstance(document.get("type"), str):
        return Undecodable(reason="not an object with a type", payload=payload)
    tag = document["type"]
    named = document.get("event_id")
    event_id = named if isinstance(named, str) else ""
    if tag not in EVENT_TYPES and tag not in chain:
        return UnknownEvent(tag=tag, payload=payload, event_id=event_id)
    try:
        event = msgspec.convert(chain.upcast(tag, document), AnyEvent)
    except Exception as error:  # noqa: BLE001 - an upcaster meets any document
        reason = f"{tag}: {error or type(error).__name__}"
        return Undecodable(reason=reason, payload=payload, event_id=event_id)
    return _placed(event, subject, payload)
