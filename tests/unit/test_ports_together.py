"""Batches that go to the log together, and what becomes of each."""

from __future__ import annotations

import asyncio

import pytest

from controlplane.errors import AppendConflictError, LogUnavailableError
from controlplane.eventlog import Appended, Pending
from controlplane.ports.together import EVENTS_MAX, Together
from tests.support.fleet_builder import claimed, given


class Log:
    """Takes everything but what touches a taken port; a batch at a time."""

    def __init__(self, taken: int = 0) -> None:
        self.taken, self.revision = taken, 0
        self.batches: list[int] = []
        self.open = asyncio.Event()
        self.open.set()
        self.failure: Exception | None = None

    async def append(self, pending) -> Appended:
        self.batches.append(len(pending))
        await self.open.wait()
        if self.failure is not None:
            raise self.failure
        if any(one.event.port == self.taken for one in pending):
            raise AppendConflictError(subject="", expected=0, last=1, code=10071)
        self.revision += len(pending)
        return Appended(self.revision)


def batch(start: int, size: int = 4) -> list[Pending]:
    return [Pending(record.event) for record in given(claimed("w1", start, size))]


async def test_each_is_told_where_its_own_last_event_stands():
    log = Log()
    together = Together(log.append)
    answers = [together.append(batch(start)) for start in (100, 200, 300)]
    assert [(await answer).revision for answer in answers] == [4, 8, 12]
    assert log.batches == [12]


async def test_what_comes_while_one_is_under_way_waits_for_its_end():
    log = Log()
    log.open.clear()
    together = Together(log.append)
    first = together.append(batch(100))
    await asyncio.sleep(0)
    others = [together.append(batch(start)) for start in (200, 300)]
    await asyncio.sleep(0)
    assert log.batches == [4]
    log.open.set()
    assert [(await one).revision for one in (first, *others)] == [4, 8, 12]
    assert log.batches == [4, 8]


async def test_one_that_lost_a_race_does_not_take_the_others_with_it():
    log = Log(taken=201)
    together = Together(log.append)
    answers = [together.append(batch(start)) for start in (100, 200, 300)]
    assert (await answers[0]).revision == 4
    with pytest.raises(AppendConflictError):
        await answers[1]
    assert (await answers[2]).revision == 8
    assert log.batches == [12, 4, 4, 4]


async def test_what_keeps_all_from_the_log_is_told_to_each():
    log = Log()
    log.failure = LogUnavailableError(url="nats://", doing="appending")
    together = Together(log.append)
    answers = [together.append(batch(start)) for start in (100, 200)]
    for answer in answers:
        with pytest.raises(LogUnavailableError):
            await answer
    log.failure = None
    assert (await together.append(batch(300))).revision == 4


async def test_no_more_go_together_than_an_atomic_batch_may_hold():
    log = Log()
    together = Together(log.append)
    sizes = (EVENTS_MAX - 1, 2, EVENTS_MAX + 500, 2)
    await asyncio.gather(*(together.append(batch(1, size)) for size in sizes))
    assert log.batches == list(sizes)


async def test_a_lone_event_waits_for_nobody():
    log = Log()
    log.open.clear()
    together = Together(log.append)
    first = together.append(batch(100))
    await asyncio.sleep(0)
    lone = together.append(batch(200, 1))
    await asyncio.sleep(0)
    assert log.batches == [4, 1]
    log.open.set()
    await asyncio.gather(first, lone)
