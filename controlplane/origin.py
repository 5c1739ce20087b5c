"""Where an imported record is from: said in a header of each, so nothing else need be.

The last message of a log tells by it whether an import into that log is complete.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from .errors import ImportUnfinishedError

IMPORTED: Final = "Cp-Imported"
"""The header's name."""


class Origin(msgspec.Struct, frozen=True):
    """The ``place``-th ``of`` all records in the archive with this ``checksum``."""

    checksum: str
    place: int
    of: int

    @property
    def text(self) -> str:
        """As it stands in the header."""
        return f"{self.checksum} {self.place} {self.of}"

    def check_last(self) -> None:
        """Raise `ImportUnfinishedError` unless it is the last record of its archive."""
        if self.place < self.of:
            raise ImportUnfinishedError(place=self.place, of=self.of)


def origin_of(headers: Mapping[str, str] | None) -> Origin | None:
    """What ``headers`` say of an import; None: the record was made here."""
    match (headers or {}).get(IMPORTED, "").split(" "):
        case [checksum, place, of] if place.isdecimal() and of.isdecimal():
            return Origin(checksum, int(place), int(of))
        case _:
            return None
