"""S36. A reader that is stuck, or fails, keeps nobody else waiting.

Three follow the same view. The handler of one never comes back, that of another raises;
the third is told of every change of every model as it happens, and picks go on. When
the stuck one goes on, it is told what it missed, once.
"""

import asyncio

import pytest

from controlplane.router.changes import ChangeReader
from projections import Fleet, FoldState, Wanted, candidates, step
from tests.support.fleet_builder import deregistered, given, registered

SOON_S = 1.0
STORY = given(
    registered("slow", model="heavy"),
    *(registered(f"w{n}", model=f"model-{n}") for n in range(5)),
    *(deregistered(f"w{n}") for n in range(2)),
)


class View:
    """A fleet that moves by records, and its readers."""

    def __init__(self):
        self.state = FoldState()
        self.readers = [ChangeReader(self.fleet, self.fleet) for _ in range(3)]

    @property
    def fleet(self):
        return Fleet(self.state.fleet_state, revision=self.state.revision)

    def fold(self, record):
        folded = step(self.state, record)
        self.state = folded.state
        for reader in self.readers:
            reader.moved(folded.changes, self.fleet)


async def test_a_stuck_handler_and_a_failing_one_delay_nobody():
    view, release, told = View(), asyncio.Event(), []
    stuck, failing, quick = view.readers

    async def handle_for_ever():
        async for change in stuck.read():
            told.append(change)
            await release.wait()
            if change.kind == "added" and change.worker.worker_id == "w4":
                return

    async def fail():
        async for _ in failing.read():
            raise RuntimeError

    async with asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(handle_for_ever())
        failed = asyncio.ensure_future(fail())
        others = quick.read()
        for record in STORY:
            view.fold(record)
            async with asyncio.timeout(SOON_S):
                change = await anext(others)
            who = change.worker or change.before
            assert who.worker_id == record.event.worker_id
            assert change.revision == record.revision
            await asyncio.sleep(0)
        await others.aclose()
        with pytest.raises(RuntimeError):
            await failed
        assert [change.worker.worker_id for change in told] == ["slow"]
        assert candidates(view.fleet, Wanted(model="model-3")).workers(view.fleet)
        release.set()
        async with asyncio.timeout(SOON_S):
            await waiting
    missed = [change.worker.worker_id for change in told[1:]]
    assert missed == ["w2", "w3", "w4"], "who came and went meanwhile is no news"
