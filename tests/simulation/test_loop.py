"""What the loop in virtual time promises: order, processes with a fate, no luck."""

import asyncio
from pathlib import Path

import pytest

from tests.simulation import loop as loop_module
from tests.simulation.loop import (
    BUSY_MAX,
    LivelockError,
    Process,
    SimLoop,
    State,
)
from tests.support.hash_seeds import printed_under

ROOT = Path(__file__).parents[2]


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
    program = f"from {__name__} import *; print(cancellations())"
    told = [printed_under(seed, "-c", program).strip() for seed in ("0", "1")]
    assert told == [str(cancellations())] * 2
    assert len(cancellations()) == 40
