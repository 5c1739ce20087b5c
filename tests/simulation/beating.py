"""Who beats: when each life's beats reached the broker, and whether that suffices.

A life that beats may be expired only if its beats stayed away from the broker for its
whole lease, not counting the time in which the broker itself stood still or was down.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from events import PortClaimed, Record, WorkerExpired, WorkerRegistered

if TYPE_CHECKING:
    from .world import World

DECIDED_S = 7.0
"""An expiry may be decided so long before its append begins (2 s in turn, 4 s of
reading); from then on it is repeated until there is an answer."""
SLACK_S = 0.05
RECONNECT_S = 0.5


class Beating:
    """See the module."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._arrivals: defaultdict[str, list[float]] = defaultdict(list)
        self._ttl: dict[str, float] = {}
        self._began: dict[str, float] = {}
        """When the append of an event began."""
        self._outages: list[tuple[float, float]] = []

    def arrived(self, incarnation: str) -> None:
        self._arrivals[incarnation].append(self._world.loop.time())

    def appending(self, event_id: str) -> None:
        self._began.setdefault(event_id, self._world.loop.time())

    def stored(self, record: Record) -> None:
        """A life begins to be watched with its first record."""
        event = record.event
        match event:
            case WorkerRegistered():
                self._begin(event.incarnation, event.lease_ttl_s)
            case PortClaimed(owner=owner):
                self._begin(owner.incarnation, event.lease_ttl_s)

    def _begin(self, incarnation: str, ttl_s: float) -> None:
        self._ttl[incarnation] = max(self._ttl.get(incarnation, 0.0), ttl_s)
        self._arrivals[incarnation].append(self._world.loop.time())

    def outage(self, begin: float, end: float) -> None:
        """The broker stood still, or was down, in this time.

        A judge cannot tell a short while from nothing, nor need he.
        """
        if end - begin >= self._world.settings.blind_gap_s:
            self._outages.append((begin, end + RECONNECT_S))

    def node_stalled(self, node: str, for_s: float) -> None:
        """One of two servers stands still: see `Ending`."""

    def beats(self, record: Record | None, incarnation: str) -> bool:
        """Whether the life beat all the time before ``record`` ends it."""
        if record is None or not isinstance(record.event, WorkerExpired):
            return False
        hosts = [host for host in self._hosts() if host.beats_for(incarnation)]
        if not any(self._can_be_heard(host) for host in hosts):
            return False
        now = self._world.loop.time()
        began = self._began.get(record.event.event_id, now)
        times = [*self._arrivals[incarnation], now]
        ttl_s = self._ttl.get(incarnation, 0.0)
        for before, after in pairwise(times):
            if after >= began - DECIDED_S and self._gap(before, after) >= (
                ttl_s - SLACK_S
            ):
                return False
        return True

    def _can_be_heard(self, host: Any) -> bool:
        """Whether nothing of its own keeps its beats from the broker.

        Of a worker that is cut off the last beat may have come when no judge heard it.
        """
        return not (host.black or host.cut)

    def _hosts(self) -> list[Any]:
        hosts = self._world.hosts.values()
        return [host for host in hosts if hasattr(host, "beats_for")]

    def _gap(self, before: float, after: float) -> float:
        """The silence between two beats, without what the broker is to blame for."""
        gap = after - before
        for begin, end in self._outages:
            gap -= max(0.0, min(after, end) - max(before, begin))
        return gap
