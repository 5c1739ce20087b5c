"""A stage: all that a scenario sees of its world, so that it can run in two.

A scenario is a coroutine ``async def scenario(stage: Stage) -> None``. It uses the
stage, pure functions and tasks of ``asyncio``; it never sleeps and reads no clock. In
the real world processes are processes, the server is nats-server and faults are
signals and sockets; in the simulated one all of it is one event loop in virtual time.
What a scenario may rely on:

- Names are unique on a stage; a process of a name is the same one after a restart: a
  router finds the checkpoint that it left, a worker its id.
- ``start`` returns when the process is as its kind promises (below). The other verbs
  return when it is so: dead, stopped to the last thread, gone.
- What a process tells (`RouterNow`, heard changes, notices) reaches the stage at once
  but not instantly: wait for it with `until`. What it told before it died counts.
- ``log`` and ``feed`` are a client's own, behind no fault but those of the broker.
- `lapse` and the bounds of `until` are seconds of the world: real or virtual.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Literal, Protocol, TypeAlias, TypeVar

import msgspec

from controlplane.clock import Clock
from controlplane.eventlog import EventLog
from controlplane.router.client import RouterView
from controlplane.settings import Settings
from controlplane.telemetry import RouterMetrics
from controlplane.viewfeed import ViewFeed
from events import Incarnation, Record, Revision
from projections import Change, Fleet, PlaneState

T = TypeVar("T")

MODEL = "llama"
TTL_S = 5.0
"""The lease of staged workers: the shortest that there is."""
SNAPSHOT_EVERY = 50
"""Deltas between snapshots, unless a scenario's settings say otherwise."""
PATIENCE_S = 20.0
"""For what has no bound of its own, on a busy machine."""


class Place(msgspec.Struct, frozen=True):
    """Where a router once stood."""

    epoch: str
    revision: Revision
    digest: str


class RouterNow(msgspec.Struct, frozen=True, kw_only=True):
    """What a router said of itself last; at least ten times a second if it can."""

    epoch: str | None = None
    revision: Revision = 0
    digest: str = ""
    source: Literal["none", "checkpoint", "live"] = "none"
    stale_for_s: float = 0.0
    resyncs: int = 0
    """How often this life loaded the view anew, its start included…"""
    dropped: int = 0
    """…and how often it resynced because it was too slow and dropped deltas."""


def router_now(view: RouterView, metrics: RouterMetrics) -> RouterNow:
    """What a view says of itself; ``metrics`` are its own."""
    return RouterNow(
        epoch=view.epoch,
        revision=view.revision,
        digest=view.digest,
        source=view.source,
        stale_for_s=round(view.stale_for_s, 3),
        resyncs=sum(int(s._value.get()) for s in metrics.resyncs._metrics.values()),
        dropped=int(metrics.dropped_then_resynced._value.get()),
    )


class Heard(msgspec.Struct, frozen=True):
    """A change as a router's reader got it; ``worker``: ``namespace/worker_id``."""

    kind: Literal["added", "changed", "removed"]
    worker: str
    status: str = ""
    """What it is now; nothing when it was removed."""


def heard(change: Change) -> Heard:
    """What a reader of changes writes down."""
    worker = change.worker or change.before
    assert worker is not None
    status = "" if change.worker is None else change.worker.status.value
    return Heard(change.kind, f"{worker.namespace}/{worker.worker_id}", status)


class CommandError(Exception):
    """A command of a worker raised; ``name`` is the class, as ``LeaseLostError``."""

    def __init__(self, name: str, text: str) -> None:
        self.name = name
        super().__init__(f"{name}: {text}")


class StagedLink(Protocol):
    """A process's way to the broker; every connection of it goes this way."""

    def black_hole(self) -> None:
        """Nothing passes, nothing is refused; `heal` lets pass what was sent."""

    def cut(self) -> None:
        """Connections break, new ones are refused, until `heal`."""

    def heal(self) -> None:
        """All passes again. Connections that there are stay."""

    def lose_answers(self, count: int = 1, *, breaking: bool = False) -> None:
        """The next appends to the log are stored and their answers lost.

        The connection lives on, and only time tells the sender; ``breaking``: each
        time it breaks instead.
        """

    @property
    def answers_lost(self) -> int:
        """By `lose_answers`, so far."""


class StagedProcess(Protocol):
    """A process of the product."""

    @property
    def name(self) -> str:
        """Unique on its stage."""

    @property
    def link(self) -> StagedLink:
        """Its way to the broker."""

    async def start(self) -> None:
        """Start, also again after `kill` or `stop`."""

    async def kill(self) -> None:
        """SIGKILL: it is gone between any two steps, with nothing tidied up."""

    async def freeze(self) -> None:
        """SIGSTOP: its connections stay open."""

    async def thaw(self) -> None:
        """SIGCONT."""

    async def stop(self) -> None:
        """SIGTERM: it leaves as it should."""

    @property
    def running(self) -> bool:
        """Whether it has not ended."""


class StagedWorker(StagedProcess, Protocol):
    """A process with one worker in it. ``start`` returns when it is registered.

    If entering raises, ``start`` raises `CommandError`.
    """

    @property
    def notices(self) -> Sequence[str]:
        """Kinds of all notices, of all its lives, in order."""

    @property
    def lost(self) -> str | None:
        """The class of the error that ended the worker for good, in this life."""

    @property
    def incarnation(self) -> Incarnation:
        """The last that it told."""

    async def say(self, verb: str, **values: Any) -> Revision:
        """Call a verb of the handle: ``ready``, ``drain``, ``update``…

        Values are plain data. Raises `CommandError`.
        """


