"""What is said of ports: claims and releases, sealed as events of this process."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, TypeAlias

from controlplane.clock import Clock
from controlplane.eventlog import Pending
from controlplane.identifiers import new_uuid7
from events import Host, PortClaimed, PortOwner, PortReleased, Revision
from projections import PortBlock

Cause: TypeAlias = Literal["released", "expired", "unusable"]


class Drafts:
    """Makes events; every call makes new ones."""

    def __init__(self, *, clock: Clock, by: str, pid: int | None) -> None:
        """Say them as ``by``, at what ``clock`` shows, from the process ``pid``."""
        self._clock, self._by, self._pid = clock, by, pid

    def claims(
        self,
        block: PortBlock,
        expected: Iterable[tuple[int, Revision]],
        *,
        owner: PortOwner,
        lease_ttl_s: float,
        reason: str,
    ) -> list[Pending]:
        """Claims on ports of ``block``, each expecting that revision."""
        at = self._clock.now()
        return [
            Pending(
                PortClaimed(
                    event_id=new_uuid7(),
                    at=at,
                    by=self._by,
                    host=block.host,
                    port=port,
                    claim_id=block.claim_id,
                    block_start=block.start,
                    block_size=block.size,
                    owner=owner,
                    reason=reason,
                    lease_ttl_s=lease_ttl_s,
                    pid=self._pid,
                ),
                revision,
            )
            for port, revision in expected
        ]

    def release(
        self,
        host: Host,
        port: int,
        expected: Revision,
        *,
        claim_id: str,
        cause: Cause = "released",
    ) -> Pending:
        """The release of one port, expecting that revision."""
        event = PortReleased(
            event_id=new_uuid7(),
            at=self._clock.now(),
            by=self._by,
            host=host,
            port=port,
            claim_id=claim_id,
            cause=cause,
        )
        return Pending(event, expected)
