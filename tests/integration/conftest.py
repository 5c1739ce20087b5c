"""What most tests with a real server ask for; a file may have its own instead."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from controlplane.broker.jetstream import JetStreamBroker
from tests.support.cells import ProjectedCell, projected_cell
from tests.support.processes import Processes
from tests.support.servers import Brokers


@pytest.fixture
def processes() -> Iterator[Processes]:
    """Processes of the product, which do not outlive the test."""
    started = Processes()
    yield started
    started.clean_up()


@pytest.fixture
async def broker(broker_factory: Brokers) -> JetStreamBroker:
    """A connection to the shared server."""
    return await broker_factory()


@pytest.fixture
async def cell(broker: JetStreamBroker) -> AsyncIterator[ProjectedCell]:
    """A cell there, for projectors."""
    async with projected_cell(broker) as made:
        yield made
