"""Processes of the simulation: frozen, continued, killed, each of its version."""

import asyncio
import gc

import pytest

from tests.simulation.loop import (
    PROCESS,
    Process,
    State,
)


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
