"""The end of a run: all faults are long over, so everything must be well again."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from .claimants import ClaimantHost
from .hosts import ProjectorHost, RouterHost
from .outcome import Violation
from .server import EPOCH
from .workers import WorkerHost

if TYPE_CHECKING:
    from .watching import Watch

STALE_S = 5.0
GOODBYE_S = 2.0
"""So long after its lease a life's ports may still be its own."""
LOSS_LINES = ("history lost or forked", "the log lost records")


class Ending:
    """What must hold when nothing has gone wrong for long."""

    def __init__(self, watch: Watch) -> None:
        self._watch, self._world = watch, watch.world

    def check(self) -> None:
        """Raise `Violation` for the first thing that is not well."""
        watch = self._watch
        watch.histories.check_end()
        self._leaders()
        self._routers()
        self._living()
        self._ports()
        self._waits()
        watch.histories.check_acknowledged(
            [*watch.announced, *self._said_so()], known_to_somebody=watch.knows
        )

    def _said_so(self) -> list[float]:
        """When a projector said that the log lost or changed history."""
        return [
            at
            for at, _, message in self._world.trace.errors
            if message.startswith(LOSS_LINES)
        ]

    def _leaders(self) -> None:
        leading = [
            host.name
            for host in self._world.of(ProjectorHost)
            if host.service is not None and host.service.leading
        ]
        if len(leading) != 1:
            raise Violation("converged", f"leading: {leading}")
        missing = self._watch.views.missing()
        if missing:
            raise Violation("converged", f"not published: {missing}")

    def _routers(self) -> None:
        histories, settings = self._watch.histories, self._world.settings
        lineage = histories.current
        for host in self._world.of(RouterHost):
            view = host.view
            if view is None:
                raise Violation("converged", f"{host.name} does not run")
            where = f"{host.name} at {view.epoch} revision {view.revision}"
            if view.revision != lineage.end or view.source != "live":
                what = f"{where} ({view.source}); the log ends at {lineage.end}"
                raise Violation("converged", what)
            if view.stale_for_s > STALE_S * settings.head_every_s:
                raise Violation("converged", f"{where} stale for {view.stale_for_s}")
            self._watch.views.check_shown(host.name, view.fleet, whole=True)
            self._mirror(host, view.fleet)

    def _mirror(self, host: RouterHost, fleet: Any) -> None:
        """Who followed the changes has the same workers."""
        now = {key: fleet.worker(*key) for key in fleet.state.workers}
        if now != host.mirror:
            odd = sorted(
                key
                for key in {*now, *host.mirror}
                if now.get(key) != host.mirror.get(key)
            )
            what = f"{host.name}: the changes say otherwise of {odd}"
            raise Violation("changes", what)

    def _living(self) -> None:
        """The living are in, the dead are out."""
        wanted: dict[tuple[str, str], set[str]] = {}
        for host in self._world.of(WorkerHost):
            if host.wanted and host.running and host.entry is not None:
                key = (host.entry.namespace, host.entry.worker_id)
                wanted.setdefault(key, set()).add(_incarnation(host))
        workers = self._watch.histories.dumb.workers
        present = {
            key: worker["incarnation"]
            for key, worker in workers.items()
            if key[0] != "ports"
        }
        for key, incarnation in sorted(present.items()):
            if incarnation not in wanted.get(key, ()):
                raise Violation("living", f"{key} {incarnation} is in, and dead")
        for key in sorted(wanted):
            if key not in present:
                raise Violation("living", f"{key} lives, and is not in")

    def _ports(self) -> None:
        """Nobody who is gone holds a port, and who lives holds all of his."""
        hosts = [*self._world.of(WorkerHost), *self._world.of(ClaimantHost)]
        living = dict(host.claims for host in hosts if host.claims is not None)
        ports = self._watch.histories.dumb.ports
        for key, port in sorted(ports.items()):
            if port["type"] != "held" or port["owner"].incarnation in living:
                continue
            if not self._may_not_know(port):
                raise Violation("ports", f"{key} is held by the dead: {port}")
        for life, blocks in living.items():
            for block in blocks:
                for number in block:
                    port = ports.get((block.host, number))
                    if not _is_held(port, life, block.claim_id):
                        what = f"{life} has {block}, but {number} is {port}"
                        raise Violation("ports", what)

    def _may_not_know(self, port: dict[str, Any]) -> bool:
        """Whether its holder was followed by another life so lately that it has time.

        It is told at its next beat; if it cannot be, its lease has to run out.
        """
        owner = port["owner"]
        key = (owner.namespace, owner.worker_id)
        follower = self._watch.histories.dumb.workers.get(key)
        if follower is None or follower["incarnation"] == owner.incarnation:
            return False
        now = EPOCH + timedelta(seconds=self._world.loop.time())
        allowed_s = port["lease_ttl_s"] + GOODBYE_S
        return bool((now - follower["registered_at"]).total_seconds() < allowed_s)

    def _waits(self) -> None:
        for process, who, what, since in self._world.waits.values():
            if process.state.value == "running":
                raise Violation("liveness", f"{who} waits since {since:.1f}: {what}")


def _is_held(port: dict[str, Any] | None, life: str, claim_id: str) -> bool:
    """Whether that life holds the port by that claim."""
    return (
        port is not None
        and port["type"] == "held"
        and (port["owner"].incarnation, port["claim_id"]) == (life, claim_id)
    )


def _incarnation(host: WorkerHost) -> str:
    handle = host.handle
    return "" if handle is None or not handle.revision else handle.incarnation
