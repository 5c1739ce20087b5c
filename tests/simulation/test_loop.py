"""What the loop in virtual time promises: order, processes with a fate, no luck."""

import asyncio
import gc
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.simulation import loop as loop_module
from tests.simulation.loop import (
    BUSY_MAX,
    PROCESS,
    LivelockError,
    Process,
    SimLoop,
    State,
)

ROOT = Path(__file__).parents[2]


@pytest.fixture
def loop():
    return SimLoop()


@pytest.fixture
def process(loop):
    return Process("p1", loop)


@pytest.fixture
def lines():
    """What happened, in order."""
    return []


def at(process, when_s, do, *args):
    """A timer of the process."""
    process._loop.call_at(when_s, do, *args, context=process.context)


async def sleeping(lines, *lengths_s):
    """Notes the time after each sleep, and its end, however that comes."""
    try:
        for length_s in lengths_s:
            await asyncio.sleep(length_s)
            lines.append(asyncio.get_running_loop().time())
    finally:
        lines.append("finally")


# ---- time ----------------------------------------------------------------------
def test_time_jumps_to_the_next_timer_and_stands_still_meanwhile(loop, lines):
    for when_s in (7200.0, 0.5, 3.25):
        loop.call_at(when_s, lambda: lines.append(loop.time()))
    loop.run_to(10_000.0)
    assert lines == [0.5, 3.25, 7200.0]
    assert loop.time() == 10_000.0


def test_nothing_runs_that_is_due_later(loop, lines):
    loop.call_at(2.0, lines.append, "later")
    loop.run_to(1.5)
    assert (loop.time(), lines) == (1.5, [])
    loop.run_to(2.0)
    assert lines == ["later"]


def test_what_is_due_at_one_moment_runs_in_the_order_it_was_asked_for(loop, lines):
    for number in range(50):
        loop.call_at(1.0, lines.append, number)
    loop.run_to(1.0)
    assert lines == list(range(50))


def test_what_is_asked_for_meanwhile_comes_after_what_was_due_already(loop, lines):
    def first():
        loop.call_soon(lines.append, "soon")
        lines.append("first")

    loop.call_at(1.0, first)
    loop.call_at(1.0, lines.append, "second")
    loop.run_to(1.0)
    assert lines == ["first", "second", "soon"]


def test_a_timer_in_the_past_runs_now(loop, lines):
    loop.run_to(5.0)
    loop.call_at(1.0, lambda: lines.append(loop.time()))
    loop.run_to(5.0)
    assert lines == [5.0]


def test_sleeps_and_timeouts_last_as_long_as_they_say(loop, process, lines):
    async def work():
        await asyncio.sleep(30)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(12.5):
                await asyncio.Event().wait()
        lines.append(loop.time())

    process.spawn(work())
    loop.run_to(100)
    assert lines == [42.5]


def test_a_cancelled_handle_never_runs_and_counts_as_nothing(loop, process, lines):
    process.die_in = 2
    for number in range(4):
        handle = loop.call_at(1.0, lines.append, number, context=process.context)
        if number < 2:
            handle.cancel()
            assert handle.cancelled()
    loop.run_to(2.0)
    assert lines == [2, 3]
    assert process.state is State.DEAD


