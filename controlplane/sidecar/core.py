"""One child process as a worker of the fleet: a state machine without IO.

**States.** *Registering*: there is no child yet, it cannot do without its ports.
*Starting*: the child runs and was not healthy once. *Serving*: it was; from now on its
health decides between `ready` and `starting`. *Draining*: no router should send it
anything; what it has, it finishes. *Drained*: an operator wanted that, and the child
runs on, until its end or until the order is taken back. *Stopping*: the child was asked
to end. *Sweeping*: it has ended, and what it started is being ended. *Over*: nothing
comes out any more.

**The ports are claimed as long as anybody may use them**: nothing leaves the fleet
before the child and all its kin have ended. That has no limit, for SIGKILL has none.

**Health.** One good answer makes the worker ready. Some failures in a row
(``unhealthy_after``) make it `starting` again. A child that was healthy once is not
ended for being ill; one that never was is ended in time.

**Draining.** The routers are told first. When they know, and a moment later (a request
may be on its way), the child's own metrics say when nothing is in flight any more; only
a page asked for after that moment counts. Without metrics a signal's draining ends
there, for the engine finishes by itself what it can; an operator's takes its whole
time, for `drained` means that it is safe to delete. A deadline ends either.

**Signals.** TERM and INT end the child: drain, then pass the signal on, then kill. Each
further one skips to the next step. A child that was never ready, or is drained, need
not drain. Other signals are passed on and mean nothing to us.

**Exit.** With the child's own code, 128 + N if signal N killed it; unless there is an
error to tell: it could not start, was never healthy, or the worker was lost for good.

**Time** is an argument, in seconds of some monotonic clock. `wake_at` is when to say
`TimePassed`, at the latest.

**Inputs and effects** are in `steps`.
"""

from __future__ import annotations

import enum
import signal
from typing import Final

from events import ControlPlaneError, Status, one_line

from .errors import ChildNotHealthyError, ChildNotStartedError
from .steps import (
    Answered,
    ChildEnded,
    ChildNotStarted,
    ChildStarted,
    Drain,
    DrainAsked,
    DrainTakenBack,
    Effect,
    EndKin,
    Input,
    KillKin,
    KinGone,
    Leave,
    Limits,
    Load,
    Loaded,
    Lost,
    Registered,
    ReportLoad,
    RoutersTold,
    SetStatus,
    SignalChild,
    Signalled,
    StartChild,
    TimePassed,
)

ENDING: Final = frozenset({signal.SIGTERM, signal.SIGINT})
SIGNALLED: Final = 128
KIN_S: Final = 5.0
"""What an ended child left behind has so long before it is killed."""
LOAD_FRESH_S: Final = 10.0
"""A child whose metrics did not answer for so long has none."""
NO_ANSWER: Final = "none yet"


class Phase(enum.Enum):
    """Where it stands; see above."""

    REGISTERING = "registering"
    STARTING = "starting"
    SERVING = "serving"
    DRAINING = "draining"
    DRAINED = "drained"
    STOPPING = "stopping"
    SWEEPING = "sweeping"
    OVER = "over"


RUNNING: Final = frozenset(
    {Phase.STARTING, Phase.SERVING, Phase.DRAINING, Phase.DRAINED}
)


