"""Gates of a roll-out: waiting until routers, or a worker, are where one wants them.

A gate looks again and again and says what it saw last; that it was not reached is an
answer, no error.
"""

from __future__ import annotations

import asyncio
import enum
import math
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import Final, Literal, TypeAlias

import msgspec

from events import (
    ControlPlaneError,
    ModelName,
    Namespace,
    Revision,
    Role,
    Status,
    WorkerId,
    check_model,
    check_namespace,
    check_worker_id,
)
from projections import Census, Fleet, take_census

from .broker import Broker
from .departure import Departure
from .errors import SettingsError
from .eventlog import EventLog
from .presence import RouterSeen, WaitResult, judge_wait, names_astray, routers
from .projector.leadership import holder
from .router.client import RouterView
from .settings import Settings
from .topology import Names
from .viewfeed import ViewFeed
from .vigil import Vigil

PAUSE_S: Final = 0.05
SYNC_S_MIN: Final = 2.0
"""A view gets so long to be up to date, however soon the deadline is, but no longer
than the broker gets to answer."""
NOTE_S: Final = 2.5
"""So long is waited for a view that somebody could do without: two heads of a leader,
or one to follow another."""
LED_NOTE_S: Final = 6.0
"""So long, where a projector leads."""

Wanted: TypeAlias = Literal["all"] | int
DrainState: TypeAlias = Literal[
    "starting",
    "ready",
    "draining",
    "drained",
    "gone",
    "away",
    "never_seen",
    "unknown",
]


class ReadyResult(WaitResult, frozen=True, kw_only=True):
    """Whether routers have so many routable workers of a deployment.

    Without enough of them ``missing`` names every router: none can have them.
    """

    ready: int | None = None
    """How many there were at last; None: no projector keeps a view up to date."""
    blockers: dict[str, int] = {}
    """What keeps the others away, counted."""


class DrainResult(msgspec.Struct, frozen=True, kw_only=True):
    """Where a worker stands that was asked to drain."""

    safe_to_delete: bool
    """It drained, or it is gone. Who says ``drained`` without ``draining`` before, as a
    sidecar whose engine crashed, must stay so for 2 s."""
    state: DrainState
    """Its status. ``gone``: it left after draining, or was absent for 2 s; ``away``:
    absent for less, so it may be between two lives; ``never_seen``: no record of the
    log names it; ``unknown``: no projector keeps a view up to date."""


class Gate:
    """Waits for the routers and workers of a cell."""

    def __init__(
        self,
        broker: Broker,
        log: EventLog,
        feed: ViewFeed,
        settings: Settings,
        view: Callable[[], RouterView],
    ) -> None:
        """Ask through ``broker``; ``view`` makes views that nobody waits for."""
        self._broker, self._log, self._feed = broker, log, feed
        self._settings, self._view = settings, view

    async def routers(self) -> tuple[RouterSeen, ...]:
        """Every router that is there, or went lately without goodbye, by name."""
        return await routers(self._broker, self._log.names, self._settings)

    async def epoch(self) -> str | None:
        """The current epoch of the view; None: there is none yet."""
        state = await self._feed.state()
        if state.messages:
            entry = await self._feed.at(state.last_sequence)
            if entry is not None and entry.message is not None:
                return str(entry.message.epoch)
        pointer = await self._feed.snapshot_pointer()
        return None if pointer is None else str(pointer.position.epoch)

    async def reached(
        self, revision: Revision, wanted: Wanted, timeout_s: float
    ) -> WaitResult:
        """What came of waiting until ``wanted`` routers have ``revision``."""
        if type(revision) is not int or revision < 0:
            rule = "a whole number of at least 0"
            raise SettingsError(field="revision", value=revision, rule=rule)
        count, deadline = _count_of(wanted), _Deadline(timeout_s)
        vigil = self._vigil()
        while True:
            result = await self._look(revision, count, vigil)
            if result.reached or deadline.over:
                return result
            await deadline.pause()

    def _vigil(self) -> Vigil:
        clock = asyncio.get_running_loop().time
        return Vigil(self._broker, self._log.names, self._settings, clock)

    async def _look(
        self, revision: Revision, count: int | None, vigil: Vigil
    ) -> WaitResult:
        seen = await self.routers()
        epoch, end = await self.epoch(), (await self._log.state()).last_revision
        astray = await names_astray(self._log, seen)
        result = judge_wait(seen, epoch, revision, count, log_end=end, astray=astray)
        vigil.looked()
        if count is None and result.reached:
            unheard = await vigil.unheard({router.presence.name for router in seen})
            return WaitResult(reached=not unheard, missing=unheard)
        return result

    async def ready(
        self, deployment: Deployment, least: int, wanted: Wanted, timeout_s: float
    ) -> ReadyResult:
        """What came of waiting until ``wanted`` routers have ``least`` workers of it.

        A router has them when it has the revision since which the view of this very
        moment has them, without a break that was seen.
        """
        if type(least) is not int or least < 1:
            rule = "a whole number of at least 1"
            raise SettingsError(field="min_ready", value=least, rule=rule)
        count, deadline = _count_of(wanted), _Deadline(timeout_s)
        vigil = self._vigil()
        since = _Since(deployment, least)
        async with self._up_to_date(deadline) as view:
            while view is not None:
                result = WaitResult(reached=False)
                revision = since.look(view.fleet)
                if revision is not None:
                    result = await self._look(revision, count, vigil)
                # While routers were asked, workers may have gone again.
                stands = revision is not None and since.look(view.fleet) == revision
                if deadline.over or (result.reached and stands):
                    return await self._ready_result(result, since, stands=stands)
                await deadline.pause()
        names = tuple(router.presence.name for router in await self.routers())
        return ReadyResult(reached=False, missing=names)

    async def _ready_result(
        self, result: WaitResult, since: _Since, *, stands: bool
    ) -> ReadyResult:
        missing = result.missing
        if not stands:
            missing = tuple(router.presence.name for router in await self.routers())
        return ReadyResult(
            reached=result.reached and stands,
            missing=missing,
            ready=since.census.routable,
            blockers=since.census.blockers,
        )

    async def drained(
        self, namespace: Namespace, worker_id: WorkerId, timeout_s: float
    ) -> DrainResult:
        """What came of waiting until the worker is drained, or gone.

        Another incarnation of it is not gone: it may be the same process, back with
        what it had in flight. Who was never there is not waited for.
        """
        key = (check_namespace(namespace), check_worker_id(worker_id))
        deadline = _Deadline(timeout_s)
        departure = Departure(self._log, *key, asyncio.get_running_loop().time)
        async with self._up_to_date(deadline) as view:
            while view is not None:
                result = await _drain_result(view, key, departure)
                over = result.state == "never_seen" or deadline.over
                if result.safe_to_delete or over:
                    return result
                await deadline.pause()
        return DrainResult(safe_to_delete=False, state="unknown")

    def _up_to_date(
        self, deadline: _Deadline
    ) -> AbstractAsyncContextManager[RouterView | None]:
        """A view with everything acknowledged before; None: it is not so in time."""
        least_s = min(SYNC_S_MIN, self._settings.connect_timeout_s)
        return up_to_date(self._view(), max(deadline.left_s, least_s))


