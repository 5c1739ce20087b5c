"""The world of one run: every machine, the network, the broker, and who watches.

Nothing here decides anything of the product's. Hosts run its own services; the
broker's double is the only thing made for the test. `run` does what a plan says and
returns what came of it.
"""

from __future__ import annotations

import gc
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random
from typing import Any

from controlplane import identifiers
from controlplane.eventlog import Appended, Pending
from controlplane.settings import Settings

from .claimants import ClaimantHost
from .doing import Doing, make_cell
from .hosts import Host, ProjectorHost, RouterHost
from .loop import PROCESS, LivelockError, Process, SimLoop
from .outcome import Broken, Outcome, Violation
from .plan import Pace, Plan, Wait
from .server import SimServer
from .trace import Trace
from .versions import Versions
from .watching import Watch
from .workers import OperatorHost, WorkerHost

START_NS = 1_767_225_600_000_000_000
SLOW_MAILBOX = 6
QUIET_TRIES = 20
"""Two who duel for a worker id may never be quiet."""


def settings_of(pace: Pace) -> Settings:
    """The product's settings at this pace."""
    factor = pace.factor
    return Settings(
        lease_s=1.0 + 2.0 * factor,
        head_every_s=1.0 * factor,
        canary_every_s=0.3 + 0.4 * factor,
        blind_gap_s=1.0 * factor,
        canary_lost_s=5.0 * factor,
        behind_max_s=1.0 * factor,
        presence_ttl_s=10.0 * factor,
        checkpoint_every_s=5.0,
        snapshot_every=pace.snapshot_every,
        publish_batch_max=pace.publish_batch_max,
        view_max_age_s=pace.view_max_age_s,
        view_max_bytes=pace.view_max_bytes,
    )


