"""Who beats: when each life's beats reached the broker, and whether that suffices.

A life that beats may be expired only if its beats stayed away from the broker for its
whole lease, not counting the time in which the broker itself stood still or was down.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from events import PortClaimed, Record, WorkerExpired, WorkerRegistered

from .outcome import Violation

if TYPE_CHECKING:
    from .world import World

DECIDED_S = 7.0
"""An expiry may be decided so long before its append begins (2 s in turn, 4 s of
reading); from then on it is repeated until there is an answer."""
SLACK_S = 0.05
RECONNECT_S = 0.5


LOOK_S = 5.0
HELD_S = 50.0
"""The guard's hold, and as much again as it takes to append."""


class Beating:
    """See the module."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._arrivals: defaultdict[str, list[float]] = defaultdict(list)
        self._appended: dict[str, float] = {}
        """When a life that was known already registered or claimed."""
        self._ttl: dict[str, float] = {}
        self._began: dict[str, float] = {}
        """When the append of an event began."""
        self._outages: list[tuple[float, float]] = []
        self._unwatched_s = 0.0
        """For so long in all nobody could judge: no leader, or one in trouble."""
        self._log_changed_at = 0.0
        """Lives may be in it again that had ended; then they have a lease anew."""
        self._unwatched_at: dict[str, float] = {}
        """The same when a life beat last."""

    def arrived(self, incarnation: str) -> None:
        self._arrivals[incarnation].append(self._world.loop.time())
        self._unwatched_at[incarnation] = self._unwatched_s

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
        if incarnation in self._arrivals:
            # It was watched already: only beats keep a lease.
            self._appended[incarnation] = self._world.loop.time()
        else:
            self.arrived(incarnation)

    def log_changed(self) -> None:
        """The log lost its end, or is another."""
        self._log_changed_at = self._world.loop.time()

    def look(self) -> None:
        """Every few seconds: whoever fell silent is out within a bound.

        That is two leases and the guard's hold, of the time that somebody judged in.
        """
        judges = [host for host in self._hosts("judges_well") if host.judges_well]
        if not judges:
            self._unwatched_s += LOOK_S
            return
        now = self._world.loop.time()
        since = max(self._log_changed_at, *(host.started_at for host in judges))
        for life in self._world.watch.histories.dumb.lives:
            incarnation = life[2]
            times = self._arrivals.get(incarnation)
            if not times:
                continue
            missed_s = self._unwatched_s - self._unwatched_at[incarnation]
            seen = max(times[-1], self._appended.get(incarnation, 0.0))
            silent_s = now - max(seen, since) - missed_s
            if silent_s > 2 * self._ttl[incarnation] + HELD_S:
                what = f"{life} has been silent for {silent_s:.0f} s, and is in"
                raise Violation("overdue", what)

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
        hosts = self._hosts("beats_for")
        hosts = [host for host in hosts if host.beats_for(incarnation)]
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
        """Whether neither its network nor a stopped server keeps its beats back.

        Of a worker that is cut off the last beat may have come when no judge heard it.
        """
        stalled = self._world.server.stalled
        silenced = any(broker.node in stalled for broker in host.brokers)
        return not (host.black or host.cut or silenced)

    def _hosts(self, able: str) -> list[Any]:
        return [host for host in self._world.hosts.values() if hasattr(host, able)]

    def _gap(self, before: float, after: float) -> float:
        """The silence between two beats, without what the broker is to blame for."""
        gap = after - before
        for begin, end in self._outages:
            gap -= max(0.0, min(after, end) - max(before, begin))
        return gap
