"""Moments of a history, and how they are said in one word."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, NewType, TypeAlias
from uuid import UUID

from events import Revision

from .errors import MomentInvalidError

EventId = NewType("EventId", str)
PointInTime: TypeAlias = Revision | datetime | timedelta | EventId
"""A moment of a history: a revision, a time, a time before its end, or right after
the event with this id."""
Moment: TypeAlias = PointInTime | Path
"""Or a file that holds a state of its own: an archive, a router's checkpoint."""

_AGO: Final = re.compile(r"-(\d+)([smhd])")
_UNITS: Final = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


def parse_point(text: str) -> PointInTime:
    """As `parse_moment`, where no file will do: a moment of the history itself."""
    point = _point(text)
    if point is None:
        raise MomentInvalidError(text, files=False)
    return point


def is_event(moment: EventId, event_id: str) -> bool:
    """Whether ``moment`` names the event: however the producer wrote its id."""
    return event_id.lower() == moment


def parse_moment(text: str) -> Moment:
    """What ``text`` means, in this order: a revision, a time, an event id, a file.

    A time is ISO 8601, UTC if it does not say; ``-10m`` is ten minutes (s, m, h, d)
    before the end. A file must be there. Raises `MomentInvalidError`.
    """
    point = _point(text)
    if point is not None:
        return point
    path = Path(text)
    try:
        is_file = path.is_file()
    except (OSError, ValueError):  # a name that no file can have
        is_file = False
    if not is_file:
        raise MomentInvalidError(text)
    return path


def _point(text: str) -> PointInTime | None:
    ago = _AGO.fullmatch(text)
    try:
        if text.isascii() and text.isdecimal():
            return int(text)
        if ago is not None:
            return timedelta(**{_UNITS[ago[2]]: -int(ago[1])})
        if len(text) == len(str(UUID(int=0))):
            return EventId(str(UUID(text)))
    except (ValueError, OverflowError):
        return None
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return None
    return in_utc(time)


def in_utc(time: datetime) -> datetime:
    """The time itself, or, if it does not say where, that time in UTC."""
    return time.replace(tzinfo=UTC) if time.tzinfo is None else time
