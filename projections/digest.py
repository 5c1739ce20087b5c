"""A digest of a set of things that costs only what changed.

Each thing is hashed by itself (BLAKE2b-128 over its canonical bytes) and the hashes
are added modulo 2**128, so adding and removing are one addition each and the order of
arrival leaves no trace. It tells honest states apart; it is no defence against
someone who builds collisions on purpose.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from typing import Any, Final

import msgspec

_encode: Final = msgspec.msgpack.Encoder(order="deterministic").encode
_number: Final = int.from_bytes
MODULUS: Final = 1 << 128
"""Hashes are added and taken away modulo this."""


def entity_hash(entity: Any) -> int:  # noqa: ANN401 - any struct has canonical bytes
    """The hash of one thing: 128 bits over its canonical bytes."""
    return _number(blake2b(_encode(entity), digest_size=16).digest(), "big")


def add(total: int, entity: Any) -> int:  # noqa: ANN401
    """The total with one thing more."""
    return (total + entity_hash(entity)) % MODULUS


def remove(total: int, entity: Any) -> int:  # noqa: ANN401
    """The total with one thing less."""
    return (total - entity_hash(entity)) % MODULUS


def total_of(entities: Iterable[Any], total: int = 0) -> int:
    """The total of these things, each counted once, and of what ``total`` counts."""
    return sum(map(entity_hash, entities), total) % MODULUS


def digest_text(total: int) -> str:
    """The digest as it is shown and compared: 32 hex digits."""
    return f"{total:032x}"
