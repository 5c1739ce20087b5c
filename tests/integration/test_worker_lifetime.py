"""Entering, speaking and leaving, against a real nats-server."""

import pytest

from events import WorkerDeregistered, WorkerRegistered
from tests.support.workers import worker_cell


@pytest.fixture
async def cell(broker_factory):
    async with worker_cell(await broker_factory()) as made:
        yield made


async def test_entering_registers_and_leaving_deregisters(cell):
    async with cell.worker(worker_id="w 1", labels={"zone": "a"}) as worker:
        record = await cell.last(worker)
        assert isinstance(record.event, WorkerRegistered)
        assert record.subject == "log.worker.prod.w%201"
        assert record.revision == worker.revision
        assert record.event.incarnation == worker.incarnation
        assert record.event.labels == {"zone": "a"}
        assert record.event.by == "test"
    record = await cell.last(worker)
    assert isinstance(record.event, WorkerDeregistered)
    assert record.event.incarnation == worker.incarnation
    assert await cell.kinds() == ["WorkerRegistered", "WorkerDeregistered"]
