"""Subjects: where in the log an event belongs. The subject is the identity.

Subjects here are relative to a cell: ``log.worker.prod.w1``; on the wire they stand
under ``cp.{cell}.``. Free texts (worker id, host, model) become one token each by
percent-encoding everything outside ``[A-Za-z0-9_-]``: reversible and free of
collisions. Namespaces are validated instead, and stand as they are.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final, Literal, TypeAlias, assert_never, get_args

import msgspec

from .errors import InvalidIdentityError
from .identity import Host, Namespace, WorkerId, check_namespace
from .port import PortEvent
from .record import AnyEvent
from .setting import (
    LoadThresholdsSet,
    ModelForgotten,
    TrafficWeightSet,
    WorkerHeld,
    WorkerResumed,
)
from .worker import WorkerEvent

SettingKind: TypeAlias = Literal["hold", "weight", "thresholds", "forget"]

_SAFE: Final = re.compile(r"[A-Za-z0-9_-]+")
_UNSAFE: Final = re.compile(rb"[^A-Za-z0-9_-]")
_ESCAPE: Final = re.compile(rb"%([0-9A-F]{2})")
_SCOPE_SIZE: Final = {"hold": 2, "weight": 2, "thresholds": 1, "forget": 1}
PORT_MAX: Final = 65535


class WorkerSubject(msgspec.Struct, frozen=True):
    """The subject of one worker's events, all incarnations."""

    namespace: Namespace
    worker_id: WorkerId


class PortSubject(msgspec.Struct, frozen=True):
    """The subject of one port's claims and releases."""

    host: Host
    port: int


class SettingSubject(msgspec.Struct, frozen=True):
    """The subject of one operator's setting; ``scope`` in plain text."""

    kind: SettingKind
    scope: tuple[str, ...]


Subject: TypeAlias = WorkerSubject | PortSubject | SettingSubject


@lru_cache(maxsize=65_536)
def encode_token(text: str) -> str:
    """One subject token for any non-empty text. Raises `InvalidIdentityError`."""
    if _SAFE.fullmatch(text):
        return text
    try:
        raw = text.encode()
    except UnicodeEncodeError as error:
        raise InvalidIdentityError(
            field="name", value=text, rule="must be encodable as UTF-8"
        ) from error
    if not raw:
        raise InvalidIdentityError(field="name", value=text, rule="must not be empty")
    return _UNSAFE.sub(lambda m: b"%%%02X" % m[0][0], raw).decode("ascii")


def decode_token(token: str) -> str | None:
    """The text that `encode_token` made this token of; None: it made no such token."""
    if _SAFE.fullmatch(token):
        return token
    try:
        raw = _ESCAPE.sub(lambda m: bytes([int(m[1], 16)]), token.encode("ascii"))
        text = raw.decode()
    except UnicodeError:
        return None
    return text if text and encode_token(text) == token else None


def worker_subject(namespace: Namespace, worker_id: WorkerId) -> str:
    """``log.worker.{namespace}.{worker}``. Raises `InvalidIdentityError`."""
    return f"log.worker.{_namespace(namespace)}.{encode_token(worker_id)}"


def port_subject(host: Host, port: int) -> str:
    """``log.port.{host}.{port}``. Raises `InvalidIdentityError`."""
    if not 0 <= port <= PORT_MAX:
        raise InvalidIdentityError(field="port", value=port, rule=f"0 to {PORT_MAX}")
    return f"log.port.{encode_token(host)}.{port}"


def setting_subject(kind: SettingKind, *scope: str) -> str:
    """``log.setting.{kind}.{scope…}``. Raises `InvalidIdentityError`.

    Of a scope of two the first is a namespace, which is a token already.
    """
    if _SCOPE_SIZE[kind] == len(("namespace", "name")):
        _namespace(scope[0])
    return ".".join(("log.setting", kind, *map(encode_token, scope)))


def subject_of(event: AnyEvent) -> str:
    """The subject on which this event belongs.

    Raises `InvalidIdentityError` if it names what no subject can name.
    """
    # Nearly all are of a worker or a port, and a match costs more.
    if isinstance(event, WorkerEvent):
        namespace, token = _namespace(event.namespace), encode_token(event.worker_id)
        return f"log.worker.{namespace}.{token}"
    if isinstance(event, PortEvent):
        return port_subject(event.host, event.port)
    match event:
        case WorkerHeld() | WorkerResumed():
            return setting_subject("hold", event.namespace, event.worker_id)
        case TrafficWeightSet():
            return setting_subject("weight", event.namespace, event.model)
        case LoadThresholdsSet():
            return setting_subject("thresholds", event.model)
        case ModelForgotten():
            return setting_subject("forget", event.model)
        case _:
            assert_never(event)


def parse_subject(subject: str) -> Subject | None:
    """What a relative subject names; None: nothing that this version knows."""
    match subject.split("."):
        case ["log", "worker", namespace, worker]:
            worker_id = decode_token(worker)
            if worker_id is None or not _is_namespace(namespace):
                return None
            return WorkerSubject(namespace, worker_id)
        case ["log", "port", token, digits]:
            host = decode_token(token)
            return None if host is None else _port(host, digits)
        case ["log", "setting", kind, *tokens] if _SCOPE_SIZE.get(kind) == len(tokens):
            scope = tuple(decode_token(token) for token in tokens)
            return _setting(kind, scope)
        case _:
            return None


def _port(host: str, digits: str) -> PortSubject | None:
    if not (digits.isascii() and digits.isdecimal()) or len(digits) > len("65535"):
        return None
    port = int(digits)
    return PortSubject(host, port) if str(port) == digits and port <= PORT_MAX else None


def _setting(kind: str, scope: tuple[str | None, ...]) -> SettingSubject | None:
    texts = tuple(text for text in scope if text is not None)
    if len(texts) != len(scope):
        return None
    if len(texts) == len(("namespace", "name")) and not _is_namespace(texts[0]):
        return None
    return next(
        (SettingSubject(k, texts) for k in get_args(SettingKind) if k == kind), None
    )


@lru_cache(maxsize=4096)
def _namespace(text: str) -> Namespace:
    return check_namespace(text)


def _is_namespace(token: str) -> bool:
    try:
        _namespace(token)
    except InvalidIdentityError:
        return False
    return True
