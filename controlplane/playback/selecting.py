"""Some records of a history: by type, worker, host and time, each in its place."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Iterable
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Final

import msgspec

from events import (
    EVENT_TYPES,
    Host,
    InvalidIdentityError,
    PortClaimed,
    PortReleased,
    Record,
    Revision,
    Undecodable,
    UnknownEvent,
    canonical_host,
    encode_token,
    setting_subject,
    worker_subject,
)
from projections import WorkerKey

from .errors import (
    EventNotFoundError,
    MomentAheadError,
    MomentTooEarlyError,
    RecordRemovedError,
    TypeUnknownError,
)
from .history import Ends, History
from .moments import EventId, PointInTime, is_event
from .player import Progress, before_end, up_to

UNKNOWN: Final = "unknown"
UNDECODABLE: Final = "undecodable"
POISON: Final = "poison"
"""Stands for both in a selection."""


def type_of(event: object) -> str:
    """What an event is counted as: its tag, or why nobody can read it."""
    match event:
        case UnknownEvent():
            return UNKNOWN
        case Undecodable():
            return UNDECODABLE
        case _:
            return str(type(event).__struct_config__.tag)  # type: ignore[attr-defined]


def parse_types(texts: Iterable[str]) -> frozenset[str]:
    """The types that ``texts`` name, with or without version; `type_of` gives each.

    ``poison`` is what nobody can read. Raises `TypeUnknownError`.
    """
    known = {tag.partition(".")[0]: {tag} for tag in EVENT_TYPES}
    known |= {tag: {tag} for tag in (*EVENT_TYPES, UNKNOWN, UNDECODABLE)}
    known[POISON] = {UNKNOWN, UNDECODABLE}
    found: set[str] = set()
    for text in texts:
        if text not in known:
            names = sorted(name for name in known if "." not in name)
            raise TypeUnknownError(text, names)
        found |= known[text]
    return frozenset(found)


PIECE: Final = 256
PIECE_GROWS: Final = 4


class Selection(msgspec.Struct, frozen=True, kw_only=True):
    """Which records are wanted: those to which all of it applies."""

    types: frozenset[str] = frozenset()
    """See `parse_types`; empty: all."""
    worker: WorkerKey | None = None
    """Records of this worker, of holds on it, and of the ports that its lives held."""
    host: Host | None = None
    """Records of this host's ports."""

    @property
    def is_all(self) -> bool:
        """Whether nothing is left out."""
        return not self.types and self.worker is None and self.host is None


class Sieve:
    """Lets the wanted records of one log through, in its order.

    Whose port is released is only known to who has seen its claim.
    """

    def __init__(self, selection: Selection) -> None:
        """Let through what is in ``selection``."""
        self._types = selection.types
        self._subjects: frozenset[str] | None = None
        self._prefixes: tuple[str, ...] = ()
        if selection.worker is not None:
            self._subjects = frozenset(
                (
                    worker_subject(*selection.worker),
                    setting_subject("hold", *selection.worker),
                )
            )
        if selection.host is not None:
            self._prefixes = _port_prefixes(selection.host)
        self._worker = selection.worker
        self._claims: set[str] = set()

    @property
    def looks_back(self) -> bool:
        """Whether it has to see the log from its beginning."""
        return self._worker is not None

    def through(self, records: Iterable[Record]) -> list[Record]:
        """Those of ``records`` that are wanted; they follow on what it has seen."""
        return [record for record in records if self._wants(record)]

    def _wants(self, record: Record) -> bool:
        if self._subjects is not None and not self._is_of_worker(record):
            return False
        if self._prefixes and not record.subject.startswith(self._prefixes):
            return False
        return not self._types or type_of(record.event) in self._types

    def _is_of_worker(self, record: Record) -> bool:
        match record.event:
            case PortClaimed(claim_id=claim_id, owner=owner):
                is_own = (owner.namespace, owner.worker_id) == self._worker
                if is_own:
                    self._claims.add(claim_id)
                return is_own
            case PortReleased(claim_id=claim_id):
                return claim_id in self._claims
            case _:
                return self._subjects is None or record.subject in self._subjects


def _port_prefixes(host: Host) -> tuple[str, ...]:
    """Of the subjects of its ports: as it is written, and as claims spell it now."""
    hosts = {host: None}
    with suppress(InvalidIdentityError):
        hosts[canonical_host(host)] = None
    return tuple(f"log.port.{encode_token(one)}." for one in hosts)


