"""Fixtures that every room of the tests may ask for."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack

import pytest

from controlplane.server import EmbeddedServer
from tests.support.servers import Brokers, shared_server

# Scenarios are no test modules; whoever imports them first, their asserts explain.
pytest.register_assert_rewrite("tests.worlds")


@pytest.fixture(scope="session")
def shared_nats_server() -> Iterator[EmbeddedServer]:
    """One server for all tests of this process. Do not break it: use unique names."""
    with shared_server() as server:
        yield server


@pytest.fixture
async def nats_server() -> AsyncIterator[Callable[..., Awaitable[EmbeddedServer]]]:
    """Start servers of one's own: ``server = await nats_server(port=0, …)``."""
    async with AsyncExitStack() as stack:

        async def start(*args: object, **options: object) -> EmbeddedServer:
            return await stack.enter_async_context(EmbeddedServer(*args, **options))

        yield start


@pytest.fixture
async def broker_factory(
    shared_nats_server: EmbeddedServer,
) -> AsyncIterator[Brokers]:
    """Connect to the shared server, or to a URL: ``await broker_factory(url)``."""
    brokers = Brokers(shared_nats_server.url)
    yield brokers
    await brokers.stop()
