"""The sidecar's decisions, one input at a time, in a time of the test's own."""

import signal

import pytest

from controlplane.errors import LeaseLostError
from controlplane.sidecar import ChildNotHealthyError, ChildNotStartedError, Limits
from controlplane.sidecar.core import KIN_S, Phase, SidecarCore, describe_end
from controlplane.sidecar.steps import (
    Answered,
    ChildEnded,
    ChildNotStarted,
    ChildStarted,
    Drain,
    DrainAsked,
    DrainTakenBack,
    EndKin,
    KillKin,
    KinGone,
    Leave,
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
from events import Status

LIMITS = Limits(
    health_timeout_s=100.0,
    unhealthy_after=3,
    drain_timeout_s=20.0,
    drain_min_s=1.0,
    stop_timeout_s=8.0,
)
WELL, ILL = Answered(healthy=True, said="200"), Answered(healthy=False, said="503 no")
TERM, INT = Signalled(signal.SIGTERM), Signalled(signal.SIGINT)
LOST = LeaseLostError(namespace="ns", worker_id="w", reason="taken")
READY = SetStatus(Status.READY)
END_BY_TERM = (SignalChild(signal.SIGTERM),)


class Told:
    """A core and the time it was told last."""

    def __init__(self, limits: Limits = LIMITS) -> None:
        self.core, self.now = SidecarCore(limits, "vllm"), 0.0

    def __call__(self, given, at: float | None = None):
        """Feed one input ``at`` that time, else now."""
        self.now = self.now if at is None else at
        return self.core.step(given, self.now)

    def load(self, running: int, at: float):
        """The child answers at once that so much is in flight."""
        return self(Loaded(Load(running=running, waiting=0), at), at)


def starting() -> Told:
    told = Told()
    assert told(Registered()) == (StartChild(),)
    assert told(ChildStarted()) == ()
    return told


def serving() -> Told:
    told = starting()
    assert told(WELL) == (READY,)
    return told


def draining(first=TERM) -> Told:
    told = serving()
    (drain,) = told(first)
    assert isinstance(drain, Drain)
    return told


def stopping() -> Told:
    told = starting()
    assert told(TERM) == END_BY_TERM
    return told


# ---- health ------------------------------------------------------------------------
def test_one_good_answer_makes_it_ready_and_more_change_nothing():
    told = serving()
    assert told(WELL) == ()


def test_only_failures_in_a_row_make_it_starting_again():
    told = serving()
    for answer in (ILL, ILL, WELL, ILL, ILL):
        assert told(answer) == ()
    assert told(ILL) == (SetStatus(Status.STARTING, "unhealthy: 503 no"),)
    assert told(ILL) == ()
    assert told(WELL) == (READY,)


def test_what_an_engine_answers_is_said_in_one_line():
    told = serving()
    odd = Answered(healthy=False, said="503 no\x85way\x1b[31m")
    assert [told(odd) for _ in range(3)][2] == (
        SetStatus(Status.STARTING, "unhealthy: 503 no way [31m"),
    )


def test_an_ill_child_is_not_ended_if_it_was_healthy_once():
    told = serving()
    told(ILL, at=99.0)
    assert told.core.wake_at is None
    assert told(TimePassed(), at=10_000.0) == ()


def test_a_child_that_is_never_healthy_is_ended_and_the_last_answer_named():
    told = starting()
    told(ILL, at=50.0)
    assert told.core.wake_at == 100.0
    assert told(TimePassed(), at=99.9) == ()
    assert told(TimePassed(), at=100.0) == END_BY_TERM
    told(ChildEnded(-signal.SIGTERM))
    (leave,) = told(KinGone())
    assert isinstance(leave.error, ChildNotHealthyError)
    assert "within 100 s; the last answer was: 503 no" in str(leave.error)


def test_health_is_of_no_interest_once_the_end_has_begun():
    for told in (draining(), stopping()):
        assert told(WELL) == ()
        assert told(ILL) + told(ILL) + told(ILL) == ()


# ---- ends --------------------------------------------------------------------------
@pytest.mark.parametrize(("code", "exits"), [(0, 0), (3, 3), (-9, 137), (-64, 192)])
def test_it_exits_with_its_childs_code(code, exits):
    told = serving()
    drained = SetStatus(Status.DRAINED, describe_end(code))
    assert told(ChildEnded(code)) == (drained, EndKin(KIN_S))
    assert told(KinGone()) == (Leave(exits),)
    assert told.core.phase is Phase.OVER
    assert told(TERM) == ()


def test_nothing_leaves_before_what_the_child_started_has_ended():
    told = serving()
    told(ChildEnded(1))
    assert told(TERM) == (KillKin(),), "but it may be hastened"
    assert told(Lost(LOST)) == ()
    assert told(KinGone()) == (Leave(1),)


def test_a_child_that_cannot_start_is_an_error_with_the_reason():
    told = Told()
    told(Registered())
    (leave,) = told(ChildNotStarted("No such file"))
    assert isinstance(leave.error, ChildNotStartedError)
    assert "cannot start 'vllm': No such file" in str(leave.error)


def test_a_signal_before_there_is_a_child_is_the_end():
    assert Told()(INT) == (Leave(128 + signal.SIGINT),)


def test_a_registration_that_fails_is_the_end():
    assert Told()(Lost(LOST)) == (Leave(0, LOST),)


@pytest.mark.parametrize("begin", [starting, serving, draining])
def test_a_lost_life_ends_the_child_without_a_drain(begin):
    told = begin()
    assert told(Lost(LOST)) == END_BY_TERM
    told(ChildEnded(0))
    assert told(KinGone()) == (Leave(0, LOST),)


def test_a_life_lost_while_the_child_ends_changes_nothing():
    told = stopping()
    assert told(Lost(LOST)) == ()
    told(ChildEnded(4))
    assert told(KinGone()) == (Leave(4),)


# ---- signals -----------------------------------------------------------------------
@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGUSR1, signal.SIGQUIT])
def test_other_signals_are_passed_on_while_there_is_a_child(number):
    other, passed_on = Signalled(number), (SignalChild(number),)
    assert Told()(other) == ()
    for begin in (starting, serving, draining, stopping):
        told = begin()
        phase = told.core.phase
        assert told(other) == passed_on
        assert told.core.phase is phase
    ended = serving()
    ended(ChildEnded(0))
    assert ended(other) == ()


