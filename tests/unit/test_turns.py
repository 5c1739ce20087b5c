"""Who waits together is told in the order of asking: a run can be repeated exactly."""

import asyncio

from controlplane.broker.memory import MemoryBroker, MemoryServer
from controlplane.clock import SystemClock
from controlplane.eventlog import EventLog
from controlplane.router.client import RouterView
from controlplane.settings import Settings
from controlplane.viewfeed import ViewFeed
from controlplane.worker.inbox import Answers
from controlplane.worker.patience import Patience

MANY = 50


async def test_commands_of_a_worker_are_answered_in_the_order_of_asking():
    answers, told = Answers(), []
    patience = Patience(MemoryBroker(MemoryServer()), Settings(), lambda: True)

    async def ask(number):
        await answers.ask(lambda: None, patience)
        told.append(number)

    async with asyncio.TaskGroup() as tasks:
        for number in range(MANY):
            tasks.create_task(ask(number))
        await asyncio.sleep(0)
        answers.give(1)
    assert told == list(range(MANY))


async def test_readers_of_changes_are_told_in_the_order_of_their_beginning():
    settings, broker = Settings(), MemoryBroker(MemoryServer())
    view = RouterView(
        broker=broker,
        log=EventLog(broker, "c", settings),
        feed=ViewFeed(broker, "c"),
        settings=settings,
        clock=SystemClock(),
        name="r",
    )
    read = [view.changes() for _ in range(MANY)]
    told = list(view._readers)
    assert [each.ag_frame.f_locals["self"] for each in read] == told
