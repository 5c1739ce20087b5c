"""Whether a worker that is absent is gone, between two lives, or a mistyped name."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, Literal, TypeAlias

from events import (
    Namespace,
    Record,
    Revision,
    Status,
    WorkerDeregistered,
    WorkerEvent,
    WorkerId,
    WorkerRegistered,
    WorkerStatusChanged,
    worker_subject,
)

from .eventlog import EventLog

GONE_S: Final = 2.0
"""Who was absent for so long is gone: supervisors restart what crashed sooner."""

Absence: TypeAlias = Literal["gone", "away", "never_seen"]


class Departure:
    """Watches one worker that is absent, for as long as somebody waits for its end."""

    def __init__(
        self,
        log: EventLog,
        namespace: Namespace,
        worker_id: WorkerId,
        clock: Callable[[], float],
    ) -> None:
        """Ask ``log``; ``clock`` counts seconds."""
        self._log, self._clock = log, clock
        self._subject: Final = worker_subject(namespace, worker_id)
        self._last: Revision | None = None
        self._since = 0.0

    def present(self) -> None:
        """It is there: an absence that began is over."""
        self._last = None

    async def absent(self, seen: Revision) -> Absence:
        """What its absence from a fleet that includes ``seen`` means now.

        ``gone``: it left by itself after it had drained, or nothing was heard of it
        for `GONE_S`. ``away``: it may come back. ``never_seen``: no record names it.
        """
        last = await self._log.last(self._subject)
        if last is None:
            return "never_seen"
        if self._last != last.revision:
            self._last, self._since = last.revision, self._clock()
            if await self._left_drained(last):
                return "gone"
        if last.revision > seen:
            return "away"  # the fleet may not know yet that it came back
        # The clocks of others do not count: two seconds are less than they differ.
        return "gone" if self._clock() - self._since >= GONE_S else "away"

    async def _left_drained(self, last: Record) -> bool:
        """Whether its last word was a farewell, after it had begun to drain."""
        farewell = last.event
        if not isinstance(farewell, WorkerDeregistered):
            return False
        records = await self._log.on_subject(self._subject, 0, last.revision)
        life = farewell.incarnation
        return _last_status(records, life) in (Status.DRAINING, Status.DRAINED)


def _last_status(records: Iterable[Record], incarnation: str) -> Status | None:
    status = None
    for event in (record.event for record in records):
        if not isinstance(event, WorkerEvent) or event.incarnation != incarnation:
            continue
        if isinstance(event, WorkerRegistered | WorkerStatusChanged):
            status = event.status
    return status