async def last_selected(
    history: History, sieve: Sieve, count: int, progress: Progress | None = None
) -> list[Record]:
    """The last ``count`` records that ``sieve`` lets through.

    Read backwards in ever larger pieces; a sieve that `looks_back` needs all of it.
    """
    ends = await history.ends()
    found: deque[Record] = deque(maxlen=count)
    if count == 0:
        return []
    if sieve.looks_back:
        async for records in selected(history, sieve, None, None, progress):
            found.extend(records)
        return list(found)
    until, piece = ends.last, max(count, PIECE)
    while until >= ends.first and len(found) < count:
        after = max(ends.first - 1, until - piece)
        part: deque[Record] = deque(maxlen=count - len(found))
        async for records in history.batches(after, until):
            part.extend(sieve.through(records))
        found.extendleft(reversed(part))
        until, piece = after, piece * PIECE_GROWS
        if progress is not None:
            progress(ends.last - until, ends.last)
    return list(found)


async def selected(
    history: History,
    sieve: Sieve,
    since: PointInTime | None = None,
    until: PointInTime | None = None,
    progress: Progress | None = None,
) -> AsyncIterator[list[Record]]:
    """Yield the records that ``sieve`` lets through, from ``since`` up to ``until``.

    Both are included: the record at a revision, those at a time, the one with an
    event's id. None: from the first there is, to the last when called. Raises
    `MomentAheadError` and `EventNotFoundError`. A log without its beginning will do.
    """
    ends = await history.ends()
    for moment in (since, until):
        if isinstance(moment, int) and moment > ends.last:
            raise MomentAheadError(revision=moment, last=ends.last)
    begin = await _as_time(history, ends, since)
    stop = await _as_time(history, ends, until)
    end = stop if isinstance(stop, int) else ends.last
    after = 0
    if isinstance(begin, int) and not sieve.looks_back and not isinstance(stop, str):
        after = max(0, begin - 1)
    gate = _Gate(begin)
    last: Record | None = None
    async for records in up_to(history, stop, end, after):
        chosen = sieve.through(records)
        last = records[-1] if records else last
        wanted = gate.after(records, chosen)
        if wanted:
            yield wanted
        if progress is not None and last is not None:
            progress(last.revision, end)
    if isinstance(begin, str) and not gate.is_open:
        raise EventNotFoundError(event_id=begin, last=end)
    if isinstance(stop, str) and (last is None or not is_event(stop, last.fingerprint)):
        raise EventNotFoundError(event_id=stop, last=ends.last)


async def _as_time(
    history: History, ends: Ends, moment: PointInTime | None
) -> Revision | datetime | EventId | None:
    if isinstance(moment, timedelta):
        return await before_end(history, ends, moment)
    return moment


async def record_at(
    history: History, point: PointInTime, progress: Progress | None = None
) -> Record:
    """The record of a moment: of a time the last one up to then.

    Raises `RecordRemovedError` when none is there, `MomentTooEarlyError` when the log
    began after the time, and as `selected`.
    """
    ends = await history.ends()
    if isinstance(point, int):
        if point > ends.last:
            raise MomentAheadError(revision=point, last=ends.last)
        found = await history.at(point) if point > 0 else None
        if found is None:
            raise RecordRemovedError(revision=point, first=max(1, ends.first))
        return found
    moment = await _as_time(history, ends, point)
    last: Record | None = None
    async for records in selected(history, Sieve(Selection()), None, moment, progress):
        last = records[-1]
    if last is not None:
        return last
    first = await history.at(ends.first) if ends.last else None
    if first is None or not isinstance(moment, datetime):
        raise RecordRemovedError(revision=0, first=0)
    raise MomentTooEarlyError(time=moment, began=first.recorded_at)


class _Gate:
    """Opens at a moment, and stays open: clocks may step back."""

    def __init__(self, since: Revision | datetime | EventId | None) -> None:
        self._since = since
        self.is_open = since is None

    def after(self, records: list[Record], chosen: list[Record]) -> list[Record]:
        """Those ``chosen`` of ``records`` from the moment on."""
        if self.is_open:
            return chosen
        first = next((r.revision for r in records if self._opens(r)), None)
        if first is None:
            return []
        self.is_open = True
        return [record for record in chosen if record.revision >= first]

    def _opens(self, record: Record) -> bool:
        match self._since:
            case datetime() as time:
                return record.recorded_at >= time
            case str() as event_id:
                return is_event(event_id, record.event.event_id)
            case _:
                return self._since is None or record.revision >= self._since