@asynccontextmanager
async def up_to_date(
    view: RouterView, timeout_s: float
) -> AsyncIterator[RouterView | None]:
    """Enter ``view`` once it includes all acknowledged before; None: not in time."""
    async with view:
        try:
            await view.synced(None if math.isinf(timeout_s) else timeout_s)
        except TimeoutError:
            yield None
        else:
            yield view


class Unseen(enum.Enum):
    """Why there is no fleet as of all that is decided."""

    NO_PROJECTOR = "no_projector"
    """None leads, so nobody publishes a view."""
    BEHIND = "behind"
    """One leads, as far as is known, and yet no view was up to date in time."""


async def glimpse(
    view: RouterView, broker: Broker, names: Names, settings: Settings
) -> Fleet | Unseen:
    """The fleet as of all acknowledged before, for who could do without it.

    A decision that changes nothing reaches a view with the next head only: a leader
    has two of them in which to be heard, and who leads is waited for longer.
    """
    async with view:
        for within_s in (NOTE_S, LED_NOTE_S - NOTE_S):
            with suppress(TimeoutError):
                await view.synced(min(within_s, settings.connect_timeout_s))
                return view.fleet
            if not await _is_led(broker, names):
                return Unseen.NO_PROJECTOR
    return Unseen.BEHIND


async def _is_led(broker: Broker, names: Names) -> bool:
    """Whether a projector leads; where nobody may know, as if one did."""
    try:
        return await holder(broker, names) is not None
    except ControlPlaneError:
        return True


class Deployment(msgspec.Struct, frozen=True, kw_only=True):
    """The workers of a namespace that answer to a name; `take_census` counts them.

    Raises `InvalidIdentityError` for what are no names.
    """

    namespace: Namespace
    model: ModelName
    role: Role | None = None

    def __post_init__(self) -> None:
        """Refuse what nobody could be called."""
        check_namespace(self.namespace)
        check_model(self.model)


class _Since:
    """Since which revision a deployment has enough routable workers."""

    def __init__(self, deployment: Deployment, least: int) -> None:
        self._deployment, self._least = deployment, least
        self._epoch: str | None = None
        self._revision: Revision | None = None
        self.census = Census(0, {})

    def look(self, fleet: Fleet) -> Revision | None:
        """The first revision at which it was seen so, if it still is; else None."""
        wish = self._deployment
        self.census = take_census(fleet, wish.namespace, wish.model, wish.role)
        if self.census.routable < self._least:
            self._revision = None
        elif self._revision is None or self._epoch != fleet.epoch:
            self._revision, self._epoch = fleet.revision, fleet.epoch
        return self._revision


class _Deadline:
    """When to give up. Raises `SettingsError` for what is no time-out."""

    def __init__(self, timeout_s: float) -> None:
        number = isinstance(timeout_s, int | float) and not isinstance(timeout_s, bool)
        if not number or not timeout_s >= 0:
            rule = "0 or more seconds"
            raise SettingsError(field="timeout_s", value=timeout_s, rule=rule)
        self._clock = asyncio.get_running_loop().time
        self._at = self._clock() + timeout_s

    @property
    def left_s(self) -> float:
        """Seconds until it is over."""
        return max(0.0, self._at - self._clock())

    @property
    def over(self) -> bool:
        """Whether time is up."""
        return self._clock() >= self._at

    async def pause(self) -> None:
        """Let a moment pass, but not the deadline."""
        await asyncio.sleep(min(PAUSE_S, self.left_s))


def _count_of(wanted: Wanted) -> int | None:
    """How many routers; None: all. Raises `SettingsError`."""
    if wanted == "all":
        return None
    if type(wanted) is not int or wanted < 1:
        rule = "'all', or a count of at least 1"
        raise SettingsError(field="routers", value=wanted, rule=rule)
    return wanted


async def _drain_result(
    view: RouterView, key: tuple[Namespace, WorkerId], departure: Departure
) -> DrainResult:
    worker = view.fleet.state.workers.get(key)
    if worker is None:
        absence = await departure.absent(view.revision)
        return DrainResult(safe_to_delete=absence == "gone", state=absence)
    ended = worker.status is Status.DRAINED and await departure.stays(view.revision)
    return DrainResult(safe_to_delete=ended, state=worker.status.value)
