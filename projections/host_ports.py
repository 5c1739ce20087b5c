"""What is known of the ports of one host, record by record."""

from __future__ import annotations

import msgspec
from immutables import Map

from events import (
    Host,
    PortClaimed,
    PortReleased,
    PortSubject,
    Record,
    Revision,
    parse_subject,
)

from .port import PortState, PortTable, decide_claim, decide_release, decide_unreadable


class HostPorts(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of one host's ports; each port folds by itself.

    Fed with every record of the host's subjects, it is the host's part of the table.
    The last record of each would not do: a release that is not the holder's changes
    nothing, but whoever sees no more than it takes the port for free.
    """

    host: Host
    ports: Map[int, PortState] = Map()
    revisions: Map[int, Revision] = Map()
    """Where each port's last record stands: what the next one has to expect."""

    def expected(self, port: int) -> Revision:
        """The last revision on the port's subject; 0: it has no record."""
        return self.revisions.get(port, 0)

    def after(self, record: Record) -> HostPorts:
        """What is known after ``record``; one seen before, or of others, is nothing."""
        subject = parse_subject(record.subject)
        if not isinstance(subject, PortSubject) or subject.host != self.host:
            return self
        port = subject.port
        if record.revision <= self.expected(port):
            return self
        before = self.ports.get(port)
        key = (self.host, port)
        alone = PortTable(ports=Map() if before is None else Map({key: before}))
        after: PortState | None
        match record.event:
            case PortClaimed() as event:
                after = decide_claim(alone, event, record.recorded_at)
            case PortReleased() as event:
                after = decide_release(alone, event, record.recorded_at)
            case _:
                after = decide_unreadable(alone, key, record.recorded_at)
        return HostPorts(
            host=self.host,
            ports=self.ports if after is None else self.ports.set(port, after),
            revisions=self.revisions.set(port, record.revision),
        )


def host_ports(table: PortTable, host: Host) -> HostPorts:
    """One host's part of the whole table."""
    ports = {port: state for (at, port), state in table.ports.items() if at == host}
    revisions = {port: r for (at, port), r in table.revisions.items() if at == host}
    return HostPorts(host=host, ports=Map(ports), revisions=Map(revisions))
