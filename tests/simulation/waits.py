"""Those who wait for routers: the operator's gate, and `synced` at a router.

What they are told must be so at that moment. One thing nobody can know: that a router
lives which was silent for as long as it is waited for, of time in which the broker was
there, and had no time since then in which it could have spoken.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from controlplane.plane import Plane
from controlplane.presence import Presence
from controlplane.vigil import SPEAKING_S
from events import ControlPlaneError

from .hosts import CELL, RouterHost
from .outcome import Violation
from .plan import Wait

if TYPE_CHECKING:
    from .world import World


WELL_S = 80.0
"""So long after the last fault everything is well again."""


SEEN_S = 1.0
"""Who began less than that ago may have said so after whoever waits had looked."""


class SimPlane(Plane):
    """The product's plane over a connection of the simulation."""

    def __init__(self, world: World) -> None:
        self._world = world
        super().__init__(("sim://",), cell=CELL, name="op", settings=world.settings)

    def _connection(self, name: str) -> Any:
        del name
        return self._world.operator.connection


class Waits:
    """Begins waits, and looks at what they were told."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._heard: dict[str, float] = {}
        """When each router's presence was stored last."""
        self._outages: list[tuple[float, float]] = []

    def heard(self, router: str) -> None:
        """A presence of it was stored just now."""
        self._heard[router] = self._world.loop.time()

    def outage(self, begin: float, end: float) -> None:
        """The broker stood still, or was down."""
        self._outages.append((begin, end))

    def begin(self, step: Wait) -> None:
        world = self._world
        if step.kind == "wait":
            host: Any = world.operator
            work = self._wait(step)
        else:
            host = world.host(step.router)
            if not isinstance(host, RouterHost) or host.view is None:
                return
            if host.view._over:
                return
            told = self._synced if step.kind == "synced" else self._wait_for
            work = told(step, host)
        if host.running:
            host.process.spawn(work)
        else:
            work.close()

    async def _wait(self, step: Wait) -> None:
        world = self._world
        lineage = world.watch.histories.current
        if lineage is None:
            return
        end = lineage.end
        with world.waiting(world.operator, f"wait {end}"):
            try:
                result = await SimPlane(world).wait(end, timeout_s=step.timeout_s)
            except ControlPlaneError as error:
                world.operator.say(f"wait failed: {type(error).__name__}")
                self._must_not_fail(step, repr(error))
                return
        world.operator.say(f"wait {end}: {result.reached} {result.missing}")
        if not result.reached:
            self._must_not_fail(step, f"missing: {result.missing}")
        if result.reached and world.watch.histories.current is lineage:
            with world.checking():
                self._check_reached(end)

    def _must_not_fail(self, step: Wait, why: str) -> None:
        """Long after the last fault whoever waits is told yes."""
        if step.at_s > self._world.plan.faults_end_s + WELL_S:
            with self._world.checking():
                what = f"{step.kind} at {step.at_s:.0f} s was told no: {why}"
                raise Violation(step.kind, what)

    def _check_reached(self, end: int) -> None:
        """Every router that has been there for long must have what was waited for."""
        world = self._world
        for host in world.of(RouterHost):
            view = host.view
            steady = host.quiet_for_s > self._present_s and view is not None
            steady = steady and not self._is_forgotten(host)
            if steady and not view._over and view.revision < end:
                what = f"wait {end} was told yes; {host.name} is at {view.revision}"
                raise Violation("wait", what)
            said = world.watch.said_by(host.name, host.started_at)
            begun_s = world.loop.time() - host.started_at
            if host.alive and said is not None and begun_s > SEEN_S:
                self._check_place(said, end)

    @property
    def _present_s(self) -> float:
        """A router that could speak for so long has spoken."""
        return self._world.settings.presence_ttl_s + 10.0

    def _is_forgotten(self, host: RouterHost) -> bool:
        """Whether it lapsed while others could speak, and could not speak itself since.

        What it could not do: it was stopped or cut off, and when it was well again the
        broker was away. An outage that routers need not notice is none here.
        """
        settings, now = self._world.settings, self._world.loop.time()
        kept_s = settings.presence_ttl_s + settings.presence_lapse_s
        heard_at = self._heard.get(host.name, now)
        lapsed_s = now - heard_at - self._away_s(heard_at, longer_than_s=SPEAKING_S)
        well_s = host.quiet_for_s - self._away_s(now - host.quiet_for_s)
        return lapsed_s > kept_s and well_s <= self._present_s

    def _away_s(self, since: float, longer_than_s: float = 0.0) -> float:
        """How long the broker was away since then, in outages longer than that."""
        return sum(
            max(0.0, end - max(begin, since))
            for begin, end in self._outages
            if end - begin > longer_than_s
        )

    def _check_place(self, said: Presence, end: int) -> None:
        """A router that is taken for live stands there, and in this history."""
        if said.revision < end or not _is_of(self._world.watch.histories.current, said):
            what = f"wait {end} was told yes; {said.name}, which says that it lives"
            raise Violation("wait", f"{what}, is at {said.revision}")

    async def _wait_for(self, step: Wait, host: RouterHost) -> None:
        """The router is to have what is in the log now."""
        world, view = self._world, host.view
        lineage = world.watch.histories.current
        if view is None or lineage is None:
            return
        end = lineage.end
        with world.waiting(host, f"wait_for {end}"):
            try:
                await view.wait_for(end, step.timeout_s)
            except (TimeoutError, ControlPlaneError) as error:
                host.say(f"wait_for failed: {type(error).__name__}")
                self._must_not_fail(step, repr(error))
                return
        host.say(f"wait_for {end}: at {view.revision}")
        if view.revision < end:
            with world.checking():
                what = f"{host.name} was waited for at {view.revision}, not {end}"
                raise Violation("wait_for", what)

    async def _synced(self, step: Wait, host: RouterHost) -> None:
        world, view = self._world, host.view
        assert view is not None
        lineage = world.watch.histories.current
        end = 0 if lineage is None else lineage.end
        with world.waiting(host, "synced"):
            try:
                await view.synced(step.timeout_s)
            except (TimeoutError, ControlPlaneError) as error:
                host.say(f"synced failed: {type(error).__name__}")
                self._must_not_fail(step, repr(error))
                return
        host.say(f"synced at {view.revision}, asked at {end}")
        if lineage is not None and world.watch.histories.current is lineage:
            with world.checking():
                if view.revision < end or view.source != "live":
                    what = f"{host.name} synced at {view.revision} ({view.source})"
                    raise Violation("synced", f"{what}; the log ended at {end} before")
                if not _is_of(lineage, view._core.replica):
                    raise Violation("synced", f"{host.name} synced in lost history")


def _is_of(lineage: Any, replica: Any) -> bool:
    """Whether the last record that a replica knows of is of this history."""
    at, known = replica.fingerprint_at, replica.fingerprint
    return not known or (at <= lineage.end and lineage.moments[at].fingerprint == known)
