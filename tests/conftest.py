"""Fixtures that every room of the tests may ask for."""

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack

import pytest

from controlplane.server import EmbeddedServer
from tests.support.servers import Brokers, shared_server

# Scenarios are no test modules; whoever imports them first, their asserts explain.
pytest.register_assert_rewrite("tests.worlds")


@pytest.fixture(autouse=True)
def _logging_as_it_was() -> Iterator[None]:
    """The command line configures logging, also where a test calls it in-process."""
    loggers = [logging.getLogger(name) for name in (None, "controlplane")]
    before = [(list(logger.handlers), logger.level) for logger in loggers]
    yield
    for logger, (handlers, level) in zip(loggers, before, strict=True):
        logger.handlers[:] = [
            *handlers,
            *(kept for kept in logger.handlers if _is_pytests(kept, handlers)),
        ]
        logger.setLevel(level)


def _is_pytests(handler: logging.Handler, others: list[logging.Handler]) -> bool:
    """Whether pytest put it on meanwhile, and takes it off by itself."""
    return type(handler).__module__.startswith("_pytest") and handler not in others


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