def test_an_executor_does_it_a_moment_later_and_passes_errors_on(loop, process, lines):
    async def work():
        future = loop.run_in_executor(None, lines.append, "done")
        lines.append("asked")
        await future
        with pytest.raises(ZeroDivisionError):
            await asyncio.to_thread(lambda: 1 // 0)
        lines.append(loop.time())

    process.spawn(work())
    loop.run_to(1)
    assert lines == ["asked", "done", 0.0]


def test_a_halted_loop_stops_where_it_is(loop, lines):
    loop.call_at(1.0, loop.halt)
    loop.call_at(1.0, lines.append, "after")
    loop.run_to(5.0)
    assert (loop.time(), lines) == (1.0, [])


# ---- livelock ------------------------------------------------------------------
def test_time_that_stands_still_for_ever_is_a_livelock(loop, process):
    async def spin():
        for _ in range(10**9):
            await asyncio.sleep(0)

    process.spawn(spin())
    with pytest.raises(LivelockError, match=rf"{BUSY_MAX} callbacks .* of p1: a task"):
        loop.run_to(1.0)


def test_time_that_creeps_is_a_livelock_too(loop, monkeypatch):
    monkeypatch.setattr(loop_module, "BUSY_MAX", 1000)

    def again():
        loop.call_later(1e-7, again)

    again()
    with pytest.raises(LivelockError, match=r"of nobody: .*again"):
        loop.run_to(1.0)


def test_many_callbacks_are_none_while_time_passes(loop, monkeypatch):
    monkeypatch.setattr(loop_module, "BUSY_MAX", 1000)

    def again():
        loop.call_later(0.001, again)

    again()
    loop.run_to(10.0)
    assert loop.time() == 10.0


# ---- freezing ------------------------------------------------------------------
def test_a_frozen_process_does_nothing_until_it_is_continued(loop, process, lines):
    process.spawn(sleeping(lines, 1, 1, 1))
    loop.call_at(1.5, process.freeze)
    loop.call_at(60.0, process.thaw)
    loop.run_to(59.0)
    assert lines == [1.0]
    loop.run_to(70.0)
    assert lines == [1.0, 60.0, 61.0, "finally"]


def test_what_waited_comes_in_its_order_and_before_all_that_came_later(
    loop, process, lines
):
    loop.call_at(5.0, process.thaw)
    for number, when_s in enumerate((5.0, 2.0, 3.0, 2.0)):
        at(process, when_s, lines.append, (when_s, number))
    at(process, 5.0, lines.append, "after")
    process.freeze()
    loop.run_to(10.0)
    assert lines == [(2.0, 1), (2.0, 3), (3.0, 2), (5.0, 0), "after"]


def test_what_is_cancelled_while_it_waits_does_not_come(loop, process, lines):
    handle = loop.call_at(1.0, lines.append, "no", context=process.context)
    at(process, 1.0, lines.append, "yes")
    process.freeze()
    loop.call_at(2.0, handle.cancel)
    loop.call_at(3.0, process.thaw)
    loop.run_to(4.0)
    assert lines == ["yes"]


def test_a_timeout_that_passed_while_frozen_strikes_afterwards(loop, process, lines):
    async def work():
        try:
            async with asyncio.timeout(1.0):
                await asyncio.Event().wait()
        except TimeoutError:
            lines.append(loop.time())

    process.spawn(work())
    loop.run_to(0.1)
    process.freeze()
    loop.call_at(50.0, process.thaw)
    loop.run_to(60.0)
    assert lines == [50.0]


def test_others_go_on_while_one_is_frozen(loop, process, lines):
    process.freeze()
    process.spawn(sleeping([], 1))
    Process("p2", loop).spawn(sleeping(lines, 1))
    loop.run_to(5.0)
    assert lines == [1.0, "finally"]


# ---- killing -------------------------------------------------------------------
def test_a_killed_process_runs_nothing_any_more_not_even_finally(loop, process, lines):
    process.at_death = lambda: lines.append("death")
    process.spawn(sleeping(lines, 1, 1))
    loop.call_at(1.5, process.kill)
    loop.call_at(3.0, process.thaw)
    loop.run_to(10.0)
    process.kill()
    assert lines == [1.0, "death"]


def test_a_task_that_only_a_timer_holds_is_not_closed_by_its_death(
    loop, process, lines
):
    async def children():
        loop.create_task(sleeping(lines, 2))
        await asyncio.sleep(0)

    process.spawn(children())
    loop.run_to(1.0)
    process.kill()
    loop.run_to(10.0)
    gc.collect()
    assert lines == []


def test_frozen_and_killed_means_killed(loop, process, lines):
    process.spawn(sleeping(lines, 1))
    loop.run_to(0.5)
    process.freeze()
    loop.run_to(2.0)
    process.kill()
    process.thaw()
    loop.run_to(5.0)
    assert lines == []


@pytest.mark.parametrize("callbacks", [1, 2, 7])
def test_a_process_dies_after_so_many_callbacks(loop, process, lines, callbacks):
    other = Process("p2", loop)
    for number in range(20):
        at(process, 1.0, lines.append, number)
        at(other, 1.0, lambda: None)
    process.die_in = callbacks
    loop.run_to(2.0)
    assert lines == list(range(callbacks))
    assert (process.state, other.state) == (State.DEAD, State.RUNNING)


# ---- whose callback it is ------------------------------------------------------
def test_what_follows_belongs_to_who_waits_not_to_who_wakes_it(loop, lines):
    waiter, waker = Process("waiter", loop), Process("waker", loop)
    news = asyncio.Event()

    async def wait():
        await news.wait()
        lines.append(PROCESS.get().name)

    async def wake():
        await asyncio.sleep(1)
        news.set()

    waiter.spawn(wait())
    waker.spawn(wake())
    loop.call_at(0.5, waiter.freeze)
    loop.call_at(2.0, waker.kill)
    loop.call_at(3.0, waiter.thaw)
    loop.run_to(2.5)
    assert lines == []
    loop.run_to(3.0)
    assert lines == ["waiter"]


def test_children_timers_and_threads_belong_to_the_process(loop, process, lines):
    def note(what):
        lines.append((what, PROCESS.get().name))

    async def child():
        note("child")

    async def work():
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(child())
        loop.call_later(1, note, "timer")
        await asyncio.to_thread(note, "thread")

    process.spawn(work())
    loop.run_to(2)
    assert lines == [("child", "p1"), ("thread", "p1"), ("timer", "p1")]


def test_who_looks_is_called_after_each_callback_of_the_process_alone(
    loop, process, lines
):
    process.look = lambda: lines.append("look")
    at(process, 1.0, lines.append, "mine")
    loop.call_at(1.0, lines.append, "nobody's")
    loop.run_to(2.0)
    assert lines == ["mine", "look", "nobody's"]


def test_an_error_that_ends_a_task_is_told(loop, process, lines):
    async def work():
        await asyncio.sleep(1)
        raise KeyError("odd")

    loop.at_failure = lambda who, error: lines.append((who.name, repr(error)))
    process.spawn(work())
    loop.run_to(2.0)
    assert lines == [("p1", "KeyError('odd')")]


# ---- versions ------------------------------------------------------------------
def test_each_process_runs_its_version_and_nobody_else_does(loop, lines):
    worn = ["none"]
    loop.switch = worn.append
    old, new = Process("old", loop), Process("new", loop)
    old.version = "old"
    for who in (old, new, old, None, old, old):
        context = None if who is None else who.context
        name = "world" if who is None else who.name
        loop.call_soon(lambda n=name: lines.append((n, worn[-1])), context=context)
    loop.run_to(1.0)
    assert lines == [
        ("old", "old"),
        ("new", None),
        ("old", "old"),
        ("world", None),
        ("old", "old"),
        ("old", "old"),
    ]
    assert worn[-1] is None, "who looks after the run looks with the product's eyes"


# ---- the same on every run -----------------------------------------------------
def cancellations():
    """The order in which a group's tasks are cancelled, and its errors."""
    loop, lines = SimLoop(), []
    process = Process("p1", loop)

    async def child(name):
        try:
            await asyncio.sleep(60)
        finally:
            lines.append(name)

    async def fail():
        await asyncio.sleep(1)
        raise ValueError

    async def parent():
        async with asyncio.TaskGroup() as tasks:
            for number in range(40):
                tasks.create_task(child(f"child {number}"))
            tasks.create_task(fail())

    process.spawn(parent())
    loop.run_to(5.0)
    return lines


def test_a_groups_tasks_are_cancelled_in_one_order_in_every_process():
    told = [
        subprocess.run(
            [sys.executable, "-c", f"from {__name__} import *; print(cancellations())"],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            check=True,
            capture_output=True,
            text=True,
            timeout=60,
        ).stdout.strip()
        for hash_seed in ("0", "1")
    ]
    assert told == [str(cancellations())] * 2
    assert len(cancellations()) == 40
