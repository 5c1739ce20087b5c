"""Names of things, and the rules they keep. One word per idea.

The aliases say in signatures which kind of text is meant. The ``check_…`` functions
return their value unchanged or raise `InvalidIdentityError`; whoever lets a name in
(a client, the command line) calls them before anything is sent. Folds never do: what
is in the log is in the log.
"""

from __future__ import annotations

import enum
import ipaddress
import re
from collections.abc import Collection, Mapping
from typing import Annotated, Final, TypeAlias
from urllib.parse import urlsplit

import msgspec

from .errors import InvalidIdentityError

Cell: TypeAlias = str
"""One independent control plane on a NATS system."""
Namespace: TypeAlias = str
"""A deployment; a rolling update's new generation is ``{base}-{suffix}``."""
WorkerId: TypeAlias = str
"""Names a serving process; unique in its namespace, may outlive restarts."""
Incarnation: TypeAlias = str
"""One life of a worker: a UUIDv7 made by the client at its start."""
ModelName: TypeAlias = str
"""The name requests ask for: a base model's, or a LoRA adapter's."""
Host: TypeAlias = str
"""The address by which others reach a machine."""
Revision: TypeAlias = int
"""Position in the log: the stream sequence of an event. The first is 1."""
Checksum: TypeAlias = str
"""32 hex digits over everything about a worker that changes its answers."""

Whole: TypeAlias = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
"""A stored number: JSON has no bound, but what is derived from it has 64 bits."""

LEASE_TTL_S_MIN: Final = 5.0
LEASE_TTL_S_MAX: Final = 3600.0
WORKER_ID_BYTES_MAX: Final = 128
HOST_BYTES_MAX: Final = 253
MODEL_BYTES_MAX: Final = 256
LABELS_MAX: Final = 64
LABEL_BYTES_MAX: Final = 256
NAME_BYTES_MAX: Final = 128
REASON_BYTES_MAX: Final = 1024

_CELL: Final = re.compile(r"[a-z0-9-]{1,32}")
_NAMESPACE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,127}")
_CONTROL: Final = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")
"""What breaks a line, or does more to whoever's terminal shows it."""
_NUMBERS: Final = re.compile(r"[0-9.]*\.[0-9.]*")


class Role(enum.Enum):
    """The part of a request that a worker serves."""

    AGGREGATED = "aggregated"
    PREFILL = "prefill"
    DECODE = "decode"
    ENCODE = "encode"


ENTRY_ROLES: Final = frozenset({Role.AGGREGATED, Role.DECODE})
"""Roles at which a request may start."""


class Status(enum.Enum):
    """What a worker says of itself."""

    STARTING = "starting"
    READY = "ready"
    DRAINING = "draining"
    DRAINED = "drained"


Needs: TypeAlias = tuple[tuple[Role, ...], ...]
"""Alternatives, each a list of roles that must all be live; empty: needs nothing."""


def check_cell(value: str) -> Cell:
    """Return ``value`` if it is a cell's name, else raise `InvalidIdentityError`."""
    return _matching("cell", value, _CELL, "1 to 32 of a-z, 0-9 and -")


def check_namespace(value: str) -> Namespace:
    """Return ``value`` if it is a namespace, else raise `InvalidIdentityError`."""
    rule = "1 to 128 of A-Z, a-z, 0-9, _ and -, beginning with a letter or digit"
    return _matching("namespace", value, _NAMESPACE, rule)


def check_worker_id(value: str) -> WorkerId:
    """Return ``value`` if it is a worker id, else raise `InvalidIdentityError`."""
    return _text("worker_id", value, WORKER_ID_BYTES_MAX)


def check_host(value: str) -> Host:
    """Return ``value`` if it is a host's name, else raise `InvalidIdentityError`."""
    return _text("host", value, HOST_BYTES_MAX)


def canonical_host(value: str) -> Host:
    """The one spelling of a host's name: two spellings would be two hosts.

    An IP address as `ipaddress` writes it, IPv4 also where it is mapped into IPv6, and
    a zone as it is; of a name the small letters, without the dot of its root. Raises
    `InvalidIdentityError` for what is no host's name.
    """
    rule = "a host's name or IP address, without blanks and control characters"
    text = check_host(value)
    if any(one.isspace() or not one.isprintable() for one in text):
        raise InvalidIdentityError(field="host", value=value, rule=rule)
    text = text.removesuffix(".")
    name, bare = text.lower(), text[1:-1] if text[:1] + text[-1:] == "[]" else text
    try:
        address = ipaddress.ip_address(bare)
    except ValueError:
        if not name or _NUMBERS.fullmatch(name):
            # Resolvers read 10.1 as 10.0.0.1, and 010.1.1.1 each in its own way.
            raise InvalidIdentityError(field="host", value=value, rule=rule) from None
        return name
    if isinstance(address, ipaddress.IPv6Address):
        return str(address.ipv4_mapped or address)
    return str(address)