class StagedRouter(StagedProcess, Protocol):
    """A process with one view in it. ``start`` returns when it may be used."""

    @property
    def places(self) -> Sequence[Place]:
        """Everywhere that it said it stood, of all its lives, in order.

        It says so when it has moved; of several moves at once, the last.
        """

    @property
    def sources(self) -> Sequence[str]:
        """What its view came from, of all its lives, in order, repetitions left out."""

    @property
    def heard(self) -> Sequence[Heard]:
        """What its reader of changes got, of all its lives, in order.

        A life begins with an ``added`` for each worker that is there.
        """

    @property
    def now(self) -> RouterNow:
        """What it said last; a life that has said nothing yet: `RouterNow()`."""

    async def synced(self, timeout_s: float = PATIENCE_S) -> None:
        """As `RouterView.synced`. Raises TimeoutError."""

    async def fleet(self) -> Fleet:
        """The fleet as it is there now."""


StreamKind: TypeAlias = Literal["log", "view"]


class StagedBroker(Protocol):
    """The server, and what happens to it. It keeps its address."""

    async def restart(self) -> None:
        """It is killed and started at once; it lost nothing that it acknowledged."""

    async def kill(self) -> None:
        """It is gone until `start`; what it acknowledged is kept."""

    async def start(self) -> None:
        """It is there again."""

    async def freeze(self) -> None:
        """It is silent until `thaw`; then it does at once all that it was asked."""

    async def thaw(self) -> None:
        """It goes on."""

    async def mark(self) -> None:
        """Remember all that it holds now."""

    async def roll_back(self, stream: StreamKind | None = None) -> None:
        """It is killed and starts with what it held at the last `mark`.

        ``stream``: only that one goes back. Sequences are given again.
        """

    async def delete_log(self) -> None:
        """Somebody deletes the log: nobody answers appends until `create_log`."""

    async def create_log(self) -> None:
        """The log is made anew, under another identity, empty."""

    async def drop_consumers(self) -> None:
        """Somebody deletes every consumer of the log and of the view stream."""

    async def trim_view(self, keep: int) -> None:
        """The view stream forgets all but its last ``keep`` messages."""


class Stage(Protocol):
    """One run of one scenario: a fresh cell on a broker of its own."""

    @property
    def settings(self) -> Settings:
        """Of the cell, and of every process."""

    @property
    def chance(self) -> random.Random:
        """Seeded; printed when the scenario fails."""

    @property
    def clock(self) -> Clock:
        """For what events say of their time, not for waiting."""

    @property
    def log(self) -> EventLog:
        """The log, as a client of the scenario's own sees it."""

    @property
    def feed(self) -> ViewFeed:
        """The view stream and the snapshots, seen likewise."""

    @property
    def broker(self) -> StagedBroker:
        """The server."""

    def count(self, *, real: int, simulated: int) -> int:
        """How often: as often as this world can afford."""

    # ---- time ------------------------------------------------------------------
    async def until(
        self,
        condition: Callable[[], T | Awaitable[T]],
        within_s: float = PATIENCE_S,
    ) -> T:
        """Return the condition's first true answer; fail when there is none in time.

        An absent broker (`LogUnavailableError`) is no answer yet.
        """

    async def lapse(self, seconds: float) -> None:
        """So much time passes: where a scenario is about time."""

    # ---- processes -------------------------------------------------------------
    def projector(self, name: str) -> StagedProcess:
        """A projector, not started. ``start`` returns when it is on its way."""

    def worker(self, name: str, **spec: Any) -> StagedWorker:
        """A worker of id ``name``, not started; ``spec`` as `WorkerSpec`, plain data.

        Unless said otherwise: namespace ``prod``, model `MODEL`, status ``ready``, the
        shortest lease. ``worker_id`` may differ from the process's name.
        """

    def router(
        self,
        name: str,
        *,
        checkpoint: bool = False,
        reader_blocks_s: float = 0.0,
        live_max: int | None = None,
    ) -> StagedRouter:
        """A router, not started.

        ``reader_blocks_s``: so long its reader holds up the whole process at each
        change. ``live_max``: at most so many live messages wait for it.
        """

    # ---- the log ---------------------------------------------------------------
    async def records(self) -> list[Record]:
        """All that the log holds."""

    async def replay(self) -> PlaneState:
        """The state folded from the log, by `replay_log`."""


Scenario: TypeAlias = Callable[[Stage], Awaitable[None]]


def settings_of(numbers: Mapping[str, float]) -> Settings:
    """The settings of a stage: quick leases and checkpoints, and ``numbers``."""
    quick: dict[str, Any] = {
        "checkpoint_every_s": 0.2,
        "connect_timeout_s": 1.0,
        "lease_s": 0.6,
        "snapshot_every": SNAPSHOT_EVERY,
    }
    return Settings(**{**quick, **numbers})


def spec_of(name: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a worker's spec, as plain data; see `Stage.worker`."""
    usual: dict[str, Any] = {
        "model": MODEL,
        "address": f"http://{name}.example:8000",
        "namespace": "prod",
        "worker_id": name,
        "status": "ready",
        "lease_ttl_s": TTL_S,
    }
    return {**usual, **fields}


class World(Protocol):
    """Where scenarios are run: one stage for each."""

    name: str

    def run(self, scenario: Scenario, **settings: float) -> None:
        """Set a stage with these settings and play the scenario on it, to its end.

        It fails as the scenario does, or if one of its processes ended by itself.
        """
