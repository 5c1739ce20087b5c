"""Where an imported record is from: said in a header of each, so nothing else need be.

An import goes into an empty log only, so the *n*-th record of the archive stands at
revision *n*. A header that says another place was copied from elsewhere, or made up,
and counts for nothing: it neither dates its record nor makes a log look unfinished.
What is left: who means to deceive can write a header that fits.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from typing import Final

import msgspec

from events import Revision

from .broker import Message
from .errors import ImportUnfinishedError

IMPORTED: Final = "Cp-Imported"
"""The header that says where a record is from."""
RECORDED_AT: Final = "Cp-Recorded-At"
"""The header in which an import keeps the time of the first recording."""
YEARS: Final = range(1970, 2262)
"""Brokers count nanoseconds since 1970 in 64 bits: none recorded anything later."""
_TEXT: Final = re.compile(r"([0-9a-f]{32}) ([1-9][0-9]{0,17}) ([1-9][0-9]{0,17})")


class Origin(msgspec.Struct, frozen=True):
    """The ``place``-th ``of`` all records in the archive with this ``checksum``."""

    checksum: str
    place: int
    of: int

    @property
    def text(self) -> str:
        """As it stands in the header."""
        return f"{self.checksum} {self.place} {self.of}"

    def at(self, place: int) -> Origin:
        """The origin of another record of the same archive."""
        return Origin(self.checksum, place, self.of)


def origin_of(message: Message | None) -> Origin | None:
    """Which record of an archive it is; None: it was not imported to where it stands.

    It is believed of whoever says its own place and its time; see above.
    """
    if message is None or message.headers is None:
        return None
    if RECORDED_AT not in message.headers:
        return None
    said = _stands(message.headers, message.sequence)
    return None if said is None else Origin(said[1], int(said[2]), int(said[3]))


def _stands(headers: Mapping[str, str], sequence: int) -> re.Match[str] | None:
    """What they say of an import, if it is that of the message at ``sequence``."""
    said = _TEXT.fullmatch(headers.get(IMPORTED, ""))
    if said is None or not sequence == int(said[2]) <= int(said[3]):
        return None
    return said


def recorded_at(message: Message) -> datetime:
    """When the record was made, UTC: by this broker, or by the one it is from.

    Only an imported record says so itself, and only a time that a broker can have
    recorded. Anything else is recorded when it is stored, whatever its producer says.
    """
    headers = message.headers
    if headers is None or (text := headers.get(RECORDED_AT)) is None:
        return message.stored_at
    if _stands(headers, message.sequence) is None:
        return message.stored_at
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return message.stored_at
    # A time without a zone is another one on every machine.
    if time.tzinfo is None or time.year not in YEARS:
        return message.stored_at
    return time if time.tzinfo is UTC else time.astimezone(UTC)


async def check_import(
    get: Callable[[Revision], Awaitable[Message | None]],
    first: Revision,
    last: Revision,
) -> None:
    """Raise `ImportUnfinishedError` if a log holds a part of an archive only.

    The log begins at ``first`` and ends at ``last``; ``get`` reads one message. An
    import comes before everything else in a log: so the first record tells how many
    there have to be, and the one at that place whether they came. Where that was
    purged it is taken for granted that they did.
    """
    begun = origin_of(await get(first)) if 0 < first <= last else None
    if begun is None:
        return
    if begun.of <= last:
        end = await get(begun.of)
        if end is None or origin_of(end) == begun.at(begun.of):
            return
    place = await _last_place(get, begun, min(last, begun.of))
    raise ImportUnfinishedError(place=place, of=begun.of, others=last - place)


async def _last_place(
    get: Callable[[Revision], Awaitable[Message | None]], begun: Origin, last: Revision
) -> int:
    """The last record that came of the archive that has ``begun``, up to ``last``."""
    place = begun.place
    while place < last:
        middle = (place + last + 1) // 2
        if origin_of(await get(middle)) == begun.at(middle):
            place = middle
        else:
            last = middle - 1
    return place
