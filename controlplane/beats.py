"""Beats and notices: what workers and the leader say to each other beside the log.

Neither is stored. A beat keeps a lease; a notice tells one incarnation what became of
it. Both may be lost: beats repeat, and a notice is repeated while its cause lasts.
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

import msgspec

from events import Incarnation, Revision, read_or_none

NoticeKind: TypeAlias = Literal[
    "unknown", "expired", "superseded", "quarantined", "drain_requested"
]


class Beat(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A sign of life of one incarnation; its subject names the worker."""

    incarnation: Incarnation
    log_id: str
    revision: Revision
    """The last one acknowledged to this life: its registration, or a later event."""
    server_id: str = ""
    """The NATS server that the beat entered by."""


class WireNotice(msgspec.Struct, frozen=True, kw_only=True):
    """What the leader tells one incarnation; others on the subject ignore it."""

    incarnation: Incarnation
    kind: NoticeKind
    reason: str
    revision: Revision
    """The record that caused it, or how far the leader had folded."""


class Canary(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A projector's message to itself, the way that beats come."""

    projector: str
    number: int


_ENCODER: Final = msgspec.msgpack.Encoder()
_BEAT: Final = msgspec.msgpack.Decoder(Beat)
_NOTICE: Final = msgspec.msgpack.Decoder(WireNotice)
_CANARY: Final = msgspec.msgpack.Decoder(Canary)


def encode_signal(signal: Beat | WireNotice | Canary) -> bytes:
    """The signal as msgpack."""
    return _ENCODER.encode(signal)


def decode_beat(payload: bytes) -> Beat | None:
    """The beat in ``payload``; None: it is none."""
    return read_or_none(_BEAT, payload)


def decode_notice(payload: bytes) -> WireNotice | None:
    """The notice in ``payload``; None: it is none."""
    return read_or_none(_NOTICE, payload)


def decode_canary(payload: bytes) -> Canary | None:
    """The canary in ``payload``; None: it is none."""
    return read_or_none(_CANARY, payload)
