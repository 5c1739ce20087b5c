"""S47b. Holes in the log are legitimate: a filtered purge left them.

Whoever replays passes over them, whoever follows is neither stalled nor told of a loss.
(That no snapshot tells what was removed is in ``tests/unit/test_starting.py``.)
"""

from __future__ import annotations

import asyncio

import pytest

from controlplane import topology
from controlplane.eventlog import EventLog
from controlplane.playback import LogHistory, replay_log, state_at
from controlplane.settings import Settings
from projections import FoldState, fold_all
from tests.support.fleet_builder import draining, given, ready, registered
from tests.support.servers import unique
from tests.support.waiting import eventually

STORY = given(
    registered("w1"),
    registered("w2"),
    ready("w2"),
    registered("w3"),
    draining("w2"),
    draining("w1"),
    draining("w2"),
)


@pytest.fixture
async def log(broker):
    cell = unique("cell")
    await topology.init(broker, cell, Settings())
    made = EventLog(broker, cell, Settings())
    for record in STORY:
        await made.append(record.event)
    return made


async def test_a_replay_passes_and_followers_go_on(log, broker):
    followed: list[int] = []

    async def follow() -> None:
        async for records in log.follow_batches():
            followed.extend(record.revision for record in records)

    async with asyncio.TaskGroup() as tasks:
        following = tasks.create_task(follow())
        await eventually(lambda: followed == [1, 2, 3, 4, 5, 6, 7])
        subject = log.names.absolute("log.worker.prod.w2")
        await broker.purge_stream(log.names.log_stream, subject=subject)
        left = [record async for record in log.read()]
        assert [record.revision for record in left] == [1, 4, 6]
        whole = fold_all(FoldState(), left)
        for until, revision in ((None, 6), (7, 6), (5, 4), (3, 1)):
            state = await state_at(await LogHistory.of(log), until)
            assert state.revision == revision
        replayed = (await replay_log(log)).fold_state
        assert replayed.fleet_state.digest == whole.fleet_state.digest
        await log.append(STORY.then(registered("w9"))[-1].event)
        await eventually(lambda: followed[-1] == 8)
        assert log.resumptions == 0
        following.cancel()