def check_model(value: str, field: str = "model") -> ModelName:
    """Return ``value`` if it is a model's name, else raise `InvalidIdentityError`.

    ``*`` stands for all models in a traffic weight, so no model may have that name.
    """
    if value == "*":
        raise InvalidIdentityError(
            field=field, value=value, rule="'*' stands for all models"
        )
    return _text(field, value, MODEL_BYTES_MAX)


def check_name(field: str, value: str) -> str:
    """Return ``value`` if it is a short free text, in one line, else raise."""
    return _line(field, value, NAME_BYTES_MAX)


def check_reason(value: str) -> str:
    """Return ``value`` if it is a reason, which may be empty, else raise."""
    return _line("reason", value, REASON_BYTES_MAX, empty=True)


def one_line(text: str) -> str:
    """What somebody else said, so that `check_reason` takes it if it is short."""
    return " ".join(_CONTROL.sub(" ", text).split())


def check_address(value: str) -> str:
    """Return ``value`` if it is a URL with a scheme and a host, else raise."""
    rule = "a URL with scheme and host, as http://10.0.0.7:8000"
    text = _text("address", value, 2048)
    try:
        parts = urlsplit(text)
        _ = parts.port
    except ValueError as error:
        raise InvalidIdentityError(field="address", value=value, rule=rule) from error
    blank = any(c.isspace() or not c.isprintable() for c in text)
    if not parts.scheme or not parts.hostname or blank:
        raise InvalidIdentityError(field="address", value=value, rule=rule)
    if len(parts.hostname.encode()) > HOST_BYTES_MAX:
        rule = f"a host of at most {HOST_BYTES_MAX} bytes"
        raise InvalidIdentityError(field="address", value=value, rule=rule)
    return value


def check_lease_ttl_s(value: float) -> float:
    """Return ``value`` if a lease may last that many seconds, else raise."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not LEASE_TTL_S_MIN <= value <= LEASE_TTL_S_MAX:
        rule = f"{LEASE_TTL_S_MIN:g} to {LEASE_TTL_S_MAX:g} seconds"
        raise InvalidIdentityError(field="lease_ttl_s", value=value, rule=rule)
    return float(value)


def check_labels(value: Mapping[str, str]) -> Mapping[str, str]:
    """Return ``value`` if it is a small mapping of short texts, else raise."""
    if not isinstance(value, Mapping):
        rule = "a mapping of texts to texts"
        raise InvalidIdentityError(field="labels", value=value, rule=rule)
    if len(value) > LABELS_MAX:
        rule = f"at most {LABELS_MAX} labels"
        raise InvalidIdentityError(field="labels", value=len(value), rule=rule)
    for key, text in value.items():
        _text("labels key", key, LABEL_BYTES_MAX)
        _text(f"labels[{key!r}]", text, LABEL_BYTES_MAX, empty=True)
    return value


def check_role(value: Role | str) -> Role:
    """Return the `Role` that ``value`` is or names, else raise."""
    try:
        return Role(value)
    except ValueError as error:
        rule = "one of " + ", ".join(role.value for role in Role)
        raise InvalidIdentityError(field="role", value=value, rule=rule) from error


def check_status(value: Status | str) -> Status:
    """Return the `Status` that ``value`` is or names, else raise."""
    try:
        return Status(value)
    except ValueError as error:
        rule = "one of " + ", ".join(status.value for status in Status)
        raise InvalidIdentityError(field="status", value=value, rule=rule) from error


def check_needs(value: Collection[Collection[Role | str]]) -> Needs:
    """Return ``value`` as alternatives of roles, else raise."""
    if not _is_several(value) or not all(_is_several(roles) for roles in value):
        rule = "alternatives, each a list of roles, as [['prefill']]"
        raise InvalidIdentityError(field="needs", value=value, rule=rule)
    return tuple(tuple(check_role(role) for role in roles) for roles in value)


def _is_several(value: object) -> bool:
    return isinstance(value, Collection) and not isinstance(value, str)


def _matching(field: str, value: str, pattern: re.Pattern[str], rule: str) -> str:
    if not isinstance(value, str) or pattern.fullmatch(value) is None:
        raise InvalidIdentityError(field=field, value=value, rule=rule)
    return value


def _line(field: str, value: str, bytes_max: int, *, empty: bool = False) -> str:
    """A text that is shown in a line among others, and in logs."""
    if _CONTROL.search(_text(field, value, bytes_max, empty=empty)):
        rule = "text in one line, without control characters"
        raise InvalidIdentityError(field=field, value=value, rule=rule)
    return value


def _text(field: str, value: str, bytes_max: int, *, empty: bool = False) -> str:
    rule = f"text of {0 if empty else 1} to {bytes_max} bytes of UTF-8"
    if not isinstance(value, str):
        raise InvalidIdentityError(field=field, value=value, rule=rule)
    try:
        size = len(value.encode())
    except UnicodeEncodeError as error:
        raise InvalidIdentityError(field=field, value=value, rule=rule) from error
    if size > bytes_max or (not value and not empty):
        raise InvalidIdentityError(field=field, value=value, rule=rule)
    return value
