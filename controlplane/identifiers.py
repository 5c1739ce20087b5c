"""Identifiers that clients make: UUIDs of version 7 (RFC 9562), which sort by time."""

from __future__ import annotations

import os
import time
from typing import Final, Protocol

_NANOSECONDS: Final = 1_000_000
"""In a millisecond."""
_RANDOM: Final = (1 << 62) - 1
_VERSION: Final = 0x7 << 76
_VARIANT: Final = 0x2 << 62


class Source(Protocol):
    """Where identifiers take time and chance from."""

    def now_ns(self) -> int:
        """Nanoseconds since 1970, UTC."""
        ...

    def random_bytes(self, count: int) -> bytes:
        """So many bytes that nobody else has drawn."""
        ...


class SystemSource:
    """The clock and the chance of the machine it runs on."""

    now_ns: Final = staticmethod(time.time_ns)
    random_bytes: Final = staticmethod(os.urandom)


class _Used:
    """What is drawn from. One for the process: an identifier is unique beyond it."""

    source: Source = SystemSource()


def use(source: Source) -> Source:
    """Make identifiers from ``source`` from now on; returns the one used until now.

    For whoever owns time and chance of a whole process, such as a simulation.
    """
    before, _Used.source = _Used.source, source
    return before


def new_uuid7() -> str:
    """A fresh UUIDv7: later ones sort later, on one machine to a quarter microsecond.

    48 bits of milliseconds, 12 bits of the fraction (RFC 9562, section 6.2, method 3)
    and 62 random bits.
    """
    source = _Used.source
    milliseconds, rest = divmod(source.now_ns(), _NANOSECONDS)
    fraction = (rest << 12) // _NANOSECONDS
    random = int.from_bytes(source.random_bytes(8), "big") & _RANDOM
    value = (
        (milliseconds & (1 << 48) - 1) << 80
        | _VERSION
        | fraction << 64
        | _VARIANT
        | random
    )
    digits = f"{value:032x}"
    return "-".join(
        (digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:])
    )
