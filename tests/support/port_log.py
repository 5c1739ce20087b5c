"""What the log says of ports, judged record by record: whole, disjoint, never twice."""

from __future__ import annotations

from collections import defaultdict

from controlplane.errors import LogUnavailableError
from controlplane.eventlog import EventLog
from events import PortClaimed, PortReleased, Record
from tests.support.waiting import eventually


async def port_records(log: EventLog, within_s: float = 20.0) -> list[Record]:
    """Every record of the log; read again if the broker is too busy to answer."""

    async def read() -> list[list[Record]]:
        return [[record async for record in log.read()]]

    (records,) = await eventually(
        read, within_s, but_for=(LogUnavailableError,), poll_s=0.05
    )
    return records


def check_ports(records: list[Record]) -> dict[str, dict[int, str]]:
    """Sweep over the log; who holds which port at its end: host -> port -> claim_id.

    At no revision has a port two holders, and every claim that was not made again by
    a next life came whole and in one piece: of consecutive ports at consecutive
    revisions.
    """
    held: dict[str, dict[int, str]] = defaultdict(dict)
    claims: dict[str, list[Record]] = defaultdict(list)
    for record in records:
        match record.event:
            case PortClaimed() as event:
                assert event.port not in held[event.host], record
                held[event.host][event.port] = event.claim_id
                claims[event.claim_id].append(record)
            case PortReleased(cause="unusable") as event:
                assert event.port not in held[event.host], record
            case PortReleased() as event:
                assert held[event.host].pop(event.port, None) == event.claim_id, record
    for parts in claims.values():
        first = parts[0]
        start, size = first.event.block_start, first.event.block_size
        assert len(parts) == size
        for place, part in enumerate(parts):
            assert part.revision == first.revision + place
            assert part.event.port == start + place
            assert (part.event.block_start, part.event.block_size) == (start, size)
    return {host: ports for host, ports in held.items() if ports}
