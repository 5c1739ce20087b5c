"""Who holds which port of which host: a table folded from claims and releases.

A port is free iff it has no record or its last one is an understood release. The
first claim stands: a second claim on a held port changes nothing, whoever made it.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final, Literal, TypeAlias

import msgspec
from immutables import Map

from events import Host, PortClaimed, PortOwner, PortReleased, Revision

from . import digest

PortKey: TypeAlias = tuple[Host, int]


class Held(msgspec.Struct, frozen=True, kw_only=True, gc=False, tag="held"):
    """A claim stands on the port."""

    host: Host
    port: int
    claim_id: str
    block_start: int
    block_size: int
    owner: PortOwner
    reason: str
    lease_ttl_s: float
    since: datetime


class Resting(msgspec.Struct, frozen=True, kw_only=True, gc=False, tag="resting"):
    """The port was let go; it is free once the cool-down has passed."""

    host: Host
    port: int
    claim_id: str
    cause: Literal["released", "expired", "unusable"]
    since: datetime


class Unreadable(msgspec.Struct, frozen=True, kw_only=True, tag="unreadable"):
    """The port's last record cannot be understood: not free until a release is."""

    host: Host
    port: int
    since: datetime


PortState: TypeAlias = Held | Resting | Unreadable
_TAKEN: Final = (Held, Unreadable)


class PortTable(msgspec.Struct, frozen=True, kw_only=True):
    """Every port that has a record. ``revisions``: each one's last, not in the digest.

    Invariant: ``total`` is the sum of the hashes of all of ``ports``.
    """

    ports: Map[PortKey, PortState] = Map()
    revisions: Map[PortKey, Revision] = Map()
    total: int = 0

    @property
    def digest(self) -> str:
        """32 hex digits that equal tables share."""
        return digest.digest_text(self.total)

    def put(self, state: PortState, revision: Revision) -> PortTable:
        """The table with this port so, and its last record at ``revision``."""
        key = (state.host, state.port)
        total = self.total
        if (old := self.ports.get(key)) is not None:
            total = digest.remove(total, old)
        return PortTable(
            ports=self.ports.set(key, state),
            revisions=self.revisions.set(key, revision),
            total=digest.add(total, state),
        )

    def touch(self, key: PortKey, revision: Revision) -> PortTable:
        """The table, knowing that ``key`` has a later record that changed nothing."""
        revisions = self.revisions.set(key, revision)
        return msgspec.structs.replace(self, revisions=revisions)


NO_PORTS: Final = PortTable()


def decide_claim(
    table: PortTable, event: PortClaimed, recorded_at: datetime
) -> Held | None:
    """The port as the claim leaves it; None: another record stands in its way."""
    if isinstance(table.ports.get((event.host, event.port)), _TAKEN):
        return None
    return Held(
        host=event.host,
        port=event.port,
        claim_id=event.claim_id,
        block_start=event.block_start,
        block_size=event.block_size,
        owner=event.owner,
        reason=event.reason,
        lease_ttl_s=float(event.lease_ttl_s) + 0.0,
        since=recorded_at,
    )


def decide_release(
    table: PortTable, event: PortReleased, recorded_at: datetime
) -> Resting | None:
    """The port as the release leaves it; None: it is not this claim's to release.

    A port that no claim holds rests anew each time it is found unusable.
    """
    before = table.ports.get((event.host, event.port))
    if isinstance(before, Held):
        if before.claim_id != event.claim_id:
            return None
    elif isinstance(before, Resting) and event.cause != "unusable":
        return None
    return Resting(
        host=event.host,
        port=event.port,
        claim_id=event.claim_id,
        cause=event.cause,
        since=recorded_at,
    )


def decide_unreadable(
    table: PortTable, key: PortKey, recorded_at: datetime
) -> Unreadable | None:
    """The port after a record that says nothing; None: its holder keeps it."""
    if isinstance(table.ports.get(key), _TAKEN):
        return None
    return Unreadable(host=key[0], port=key[1], since=recorded_at)
