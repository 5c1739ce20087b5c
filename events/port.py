"""What happens to ports. One subject per port of a host, whatever the namespace."""

from __future__ import annotations

from typing import Literal

import msgspec

from .event import Event
from .identity import Host, Incarnation, Namespace, Whole, WorkerId


class PortOwner(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The life that holds a port."""

    namespace: Namespace
    worker_id: WorkerId
    incarnation: Incarnation


class PortEvent(Event, frozen=True, kw_only=True):
    """An event of one port of one host."""

    host: Host
    port: Whole
    claim_id: str
    """UUIDv7 of the claim; one claim takes a whole block."""


class PortClaimed(PortEvent, frozen=True, kw_only=True, tag="port_claimed.v1"):
    """A life took this port, as a part of a block."""

    block_start: Whole
    block_size: Whole
    owner: PortOwner
    reason: str
    lease_ttl_s: float
    pid: Whole | None = None


class PortReleased(PortEvent, frozen=True, kw_only=True, tag="port_released.v1"):
    """The claim on this port ended."""

    cause: Literal["released", "expired", "unusable"]
