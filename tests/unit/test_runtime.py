"""What the starts and stops of one lifetime owe to each other, in whatever order."""

import asyncio

import pytest

from controlplane.runtime import Lifetime, StoppedError
from tests.support.waiting import eventually


class Room(Lifetime):
    """Opens when it is let, takes a while to close, and counts."""

    def __init__(self) -> None:
        super().__init__()
        self.may_open, self.may_close = asyncio.Event(), asyncio.Event()
        self.may_open.set()
        self.may_close.set()
        self.error: Exception | None = None
        self.runs = self.closes = self.open = 0

    async def _run(self, tasks):
        del tasks
        self.runs += 1
        await self.may_open.wait()
        if self.error is not None:
            raise self.error
        self.open += 1
        self._ready.set()
        await asyncio.Event().wait()

    async def _close(self):
        await self.may_close.wait()
        self.closes += 1
        self.open = 0


class Outer(Lifetime):
    """Enters by more than its own task, as a plane with a server in it."""

    def __init__(self, inner: Lifetime) -> None:
        super().__init__()
        self.inner = inner

    async def _enter(self):
        await super()._enter()
        await self.inner.start()

    async def _run(self, tasks):
        del tasks
        self._ready.set()
        await asyncio.Event().wait()

    async def _stop(self):
        await self.inner.stop()
        await super()._stop()


async def begun(work):
    """A task that has come as far as it can."""
    task = asyncio.ensure_future(work)
    for _ in range(10):
        await asyncio.sleep(0)
    return task


async def prompt(awaitable):
    """Its outcome, which must come without anybody's help."""
    async with asyncio.timeout(2):
        return await awaitable


async def test_a_second_start_returns_when_the_object_may_be_used():
    room = Room()
    room.may_open.clear()
    first, second = await begun(room.start()), await begun(room.start())
    assert not first.done()
    assert not second.done()
    room.may_open.set()
    assert await prompt(first) is room
    assert await prompt(second) is room
    assert await prompt(room.start()) is room
    assert (room.runs, room.open) == (1, 1)
    await room.stop()


async def test_starts_together_fail_together_and_the_next_begins_anew():
    room = Room()
    room.may_open.clear()
    room.error = ZeroDivisionError()
    starts = [await begun(room.start()) for _ in range(3)]
    room.may_open.set()
    for start in starts:
        with pytest.raises(ZeroDivisionError):
            await prompt(start)
    assert (room.runs, room.closes) == (1, 1)
    room.error = None
    async with room:
        assert (room.runs, room.open, room.failure) == (2, 1, None)


async def test_a_second_stop_returns_when_the_first_has_finished():
    room = await Room().start()
    room.may_close.clear()
    stops = [await begun(room.stop()) for _ in range(3)]
    assert not any(stop.done() for stop in stops)
    room.may_close.set()
    for stop in stops:
        await prompt(stop)
    assert (room.closes, room.open) == (1, 0)


async def test_a_start_during_a_stop_waits_for_it_and_begins_anew():
    room = await Room().start()
    room.may_close.clear()
    stop = await begun(room.stop())
    starts = [await begun(room.start()) for _ in range(2)]
    assert room.runs == 1
    assert not any(start.done() for start in starts)
    room.may_close.set()
    await prompt(stop)
    for start in starts:
        assert await prompt(start) is room
    assert (room.runs, room.closes, room.open) == (2, 1, 1)
    await room.stop()


async def test_a_stop_ends_a_start_that_hangs():
    room = Room()
    room.may_open.clear()
    starts = [await begun(room.start()) for _ in range(2)]
    await prompt(room.stop())
    for start in starts:
        with pytest.raises(StoppedError, match="Room does not run"):
            await prompt(start)
    assert (room.runs, room.closes, room.open) == (1, 1, 0)
    room.may_open.set()
    async with room:
        assert room.open == 1


async def test_a_stop_ends_what_hangs_within_a_start_wherever_it_is():
    outer = Outer(Room())
    outer.inner.may_open.clear()
    start = await begun(outer.start())
    await prompt(outer.stop())
    with pytest.raises(StoppedError, match="Outer"):
        await prompt(start)
    assert (outer.inner.runs, outer.inner.closes) == (1, 1)
    outer.inner.may_open.set()
    async with outer:
        assert outer.inner.open == 1
    assert outer.inner.open == 0


async def test_a_start_that_waits_for_a_stop_is_ended_by_a_later_one():
    room = await Room().start()
    room.may_close.clear()
    stop = await begun(room.stop())
    start = await begun(room.start())
    later = await begun(room.stop())
    with pytest.raises(StoppedError):
        await prompt(start)
    last = await begun(room.start())
    room.may_close.set()
    for task in (stop, later, last):
        await prompt(task)
    assert (room.runs, room.closes, room.open) == (2, 1, 1)
    await room.stop()


async def test_who_waits_for_a_start_may_go_and_the_last_takes_it_along():
    room = Room()
    room.may_open.clear()
    first, second = await begun(room.start()), await begun(room.start())
    first.cancel()
    await prompt(asyncio.wait({first}))
    assert not second.done()
    assert room.closes == 0
    second.cancel()
    await prompt(asyncio.wait({second}))
    assert first.cancelled()
    assert second.cancelled()
    assert (room.runs, room.closes) == (1, 1)
    room.may_open.set()
    async with room:
        assert room.open == 1


async def test_a_start_that_was_cancelled_returns_when_all_is_tidy():
    room = Room()
    room.may_open.clear()
    room.may_close.clear()
    start = await begun(room.start())
    for _ in range(3):
        start.cancel()
        await begun(asyncio.sleep(0))
    assert not start.done()
    joined = await begun(room.start())
    room.may_open.set()
    room.may_close.set()
    await prompt(asyncio.wait({start}))
    assert start.cancelled()
    assert await prompt(joined) is room
    assert (room.runs, room.closes, room.open) == (2, 1, 1)
    await room.stop()


async def test_a_stop_finishes_however_often_it_is_cancelled():
    room = await Room().start()
    room.may_close.clear()
    stop = await begun(room.stop())
    for _ in range(3):
        stop.cancel()
        await begun(asyncio.sleep(0))
    assert not stop.done()
    room.may_close.set()
    await prompt(asyncio.wait({stop}))
    assert stop.cancelled()
    assert room.closes == 1


async def test_what_ended_by_itself_says_why_until_it_was_stopped():
    room = await Room().start()
    room._runner.cancel()
    await eventually(room._runner.done)
    with pytest.raises(StoppedError, match="it has ended"):
        await prompt(room.start())
    await room.stop()
    async with room:
        assert room.open == 1


@pytest.mark.parametrize("turns", range(12))
async def test_no_order_of_calls_leaves_it_half_open(turns):
    room = Room()
    for start_first in (True, False):
        calls = (room.start, room.stop) if start_first else (room.stop, room.start)
        tasks = []
        for call in (*calls, *calls):
            tasks.append(asyncio.ensure_future(call()))
            for _ in range(turns):
                await asyncio.sleep(0)
        outcomes = await prompt(asyncio.gather(*tasks, return_exceptions=True))
        assert all(
            outcome in (None, room) or isinstance(outcome, StoppedError)
            for outcome in outcomes
        )
        assert room.open == (0 if start_first else 1)
        assert (room._runner is None) is start_first
    await room.stop()
