"""Failing plans get small, and fail as before."""

import msgspec
import pytest

from tests.simulation import toy_world
from tests.simulation.outcome import Broken, Outcome
from tests.simulation.plan import Crash, Enter, Freeze, Pace, Plan, Say, TrimView
from tests.simulation.running import attempt, subset
from tests.simulation.shrink import shrink

PREFIX_SEED = 14
PLAIN = Pace()


def plan_with(*steps, pace=PLAIN):
    return Plan(seed=1, steps=steps, faults_end_s=100.0, end_s=200.0, pace=pace)


def says(count):
    return [Say(at_s=float(i), process=f"w{i:02}", verb="ready") for i in range(count)]


def breaks_if(condition, invariant="prefix"):
    def run(plan, *, trace=False):
        held = None
        if condition(plan):
            held = Broken(invariant=invariant, what="so it is", at_s=plan.end_s)
        return Outcome(
            seed=plan.seed,
            broken=held,
            trace_digest="-",
            trace=(),
            callbacks=0,
            records=0,
            virtual_s=0.0,
        )

    return run


def shrunk(plan, run, *, limit_s=60.0, **options):
    return shrink(plan, run(plan).broken, run, limit_s=limit_s, **options)


def test_only_the_steps_that_matter_together_are_left():
    plan = toy_world.plan_of(PREFIX_SEED)
    small = shrunk(plan, toy_world.run)
    assert [type(step) for step in small.plan.steps] == [Crash, Freeze]
    assert [plan.steps[index].process for index in small.keep] == ["p1", "r1"]
    assert small.finished
    assert small.runs < 2 * len(plan.steps)


@pytest.mark.parametrize("wanted", [(0,), (29,), (3, 17), (0, 1, 2), tuple(range(30))])
def test_any_set_of_steps_is_found(wanted):
    plan = plan_with(*says(30))
    needed = [plan.steps[index] for index in wanted]
    run = breaks_if(lambda tried: all(step in tried.steps for step in needed))
    small = shrink(plan, run(plan).broken, run, limit_s=60.0)
    assert small.keep == wanted


def test_what_is_left_fails_with_the_same_invariant():
    plan = plan_with(*says(8))
    wanted = plan.steps[5]

    def run(tried, *, trace=False):
        name = "prefix" if wanted in tried.steps else "liveness"
        return breaks_if(lambda _: True, name)(tried)

    small = shrunk(plan, run)
    assert small.broken.invariant == "prefix"
    assert small.keep == (5,)


def test_the_steps_kept_fail_as_they_stand_in_the_seeds_plan():
    plan = toy_world.plan_of(PREFIX_SEED)
    small = shrunk(plan, toy_world.run)
    assert small.simplified
    assert toy_world.run(subset(plan, small.keep)).broken.invariant == "prefix"


def test_durations_get_shorter_while_it_keeps_failing():
    plan = plan_with(
        Crash(at_s=1.234, process="p1", callbacks=7, restart_s=9.0),
        Freeze(at_s=7.777, process="r1", for_s=57.3),
    )
    small = shrunk(plan, toy_world.run)
    assert small.plan.steps == (
        Crash(at_s=1.0, process="p1"),
        Freeze(at_s=8.0, process="r1", for_s=2.0),
    )


def test_optional_parts_become_plain_unless_they_matter():
    entering = Enter(
        at_s=3.0,
        process="w01",
        worker_id="w",
        namespace="n",
        model="m",
        needs=(("prefill",),),
        card=3,
        label_bytes=4000,
    )
    plan = plan_with(entering, pace=Pace(factor=2.0, snapshot_every=3))
    run = breaks_if(lambda tried: any(step.card > 1 for step in tried.steps))
    small = shrunk(plan, run)
    assert small.plan.steps == (
        msgspec.structs.replace(entering, needs=(), card=2, label_bytes=0),
    )
    assert small.plan.pace == Pace()


def test_rounder_times_keep_the_order_of_steps():
    first, second = says(2)
    first = msgspec.structs.replace(first, at_s=1.66)
    second = msgspec.structs.replace(second, at_s=1.72)
    plan = plan_with(first, second)
    run = breaks_if(lambda tried: len(tried.steps) == 2 and tried.steps[1].at_s < 1.75)
    times = [step.at_s for step in shrunk(plan, run).plan.steps]
    assert times == [1.7, 1.7]


def test_runs_are_cut_short_after_the_moment_that_broke():
    ends = []
    plan = plan_with(*says(8))

    def run(tried, *, trace=False):
        ends.append(tried.end_s)
        outcome = breaks_if(lambda it: plan.steps[3] in it.steps)(tried)
        if outcome.broken is None:
            return outcome
        broken = msgspec.structs.replace(outcome.broken, at_s=3.5)
        return msgspec.structs.replace(outcome, broken=broken)

    small = shrink(plan, run(plan).broken, run, limit_s=60.0)
    assert small.keep == (3,)
    assert small.plan.end_s == plan.end_s
    assert ends[0] == plan.end_s
    assert max(ends[1:]) < 40.0


def test_what_only_breaks_at_the_end_of_a_cut_run_is_not_alike():
    plan = plan_with(*says(4))

    def run(tried, *, trace=False):
        whole = tried.steps == plan.steps
        broken = Broken(invariant="prefix", what="", at_s=3.0 if whole else tried.end_s)
        held = breaks_if(lambda _: True)(tried)
        return msgspec.structs.replace(held, broken=broken)

    assert shrink(plan, run(plan).broken, run, limit_s=60.0).keep == (0, 1, 2, 3)


def test_the_time_limit_ends_it_with_what_it_has():
    clock = iter(range(1000))
    plan = plan_with(*says(64))
    run = breaks_if(lambda tried: plan.steps[0] in tried.steps)
    small = shrunk(plan, run, limit_s=4, now=lambda: next(clock))
    assert small.runs <= 4
    assert not small.finished
    assert plan.steps[0] in small.plan.steps
    assert len(small.plan.steps) < 64


def test_a_limit_of_nothing_gives_the_plan_back():
    plan = toy_world.plan_of(PREFIX_SEED)
    small = shrunk(plan, toy_world.run, limit_s=0)
    assert (small.plan, small.runs, small.finished) == (plan, 0, False)


def test_a_plan_that_fails_without_any_step_gets_empty():
    small = shrunk(plan_with(*says(9)), breaks_if(lambda _: True))
    assert small.plan.steps == ()
    assert small.keep == ()


def test_crashes_of_the_world_shrink_like_violations():
    def run(plan, *, trace=False):
        if any(isinstance(step, TrimView) for step in plan.steps):
            message = "out of the world"
            raise LookupError(message)
        return toy_world.run(plan, trace=trace)

    plan = plan_with(*says(9), TrimView(at_s=9.0, keep=9))
    small = shrink(plan, attempt(run, plan).broken, run, limit_s=60.0)
    assert small.broken.invariant == "crash:LookupError"
    assert small.keep == (9,)


def test_shrinking_gives_the_same_plan_each_time():
    plan = toy_world.plan_of(PREFIX_SEED)
    assert shrunk(plan, toy_world.run) == shrunk(plan, toy_world.run)