class SidecarCore:
    """Decides what becomes of one child and of the worker that it is."""

    def __init__(self, limits: Limits, command: str) -> None:
        """Begin without a child; ``command`` is how an error calls it."""
        self.phase = Phase.REGISTERING
        self.status = Status.STARTING
        self.was_healthy = False
        self.last_answer = NO_ANSWER
        self._limits: Final = limits
        self._now = 0.0
        self._command: Final = command
        self._kill_at: float | None = None
        self._healthy_by: float | None = None
        self._failures = 0
        self._ending_by: int | None = None
        """The signal that the child is ended by; None: nobody wants that."""
        self._drains = 0
        self._drain_by = 0.0
        self._quiet_from: float | None = None
        """From then on nothing new reaches the child; None: not yet known."""
        self._last_load: Load | None = None
        self._loaded_at = 0.0
        """When it was asked for."""
        self._error: ControlPlaneError | None = None
        self._code = 0

    @property
    def wake_at(self) -> float | None:
        """When time alone changes something; None: never."""
        match self.phase:
            case Phase.STARTING:
                return self._healthy_by
            case Phase.DRAINING:
                if self._quiet_from is None or self._quiet_from <= self._now:
                    return self._drain_by
                return min(self._drain_by, self._quiet_from)
            case Phase.STOPPING:
                return self._kill_at
            case _:
                return None

    def step(self, given: Input, now: float) -> tuple[Effect, ...]:  # noqa: C901, PLR0911, PLR0912 - one line for each input
        """What follows from ``given``, which came ``now``."""
        self._now = now
        if self.phase is Phase.OVER:
            return ()
        match given:
            case Registered():
                return (StartChild(),)
            case ChildStarted():
                return self._started(now)
            case ChildNotStarted(reason=reason):
                error = ChildNotStartedError(command=self._command, reason=reason)
                return self._leave(error=error)
            case ChildEnded(code=code):
                return self._ended(code)
            case KinGone():
                return self._leave(self._code, self._error)
            case Answered():
                return self._answered(given)
            case Loaded():
                return (*self._load(given), *self._look(now))
            case Signalled(number=number) if number in ENDING:
                return self._end_by(number, now)
            case Signalled(number=number):
                alive = self.phase in RUNNING or self.phase is Phase.STOPPING
                return (SignalChild(number),) if alive else ()
            case DrainAsked(reason=reason):
                return self._drain_asked(reason, now)
            case DrainTakenBack():
                return self._serve_again(now)
            case RoutersTold(drain=drain):
                return self._told(drain, now)
            case Lost(error=error):
                return self._lost(error, now)
            case TimePassed():
                return self._look(now)

    # ---- the child -------------------------------------------------------------
    def _started(self, now: float) -> tuple[Effect, ...]:
        self.phase = Phase.STARTING
        self._healthy_by = now + self._limits.health_timeout_s
        return ()

    def _ended(self, code: int) -> tuple[Effect, ...]:
        """End what it left; until then nobody should be sent there."""
        self._code = code if code >= 0 else SIGNALLED - code
        self.phase = Phase.SWEEPING
        said = self._say(Status.DRAINED, describe_end(code))
        return (*said, EndKin(min(KIN_S, self._limits.stop_timeout_s)))

    def _answered(self, answer: Answered) -> tuple[Effect, ...]:
        self.last_answer = answer.said
        if self.phase not in (Phase.STARTING, Phase.SERVING):
            return ()
        if answer.healthy:
            self.phase, self.was_healthy, self._failures = Phase.SERVING, True, 0
            return self._say(Status.READY)
        self._failures += 1
        if (
            self.phase is Phase.STARTING
            or self._failures < self._limits.unhealthy_after
        ):
            return ()
        return self._say(Status.STARTING, f"unhealthy: {answer.said}")

    # ---- ending ----------------------------------------------------------------
    def _end_by(self, number: int, now: float) -> tuple[Effect, ...]:
        again, self._ending_by = self._ending_by is not None, number
        match self.phase:
            case Phase.REGISTERING:
                return self._leave(SIGNALLED + number)
            case Phase.SERVING:
                return self._drain(signal.Signals(number).name, now)
            case Phase.DRAINING if not again:  # for an operator, until now
                return self._look(now)
            case Phase.STARTING | Phase.DRAINING | Phase.DRAINED:
                return self._stop(now)
            case Phase.STOPPING:
                return self._kill()
            case _:
                return (KillKin(),)

    def _stop(self, now: float) -> tuple[Effect, ...]:
        """Ask the child to end."""
        self.phase = Phase.STOPPING
        self._kill_at = now + self._limits.stop_timeout_s
        return (SignalChild(self._ending_by or signal.SIGTERM),)

    def _kill(self) -> tuple[Effect, ...]:
        self._kill_at = None
        return (KillKin(),)

    def _lost(self, error: ControlPlaneError, now: float) -> tuple[Effect, ...]:
        """Nobody routes here any more, and the ports are another's before long."""
        if self.phase is Phase.REGISTERING:
            return self._leave(error=error)
        if self.phase not in RUNNING:
            return ()
        self._error = error
        return self._stop(now)

    def _leave(
        self, code: int = 0, error: ControlPlaneError | None = None
    ) -> tuple[Effect, ...]:
        self.phase = Phase.OVER
        return (Leave(code, error),)

    # ---- draining --------------------------------------------------------------
    def _drain_asked(self, reason: str, now: float) -> tuple[Effect, ...]:
        if self.phase is Phase.SERVING:
            return self._drain(reason or "an operator asked", now)
        if self.phase is not Phase.STARTING:
            return ()
        self.phase = Phase.DRAINED
        return self._say(Status.DRAINED, "it had not begun to serve")

    def _drain(self, reason: str, now: float) -> tuple[Effect, ...]:
        limits = self._limits
        self.phase, self.status = Phase.DRAINING, Status.DRAINING
        self._drain_by, self._quiet_from = now + limits.drain_timeout_s, None
        self._drains += 1
        return (Drain(self._drains, one_line(reason), limits.drain_timeout_s / 2),)

    @property
    def obeys_order(self) -> bool:
        """Whether it is out of service because an operator wants that."""
        orders = (Phase.DRAINING, Phase.DRAINED)
        return self.phase in orders and self._ending_by is None

    def _serve_again(self, now: float) -> tuple[Effect, ...]:
        """Begin as after a start; the next good answer makes it ready."""
        if not self.obeys_order:
            return ()
        self.phase, self._failures = Phase.SERVING, 0
        if not self.was_healthy:
            self.phase = Phase.STARTING
            self._healthy_by = now + self._limits.health_timeout_s
        return self._say(Status.STARTING, "the order to drain was taken back")

    def _told(self, drain: int, now: float) -> tuple[Effect, ...]:
        if self.phase is not Phase.DRAINING or drain != self._drains:
            return ()
        self._quiet_from = now + self._limits.drain_min_s
        return self._look(now)

    def _load(self, loaded: Loaded) -> tuple[Effect, ...]:
        self._last_load, self._loaded_at = loaded.load, loaded.asked_at
        return (ReportLoad(loaded.load),) if self.phase in RUNNING else ()

    # ---- time ------------------------------------------------------------------
    def _look(self, now: float) -> tuple[Effect, ...]:
        """What has become due by ``now``."""
        match self.phase:
            case Phase.STARTING if self._is_due(self._healthy_by, now):
                self._error = ChildNotHealthyError(
                    within_s=self._limits.health_timeout_s,
                    last_answer=self.last_answer,
                )
                return self._stop(now)
            case Phase.DRAINING:
                reason = self._drained_because(now)
                return () if reason is None else self._drained(reason, now)
            case Phase.STOPPING if self._is_due(self._kill_at, now):
                return self._kill()
            case _:
                return ()

    def _drained(self, reason: str, now: float) -> tuple[Effect, ...]:
        if self._ending_by is None:
            self.phase = Phase.DRAINED
            return self._say(Status.DRAINED, reason)
        # Without metrics it is drained only when the child has ended.
        said = self._say(Status.DRAINED, reason) if reason else ()
        return (*said, *self._stop(now))

    def _drained_because(self, now: float) -> str | None:
        """Why draining is over; empty: the rest is the engine's; None: it is not."""
        load = self._fresh_load(now)
        if now >= self._drain_by:
            left = "unknown what is" if load is None else f"{load.in_flight}"
            return f"time was up, {left} in flight"
        if self._quiet_from is None or now < self._quiet_from:
            return None
        if load is None:
            return None if self._ending_by is None else ""
        idle = load.in_flight == 0
        asked_later = self._loaded_at >= self._quiet_from
        return "nothing in flight" if idle and asked_later else None

    def _fresh_load(self, now: float) -> Load | None:
        """The last load, if it says what is in flight and is not old."""
        load = self._last_load
        if load is None or load.in_flight is None:
            return None
        return load if now - self._loaded_at < LOAD_FRESH_S else None

    # ---- small change ----------------------------------------------------------
    def _say(self, status: Status, reason: str = "") -> tuple[Effect, ...]:
        if self.status is status:
            return ()
        self.status = status
        return (SetStatus(status, one_line(reason)),)

    @staticmethod
    def _is_due(at: float | None, now: float) -> bool:
        return at is not None and now >= at


def describe_end(code: int) -> str:
    """How a child ended, in words; a negative ``code`` is a signal."""
    if code >= 0:
        return f"the child ended with exit code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    return f"the child was killed by {name}"