def test_who_never_served_need_not_drain():
    assert starting()(INT) == (SignalChild(signal.SIGINT),)


def test_a_deaf_child_is_killed_in_time():
    told = stopping()
    assert told.core.wake_at == 8.0
    assert told(TimePassed(), at=7.9) == ()
    assert told(TimePassed(), at=8.0) == (KillKin(),)
    assert told.core.wake_at is None, "once is enough"


def test_each_further_signal_skips_to_the_next_step():
    told = draining(INT)
    assert told(TERM) == END_BY_TERM, "as the newest says"
    assert told(INT) == (KillKin(),)


# ---- draining ----------------------------------------------------------------------
def test_routers_are_told_first_within_half_the_time():
    told = serving()
    assert told(TERM) == (Drain(1, "SIGTERM", 10.0),)
    assert told.core.wake_at == 20.0
    assert told.load(0, at=1.0) == (ReportLoad(Load(running=0, waiting=0)),)
    assert told.core.phase is Phase.DRAINING, "a router may not know yet"


def test_with_metrics_it_ends_when_a_later_page_shows_nothing_in_flight():
    told = draining()
    told.load(2, at=1.0)
    assert told(RoutersTold(1), at=2.0) == ()
    assert told.core.wake_at == 3.0
    early = Loaded(Load(running=0, waiting=0), asked_at=2.9)
    assert len(told(early, at=3.1)) == 1, "asked for too early: a report, no end"
    assert told.core.wake_at == 20.0, "no moment that has passed"
    assert len(told.load(1, at=4.0)) == 1
    _, drained, end = told.load(0, at=5.0)
    assert drained == SetStatus(Status.DRAINED, "nothing in flight")
    assert end == SignalChild(signal.SIGTERM)


def test_what_waits_in_the_engine_is_in_flight_too():
    told = draining()
    told(RoutersTold(1))
    waiting = Loaded(Load(running=0, waiting=1), asked_at=5.0)
    told(waiting, at=5.0)
    assert told.core.phase is Phase.DRAINING


