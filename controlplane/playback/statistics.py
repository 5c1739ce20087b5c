"""What a log is made of: how many records of each type, in each hour, how large."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

import msgspec

from events import Revision, StoredRecord, decode

from .history import Ends
from .selecting import type_of


class Tally(msgspec.Struct, kw_only=True):
    """Records of one kind, and the bytes of their payloads."""

    records: int = 0
    bytes: int = 0
    largest: int = 0

    def add(self, size: int) -> None:
        """One more, of ``size`` bytes."""
        self.records += 1
        self.bytes += size
        self.largest = max(self.largest, size)


class Storage(msgspec.Struct, frozen=True, kw_only=True):
    """What the log takes on the broker, headers and all."""

    bytes: int
    max_bytes: int
    """-1: no limit."""

    @property
    def fill(self) -> float:
        """The share of its limit that is used; 0 without a limit."""
        return self.bytes / self.max_bytes if self.max_bytes > 0 else 0.0


class Statistics:
    """Counts the records of a log, in its order."""

    def __init__(self, ends: Ends) -> None:
        """Of the log that begins and ends there."""
        self.first: Revision = ends.first
        self.last: Revision = ends.last
        self.all = Tally()
        self.types: dict[str, Tally] = {}
        self.hours: dict[datetime, Tally] = {}
        self.first_at: datetime | None = None
        self.last_at: datetime | None = None

    def add(self, records: Iterable[StoredRecord]) -> None:
        """The next records of the log."""
        for record in records:
            size, time = len(record.payload), record.recorded_at
            kind = type_of(decode(record.subject, record.payload))
            hour = time.replace(minute=0, second=0, microsecond=0)
            self.all.add(size)
            self.types.setdefault(kind, Tally()).add(size)
            self.hours.setdefault(hour, Tally()).add(size)
            self.first_at = self.first_at or time
            self.last_at = time

    @property
    def removed(self) -> int:
        """Revisions between the first and the last that hold no record: purged."""
        return max(0, self.last - self.first + 1 - self.all.records)

    def document(self, storage: Storage | None) -> dict[str, Any]:
        """All of it as plain data, types by name and hours by time."""
        stored = None
        if storage is not None:
            limit = storage.max_bytes if storage.max_bytes > 0 else None
            fill = round(storage.fill, 6)
            stored = {"bytes": storage.bytes, "max_bytes": limit, "fill": fill}
        return {
            "first_revision": self.first,
            "last_revision": self.last,
            "removed": self.removed,
            **_counts(self.all),
            "first_recorded_at": self.first_at,
            "last_recorded_at": self.last_at,
            "storage": stored,
            "types": [
                {"type": kind, **_counts(tally)}
                for kind, tally in sorted(self.types.items())
            ],
            "hours": [
                {"hour": hour, **_counts(tally)}
                for hour, tally in sorted(self.hours.items())
            ],
        }


def _counts(tally: Tally) -> dict[str, int]:
    return {
        "records": tally.records,
        "bytes": tally.bytes,
        "largest": tally.largest,
    }
