"""Whether a worker that is absent is gone, between two lives, or a mistyped name."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, Literal, TypeAlias

from events import (
    Incarnation,
    Namespace,
    Record,
    Revision,
    Status,
    WorkerDeregistered,
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
    """Watches one worker that may be at its end, for as long as somebody waits."""

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
        self._in_order = False

    async def absent(self, seen: Revision) -> Absence:
        """What its absence from a fleet that includes ``seen`` means now.

        ``gone``: it `stays`. ``away``: it may come back. ``never_seen``: no record of
        the log names it.
        """
        stays = await self.stays(seen)
        if self._last is None:
            return "never_seen"
        return "gone" if stays else "away"

    async def stays(self, seen: Revision) -> bool:
        """Whether a worker that is drained or absent in such a fleet will stay so.

        It does if it had begun to drain before, or if nothing was heard of it for
        `GONE_S`: what crashed may say that it has drained, and is started again.
        """
        last = await self._log.last(self._subject)
        if last is None:
            self._last = None
            return False
        if self._last != last.revision:
            self._last, self._since = last.revision, self._clock()
            self._in_order = await self._ended_in_order(last)
        if last.revision > seen:
            return False  # the fleet may not know yet that it came back
        # The clocks of others do not count: two seconds are less than they differ.
        return self._in_order or self._clock() - self._since >= GONE_S

    async def _ended_in_order(self, last: Record) -> bool:
        """Whether its last word ends a life that had begun to drain."""
        word = last.event
        if not isinstance(word, WorkerDeregistered | WorkerStatusChanged):
            return False
        records = await self._log.on_subject(self._subject, 0, last.revision)
        return Status.DRAINING in _statuses(records, word.incarnation)


def _statuses(records: Iterable[Record], incarnation: Incarnation) -> list[Status]:
    """What a life said of itself, in its order, since it last began to serve."""
    said: list[Status] = []
    for event in (record.event for record in records):
        if not isinstance(event, WorkerRegistered | WorkerStatusChanged):
            continue
        if event.incarnation != incarnation:
            continue
        if event.status in (Status.STARTING, Status.READY):
            said.clear()
        said.append(event.status)
    return said
