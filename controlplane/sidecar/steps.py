"""What happens to a sidecar, and what it does about it."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from events import ControlPlaneError, Status


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """How patient a sidecar is. Seconds."""

    health_timeout_s: float = 1800.0
    """A child that was not healthy once by then is ended."""
    unhealthy_after: int = 3
    """So many failed probes in a row, and the worker is `starting` again."""
    drain_timeout_s: float = 20.0
    """The longest that draining takes."""
    drain_min_s: float = 1.0
    """At least so long after the routers know, a request may yet be on its way."""
    stop_timeout_s: float = 8.0
    """So long after it was asked to end, the child is killed."""


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """What an engine says that it is doing; None: it does not say."""

    kv_usage: float | None = None
    running: int | None = None
    waiting: int | None = None

    @property
    def in_flight(self) -> int | None:
        """Requests that it has and has not finished."""
        if self.running is None:
            return None
        return self.running + (self.waiting or 0)


# ---- what happens ------------------------------------------------------------------
class Registered(msgspec.Struct, frozen=True):
    """The ports are claimed and the worker is in the log."""


class ChildStarted(msgspec.Struct, frozen=True):
    """The child runs."""


class ChildNotStarted(msgspec.Struct, frozen=True):
    """There is nothing to run, or it may not be run."""

    reason: str


class ChildEnded(msgspec.Struct, frozen=True):
    """The child is over; a negative ``code`` is the signal that killed it."""

    code: int


class KinGone(msgspec.Struct, frozen=True):
    """Nothing that the child started runs any more."""


class Answered(msgspec.Struct, frozen=True):
    """A probe of the child's health came back."""

    healthy: bool
    said: str


class Loaded(msgspec.Struct, frozen=True):
    """The child told its load when it was asked ``asked_at`` that time."""

    load: Load
    asked_at: float


class Signalled(msgspec.Struct, frozen=True):
    """The sidecar got a signal."""

    number: int


class DrainAsked(msgspec.Struct, frozen=True):
    """An operator wants the worker drained."""

    reason: str


class DrainTakenBack(msgspec.Struct, frozen=True):
    """The operator's order to drain stands no more."""


class RoutersTold(msgspec.Struct, frozen=True):
    """Every live router knows of that draining, or was waited for long enough."""

    drain: int


class Lost(msgspec.Struct, frozen=True):
    """The worker's life is over for good, or could not begin."""

    error: ControlPlaneError


class TimePassed(msgspec.Struct, frozen=True):
    """It is the time that the core asked to be woken at."""


Input: TypeAlias = (
    Registered
    | ChildStarted
    | ChildNotStarted
    | ChildEnded
    | KinGone
    | Answered
    | Loaded
    | Signalled
    | DrainAsked
    | DrainTakenBack
    | RoutersTold
    | Lost
    | TimePassed
)


# ---- what to do --------------------------------------------------------------------
class StartChild(msgspec.Struct, frozen=True):
    """Start the child; answered by `ChildStarted` or `ChildNotStarted`."""


class SignalChild(msgspec.Struct, frozen=True):
    """Send the child a signal."""

    number: int


class KillKin(msgspec.Struct, frozen=True):
    """Kill the child and all that it started."""


class EndKin(msgspec.Struct, frozen=True):
    """End what the ended child left behind; answered by `KinGone`."""

    within_s: float


class SetStatus(msgspec.Struct, frozen=True):
    """Say another status of the worker."""

    status: Status
    reason: str = ""


class Drain(msgspec.Struct, frozen=True):
    """Say that the worker drains; answered by `RoutersTold`, ``within_s`` at most."""

    drain: int
    """How many of them there were: this one's name."""
    reason: str
    within_s: float


class ReportLoad(msgspec.Struct, frozen=True):
    """Tell the routers the load."""

    load: Load


class Leave(msgspec.Struct, frozen=True):
    """Deregister, release the ports, and end: with a code, or by an error."""

    code: int = 0
    error: ControlPlaneError | None = None


Effect: TypeAlias = (
    StartChild | SignalChild | KillKin | EndKin | SetStatus | Drain | ReportLoad | Leave
)
