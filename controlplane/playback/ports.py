"""Folding the records of ports alone: the same table, without reading the fleet's."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Final

import msgspec

from controlplane.broker import Broker
from controlplane.errors import HistoryTruncatedError
from controlplane.eventlog import EventLog
from events import Host, Revision, encode_token
from projections import FoldState, PortTable, step

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
    claim stands, so the last record does not tell who holds it. Raises
    `HistoryTruncatedError` when the beginning of the log is gone.
    """
    now = await log.state()
    if now.first_revision > 1 and now.last_revision >= now.first_revision:
        raise HistoryTruncatedError(first=now.first_revision)
    subject = EVERY_PORT if host is None else f"log.port.{encode_token(host)}.*"
    end, state = now.last_revision, FoldState()
    if end > 0:
        batches = broker.read(
            log.names.log_stream,
            until=end,
            subject=log.names.absolute(subject),
        )
        async for batch in batches:
            for message in batch:
                state = step(state, log.record(message)).state
            if progress is not None:
                progress(state.revision, end)
    return PortsThen(ports=state.ports, revision=end, log_id=now.log_id, now=now.now)
