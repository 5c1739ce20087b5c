"""A nap ends when its time comes, earlier if it is brought forward, and never twice."""

import asyncio
import math

from controlplane.clock import SystemClock
from controlplane.waking import Nap
from tests.support.waiting import eventually

CLOCK = SystemClock()
LONG_S = 3600.0


class Sleeper:
    """One who naps; ``woke`` says how often and when."""

    def __init__(self):
        self.nap, self.woke = Nap(CLOCK), []

    async def sleep(self, at):
        await self.nap.until(at)
        self.woke.append(CLOCK.monotonic())


async def asleep(sleeper, at):
    task = asyncio.ensure_future(sleeper.sleep(at))
    await asyncio.sleep(0)
    assert sleeper.woke == []
    return task


async def test_it_lasts_as_long_as_it_should():
    sleeper, began = Sleeper(), CLOCK.monotonic()
    await sleeper.sleep(began + 0.05)
    # A timer may fire a clock's tick too early.
    assert 0.045 <= sleeper.woke[0] - began < 2.0


async def test_one_into_the_past_takes_a_moment_all_the_same():
    sleeper = Sleeper()
    task = await asleep(sleeper, CLOCK.monotonic() - 1)
    await asyncio.wait_for(task, 2.0)


async def test_it_is_brought_forward_but_never_put_off():
    sleeper = Sleeper()
    began = CLOCK.monotonic()
    task = await asleep(sleeper, began + LONG_S)
    sleeper.nap.not_after(began + 2 * LONG_S)
    sleeper.nap.not_after(began + 0.05)
    sleeper.nap.not_after(began + LONG_S)
    await asyncio.wait_for(task, 2.0)
    assert sleeper.woke[0] - began >= 0.045


async def test_one_without_an_end_sleeps_until_it_is_given_one():
    sleeper = Sleeper()
    task = await asleep(sleeper, math.inf)
    assert sleeper.nap._timer is None
    sleeper.nap.not_after(math.inf)
    sleeper.nap.not_after(0.0)
    await asyncio.wait_for(task, 2.0)


async def test_what_nobody_sleeps_for_is_forgotten():
    sleeper = Sleeper()
    sleeper.nap.not_after(0.0)
    task = await asleep(sleeper, CLOCK.monotonic() + LONG_S)
    sleeper.nap.not_after(0.0)
    await eventually(lambda: sleeper.nap._sleeper is None)
    sleeper.nap.not_after(0.0)
    await task
    assert len(sleeper.woke) == 1


async def test_who_is_cancelled_leaves_no_timer_behind():
    sleeper = Sleeper()
    task = await asleep(sleeper, CLOCK.monotonic() + LONG_S)
    timer = sleeper.nap._timer
    task.cancel()
    await asyncio.wait({task})
    assert timer.cancelled()
    assert sleeper.nap._sleeper is None