def test_without_metrics_the_engine_finishes_by_itself():
    told = draining()
    told(RoutersTold(1), at=2.0)
    assert told(TimePassed(), at=2.9) == ()
    assert told(TimePassed(), at=3.0) == END_BY_TERM
    drained = SetStatus(Status.DRAINED, "the child ended with exit code 0")
    assert told(ChildEnded(0))[0] == drained


def test_metrics_that_fell_silent_are_none():
    told = draining()
    told.load(2, at=0.5)
    told(RoutersTold(1), at=1.0)
    assert told(TimePassed(), at=10.4) == ()
    assert told(TimePassed(), at=10.5) == END_BY_TERM


def test_a_deadline_ends_any_drain_and_says_what_was_left():
    told = draining()
    told.load(2, at=19.0)
    drained, _ = told(TimePassed(), at=20.0)
    assert drained == SetStatus(Status.DRAINED, "time was up, 2 in flight")


def test_a_drain_is_said_in_one_line_whatever_was_asked():
    assert serving()(DrainAsked("a\nb")) == (Drain(1, "a b", 10.0),)


def test_an_operators_drain_leaves_the_child_running():
    told = serving()
    assert told(DrainAsked("maintenance")) == (Drain(1, "maintenance", 10.0),)
    assert told(DrainAsked("again")) == ()
    told(RoutersTold(1), at=1.0)
    _, drained = told.load(0, at=2.0)
    assert drained == SetStatus(Status.DRAINED, "nothing in flight")
    assert told(WELL) == ()
    assert told(DrainAsked("again")) == ()
    assert told(TERM) == END_BY_TERM, "it has drained already"


def test_an_operators_drain_without_metrics_takes_its_whole_time():
    told = draining(DrainAsked(""))
    told(RoutersTold(1), at=1.0)
    assert told(TimePassed(), at=2.0) == ()
    assert told.core.wake_at == 20.0
    drained = SetStatus(Status.DRAINED, "time was up, unknown what is in flight")
    assert told(TimePassed(), at=20.0) == (drained,)


def test_an_operators_drain_of_who_never_served_is_over_at_once():
    told = starting()
    drained = SetStatus(Status.DRAINED, "it had not begun to serve")
    assert told(DrainAsked("")) == (drained,)
    assert told.core.wake_at is None
    assert told(WELL) == ()


AGAIN = SetStatus(Status.STARTING, "the order to drain was taken back")


@pytest.mark.parametrize("told_by", [1.0, None])
def test_an_order_that_is_taken_back_has_the_child_serve_again(told_by):
    told = draining(DrainAsked(""))
    if told_by is not None:
        told(RoutersTold(1), at=told_by)
        told.load(0, at=2.0)
        assert told.core.phase is Phase.DRAINED
    assert told.core.obeys_order
    assert told(DrainTakenBack()) == (AGAIN,)
    assert not told.core.obeys_order
    assert told(WELL) == (READY,)
    assert told(DrainAsked("once more")) == (Drain(2, "once more", 10.0),)
    assert told(RoutersTold(1), at=3.0) == (), "that was another drain"
    assert told.core.wake_at == told.core._drain_by


def test_who_was_drained_before_it_served_has_its_whole_time_again():
    told = starting()
    told(DrainAsked(""))
    assert told(DrainTakenBack(), at=500.0) == (AGAIN,)
    assert told.core.wake_at == 600.0


@pytest.mark.parametrize("begin", [starting, serving, stopping, draining])
def test_no_order_that_is_taken_back_stops_a_signal(begin):
    assert begin()(DrainTakenBack()) == ()


def test_a_signal_in_an_operators_drain_goes_on_with_it_and_then_ends_the_child():
    told = draining(DrainAsked("maintenance"))
    assert told(TERM) == ()
    told(RoutersTold(1), at=1.0)
    assert told(TimePassed(), at=2.0) == END_BY_TERM


def test_routers_that_know_of_no_drain_any_more_change_nothing():
    told = draining()
    told(INT)
    assert told(RoutersTold(1)) == ()


def test_a_load_is_reported_while_the_child_runs():
    load = Load(kv_usage=0.5, running=1)
    assert serving()(Loaded(load, 0.0)) == (ReportLoad(load),)
    assert stopping()(Loaded(load, 0.0)) == ()


def test_the_end_of_a_child_in_words():
    assert describe_end(-signal.SIGSEGV) == "the child was killed by SIGSEGV"
    assert describe_end(-99) == "the child was killed by signal 99"