class Source:
    """Where the product's identifiers come from: the clock of whoever asks."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._rng = Random(f"{world.plan.seed}/identifiers")

    def now_ns(self) -> int:
        process = PROCESS.get()
        offset_s = 0.0
        if process is not None and process.name in self._world.hosts:
            offset_s = self._world.hosts[process.name].clock.offset_s
        return START_NS + int((self._world.loop.time() + offset_s) * 1e9)

    def random_bytes(self, count: int) -> bytes:
        return self._rng.randbytes(count)


class Checking:
    """See `World.checking`. One for a whole run: it is entered thousands of times."""

    __slots__ = ("_break",)

    def __init__(self, break_: Callable[[Violation], None]) -> None:
        self._break = break_

    def __enter__(self) -> None:
        return None

    def __exit__(self, _kind: object, error: object, _traceback: object) -> bool:
        if not isinstance(error, Violation):
            return False
        self._break(error)
        return True


class World:
    """See the module."""

    def __init__(
        self,
        plan: Plan,
        folder: Path,
        *,
        trace: bool = False,
        settings: Settings | None = None,
    ) -> None:
        self.plan = plan
        self.settings = settings or settings_of(plan.pace)
        self.loop = SimLoop()
        self.loop.switch = Versions().switch
        self.loop.at_failure = self._failed
        self.trace = Trace(self.loop, keep=trace)
        self.violation: Violation | None = None
        self._checking = Checking(self.break_)
        self.watch = Watch(self)
        far = Process("broker", self.loop)
        self.server = SimServer(self.loop, context=far.context, observer=self.watch)
        self.hosts: dict[str, Host] = {}
        self.waits: dict[int, tuple[Process, str, str, float]] = {}
        self._doing = Doing(self)
        self.operator = self._cast(folder)

    def _cast(self, folder: Path) -> Any:
        """Everybody who is there from the beginning; returns the operator's machine."""
        operator = self._add(OperatorHost(self, "op"))
        for name in ("p1", "p2"):
            self._add(ProjectorHost(self, name))
        self._add(RouterHost(self, "r1", mailbox_limit=SLOW_MAILBOX))
        self._add(RouterHost(self, "r2", checkpoint=folder / "r2.checkpoint"))
        self._add(RouterHost(self, "r3"))
        return operator

    def _add(self, host: Any) -> Any:
        self.hosts[host.name] = host
        return host

    # ---- who is there ----------------------------------------------------------
    def host(self, name: str) -> Host:
        if name in self.hosts:
            return self.hosts[name]
        return self.claimant(name) if name.startswith("c") else self.worker(name)

    def worker(self, name: str) -> WorkerHost:
        host = self.hosts.get(name) or self._add(WorkerHost(self, name))
        assert isinstance(host, WorkerHost)
        return host

    def claimant(self, name: str) -> ClaimantHost:
        host = self.hosts.get(name) or self._add(ClaimantHost(self, name))
        assert isinstance(host, ClaimantHost)
        return host

    def of(self, kind: type) -> list[Any]:
        return [host for host in self.hosts.values() if isinstance(host, kind)]

    # ---- running ---------------------------------------------------------------
    def run(self) -> None:
        """Do the plan to its end, or to the first violation, which is raised."""
        before = identifiers.use(Source(self))
        try:
            self._begin()
            self._run_to_the_end()
            if self.violation is None:
                self._finish()
        except LivelockError as error:
            self.break_(Violation("livelock", str(error)))
        finally:
            identifiers.use(before)
            assert self.loop.switch is not None
            self.loop.switch(None)
            self.loop.close()
        if self.violation is not None:
            raise self.violation

    def dismantle(self) -> None:
        """Let go of everything, so that little of it is left for the collector."""
        self.loop.end_tasks()
        for part in (self.watch, self.server, self):
            vars(part).clear()

    def _begin(self) -> None:
        loop = self.loop
        for number, host in enumerate(list(self.hosts.values())):
            host.wanted = True
            loop.call_at(0.01 + 0.3 * number, host.start)
        loop.call_at(0.2, lambda: self.operator.process.spawn(self.make_cell()))
        loop.call_at(1.0, self.watch.look)
        for step in self.plan.steps:
            loop.call_at(step.at_s, self._doing.do, step)

    def _run_to_the_end(self) -> None:
        """Run to the plan's end, and a little longer if something just happens then.

        What was stored last must have had the time to arrive before it is looked for.
        """
        quiet_s, until_s = self.settings.head_every_s, self.plan.end_s
        for _ in range(QUIET_TRIES):
            self.loop.run_to(until_s)
            log = self.watch.histories.current
            stored_at = -quiet_s if log is None else log.moments[-1].stored_at
            if self.violation is not None or stored_at + quiet_s <= self.loop.time():
                return
            until_s = stored_at + quiet_s

    def _finish(self) -> None:
        self.watch.final()

    async def make_cell(self) -> None:
        await make_cell(self)

    def break_(self, violation: Violation) -> None:
        """The run has failed: stop where it is."""
        if self.violation is None:
            self.violation = violation
            self.trace.line("CHECK", str(violation))
            self.loop.halt()

    def _failed(self, process: Process, error: BaseException) -> None:
        """A task ended with an error that it should have dealt with."""
        self.break_(Violation("crash", f"{process.name}: {error!r}"))

    def checking(self) -> Checking:
        """What is found inside breaks the run, wherever it is found."""
        return self._checking

    # ---- what hosts tell -------------------------------------------------------
    @contextmanager
    def waiting(self, host: Host, what: str) -> Iterator[None]:
        """Somebody waits for something, and must not for ever."""
        assert host.process is not None
        number = len(self.waits)
        while number in self.waits:
            number += 1
        self.waits[number] = (host.process, host.name, what, self.loop.time())
        try:
            yield
        finally:
            self.waits.pop(number, None)

    def appending(self, pending: Sequence[Pending]) -> None:
        self.watch.appending(pending)

    def acknowledged(
        self, host: Host, pending: Sequence[Pending], done: Appended
    ) -> None:
        with self.checking():
            self.watch.acknowledged(host, pending, done)

    def folded(self, host: ProjectorHost, core: Any) -> None:
        with self.checking():
            self.watch.folded(host, core)

    def router_began(self, host: RouterHost) -> None:
        self.watch.router_began(host)

    def moved(self, host: RouterHost, replica: Any) -> None:
        with self.checking():
            self.watch.moved(host, replica)

    def node_stalled(self, node: str, for_s: float) -> None:
        self.watch.node_stalled(node, for_s)

    def wait(self, step: Wait) -> None:
        self.watch.wait(step)


def run(plan: Plan, *, trace: bool = False) -> Outcome:
    """Do ``plan`` in a world of its own."""
    broken: Broken | None = None
    with folder_of_a_run() as folder:
        world = World(plan, folder, trace=trace)
        gc_was_on = gc.isenabled()
        gc.disable()
        try:
            with world.trace.listening():
                world.run()
        except Violation as violation:
            broken = Broken(
                invariant=violation.invariant,
                what=violation.what,
                at_s=round(world.loop.time(), 6),
            )
        finally:
            if gc_was_on:
                gc.enable()
    outcome = Outcome(
        seed=plan.seed,
        broken=broken,
        trace_digest=world.trace.digest,
        trace=tuple(world.trace.kept),
        callbacks=world.loop.callbacks,
        records=world.watch.records,
        virtual_s=round(world.loop.time(), 6),
    )
    world.dismantle()
    return outcome


@contextmanager
def folder_of_a_run() -> Iterator[Path]:
    """A folder for the files of one run."""
    with tempfile.TemporaryDirectory(prefix="sim-", dir=_fast_folder()) as folder:
        yield Path(folder)


def _fast_folder() -> str | None:
    """Where files cost nothing, if there is such a place."""
    with suppress(OSError):
        if Path("/dev/shm").is_dir():  # noqa: S108 - each run makes its own folder
            return "/dev/shm"  # noqa: S108
    return None
