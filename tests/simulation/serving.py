"""Clients of one stopped server: silent together, and held together, for a while.

A life whose beats came by a server that stands still is not expired while nobody of
that server's other clients has been heard either, until the guard has held them for
its time; provided that the judge is on another server and has heard all of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from controlplane.beats import Beat
from events import Record, WorkerExpired, WorkerRegistered
from projections.lease import SILENT_SHARE

from .beating import RECONNECT_S
from .hosts import ProjectorHost
from .outcome import Violation

if TYPE_CHECKING:
    from .world import World

STEADY_S = 60.0
"""A judge with nothing wrong for so long knows by which server everybody beats."""
SLACK_S = 0.05
"""So much earlier or later a beat is at a judge than at another."""


class Serving:
    """See the module."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._last: dict[str, tuple[float, str]] = {}
        """Incarnation: when it beat last, and by which server."""
        self._ttls: dict[str, float] = {}
        self._stalls: list[tuple[str, float, float]] = []
        """Server, from when, until when."""
        self._outages: list[tuple[float, float]] = []

    def heard(self, beat: Beat) -> None:
        """A beat is at the broker."""
        self._last[beat.incarnation] = self._world.loop.time(), beat.server_id

    def stalled(self, node: str, for_s: float) -> None:
        """A node stands still; of one that is down anyway nobody notices."""
        now, server = self._world.loop.time(), self._world.server
        if not server.up:
            return
        self._stalls.append((server.id_of(node), now, now + for_s))

    def outage(self, begin: float, end: float) -> None:
        """The broker stood still, or was down: nobody can have been heard.

        A judge knows it from his canaries: of one before it, and of one after.
        """
        canary_s = self._world.settings.canary_every_s
        self._outages.append((begin - canary_s, end + RECONNECT_S + canary_s))

    def stored(self, record: Record) -> None:
        """If it is an expiry: it must not be of such a life."""
        event = record.event
        if isinstance(event, WorkerRegistered):
            self._ttls[event.incarnation] = event.lease_ttl_s
        if not isinstance(event, WorkerExpired):
            return
        now = self._world.loop.time()
        heard_at, server = self._last.get(event.incarnation, (now, ""))
        for name, begin, end in self._stalls:
            if name == server and heard_at <= begin and now < begin + self._hold_s:
                group = self._group(event, server, begin)
                if len(group) > 1 and self._is_judge(event.by, server, begin):
                    what = f"{event.worker_id} expired {now - begin:.1f} s after {name}"
                    what += f" stopped until {end:.1f}, with {len(group)} silent lives"
                    raise Violation("server", what)

    @property
    def _hold_s(self) -> float:
        return self._world.settings.guard_hold_s

    def _group(self, event: WorkerExpired, server: str, begin: float) -> list[str]:
        """Who is silent with it; nobody, if that is not sure."""
        workers = self._world.watch.histories.dumb.workers
        group = {}
        for worker in workers.values():
            heard_at, by = self._last.get(worker["incarnation"], (0.0, ""))
            if by == server:
                group[worker["incarnation"]] = heard_at, worker["lease_ttl_s"]
        own_at, own_ttl_s = self._last[event.incarnation][0], self._ttl_s(event)
        group[event.incarnation] = own_at, own_ttl_s
        judged_at = own_at + own_ttl_s - SLACK_S  # at least
        silent = all(
            heard_at <= begin
            and ttl_s * SILENT_SHARE < self._silence_s(heard_at, judged_at)
            for heard_at, ttl_s in group.values()
        )
        return list(group) if silent else []

    def _silence_s(self, heard_at: float, judged_at: float) -> float:
        """For so long a judge counts at least: what the broker is to blame for, not."""
        return (
            judged_at
            - heard_at
            - sum(
                max(0.0, min(judged_at, end) - max(heard_at, begin))
                for begin, end in self._outages
            )
        )

    def _ttl_s(self, event: WorkerExpired) -> float:
        return self._ttls.get(event.incarnation, 0.0)

    def _is_judge(self, name: str, server: str, begin: float) -> bool:
        """Whether the judge heard everything, by another server."""
        host: Any = self._world.hosts.get(name)
        if not isinstance(host, ProjectorHost) or not host.brokers:
            return False
        since = self._world.loop.time() - begin
        own = self._world.server.id_of(host.brokers[0].node)
        return own != server and host.quiet_for_s > max(STEADY_S, since)
