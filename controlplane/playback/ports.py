"""Folding the records of ports alone: the same table, without reading the fleet's."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Final

import msgspec

from controlplane.broker import Broker
from controlplane.errors import HistoryTruncatedError
from controlplane.eventlog import EventLog
from controlplane.ports.beginning import Beginnings
from events import Host, Revision, encode_token
from projections import FoldState, PortTable, fold_all

EVERY_PORT: Final = "log.port.>"


class PortsThen(msgspec.Struct, frozen=True, kw_only=True):
    """The port table, or one host's, as it stands at ``revision``."""

    ports: PortTable
    revision: Revision
    log_id: str
    now: datetime
    """The broker's clock when the reading began."""


async def replay_ports(
    broker: Broker,
    log: EventLog,
    host: Host | None = None,
    progress: Callable[[Revision, Revision], None] | None = None,
) -> PortsThen:
    """The table after every record there is.

    What a port is depends on the records of its own subject, all of them: the first
    claim stands, so the last record does not tell who holds it. In a long log, or one
    whose beginning was purged, the projector's snapshot stands in for the first ones.
    Raises `HistoryTruncatedError` when the beginning is gone and no usable snapshot
    reaches what is left; `ImportUnfinishedError` is one, too.
    """
    beginnings = Beginnings(log, broker)
    while True:
        now = await log.whole_state()
        found = await beginnings.find(now, host)
        state, after = FoldState(), 0
        if found is not None:
            state, after = FoldState(ports=found.ports), found.revision
        elif now.first_revision > 1 and now.last_revision >= now.first_revision:
            raise HistoryTruncatedError(first=now.first_revision)
        end = max(now.last_revision, after)
        if end > after:
            subject = log.names.absolute(_subject(host))
            batches = broker.read(
                log.names.log_stream, after=after, until=end, subject=subject
            )
            async for batch in batches:
                state = fold_all(state, map(log.record, batch))
                if progress is not None:
                    progress(state.revision, end)
        # A purge of what is being read looks like any hole: only the beginning tells.
        first = (await log.state()).first_revision
        if first - 1 <= max(after, now.first_revision - 1):
            break
    return PortsThen(ports=state.ports, revision=end, log_id=now.log_id, now=now.now)


def _subject(host: Host | None) -> str:
    return EVERY_PORT if host is None else f"log.port.{encode_token(host)}.*"
