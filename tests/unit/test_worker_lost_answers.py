"""Appends that are stored while their answers get lost."""

import asyncio

import pytest
from prometheus_client import CollectorRegistry

from controlplane.broker.memory import MemoryBroker, MemoryServer
from controlplane.errors import AppendOutcomeUnknownError, LogUnavailableError
from controlplane.telemetry import WorkerMetrics
from tests.support.waiting import eventually
from tests.support.workers import worker_cell


@pytest.fixture
async def broker():
    made = MemoryBroker(MemoryServer(), connect_timeout_s=0.05)
    await made.start()
    yield made
    await made.stop()


@pytest.mark.parametrize("lost", [1, 3])
async def test_a_registration_whose_answer_is_lost_is_one_registration(broker, lost):
    async with worker_cell(broker) as cell:
        broker.answers_to_lose = lost
        async with cell.worker(worker_id="w1") as worker:
            assert worker.revision == 1
        assert await cell.kinds() == ["WorkerRegistered", "WorkerDeregistered"]


async def test_each_thing_said_is_said_once_however_many_answers_are_lost(broker):
    async with worker_cell(broker, append_timeout_s=0.05) as cell:
        async with cell.worker(worker_id="w1") as worker:
            broker.answers_to_lose = 1
            async with asyncio.timeout(10):
                try:
                    await worker.ready()
                except AppendOutcomeUnknownError:
                    await eventually(lambda: worker._core.settled)
            broker.answers_to_lose = 1
        assert await cell.kinds() == [
            "WorkerRegistered",
            "WorkerStatusChanged",
            "WorkerDeregistered",
        ]


async def test_a_command_says_that_its_outcome_is_unknown_and_the_worker_goes_on(
    broker,
):
    async with (
        worker_cell(broker, append_timeout_s=0.3) as cell,
        cell.worker(worker_id="w1") as worker,
    ):
        incarnation = worker.incarnation
        broker.answers_to_lose = 1
        wanted = asyncio.create_task(worker.ready())
        await eventually(lambda: not broker.answers_to_lose)
        broker._server.disconnect(broker)
        with pytest.raises(AppendOutcomeUnknownError):
            await wanted
        with pytest.raises((AppendOutcomeUnknownError, LogUnavailableError)):
            await worker.load_adapter("sql")
        broker._server.reconnect(broker)
        await eventually(lambda: worker._core.settled, within_s=10)
        assert worker.incarnation == incarnation
        assert await cell.kinds() == [
            "WorkerRegistered",
            "WorkerStatusChanged",
            "AdapterLoaded",
        ]


async def test_an_entrance_whose_outcome_stays_unknown_says_so(broker):
    async with worker_cell(broker, append_timeout_s=0.05) as cell:
        worker = cell.worker(worker_id="w1")
        broker.answers_to_lose = 1
        entering = asyncio.create_task(worker.start())
        await eventually(lambda: not broker.answers_to_lose)
        broker._server.disconnect(broker)
        with pytest.raises(AppendOutcomeUnknownError):
            await entering


async def test_what_a_worker_did_is_counted(broker):
    registry = CollectorRegistry()
    async with worker_cell(broker, append_timeout_s=0.05) as cell:
        cell.metrics = WorkerMetrics(registry)
        async with cell.worker(worker_id="w1") as worker:
            await cell.notify(worker, "expired", await cell.expire(worker))
            await eventually(lambda: worker.revision == 3)
            await cell.expire(worker)
            await worker.ready()

    def count(name: str, **labels: str) -> float | None:
        return registry.get_sample_value(f"controlplane_worker_{name}_total", labels)

    assert count("notices", kind="expired") == 1
    assert count("reregistrations", reason="expired") == 2
    assert count("append_retries") == 1
