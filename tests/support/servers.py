"""Real nats-servers for tests, and what tests do to them."""

import asyncio
import json
import os
import signal
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from itertools import count
from pathlib import Path

import nats

from controlplane.broker.jetstream import JetStreamBroker
from controlplane.server import EmbeddedServer

_names = count()
_STOP_S = 5.0


def unique(word: str) -> str:
    """Return a name that no other test of this process uses; usable in subjects."""
    return f"{word}-{os.getpid()}-{next(_names)}"


@contextmanager
def shared_server() -> Iterator[EmbeddedServer]:
    """Run one server for many tests, each with its own event loop."""
    server = EmbeddedServer()
    asyncio.run(server.start())
    try:
        yield server
    finally:
        asyncio.run(server.stop())


class Brokers:
    """Makes connected brokers and stops them all at the end."""

    def __init__(self, default_url: str) -> None:
        self._default_url = default_url
        self._made: list[JetStreamBroker] = []

    async def __call__(
        self,
        url: str | None = None,
        *,
        connect_timeout_s: float = 4.0,
        wait: bool = True,
    ) -> JetStreamBroker:
        """Return a started broker, connected unless ``wait`` is false."""
        broker = JetStreamBroker(
            url or self._default_url,
            name=unique("test"),
            connect_timeout_s=connect_timeout_s,
        )
        self._made.append(broker)
        await broker.start()
        if wait:
            await broker.wait_connected(10)
        return broker

    async def stop(self) -> None:
        """Stop every broker made."""
        for broker in self._made:
            await broker.stop()


@contextmanager
def frozen(server: EmbeddedServer) -> Iterator[None]:
    """Stop the server's process without ending it: its sockets stay open."""
    assert server.pid is not None
    os.kill(server.pid, signal.SIGSTOP)
    deadline = time.monotonic() + _STOP_S
    while not _stopped(server.pid):  # the signal reaches one thread after another
        assert time.monotonic() < deadline
        os.sched_yield()
    try:
        yield
    finally:
        with suppress(ProcessLookupError):
            os.kill(server.pid, signal.SIGCONT)


def _stopped(pid: int) -> bool:
    states = [
        task.read_text().rpartition(")")[2].split()[0]
        for task in Path(f"/proc/{pid}/task").glob("*/stat")
    ]
    return set(states) == {"T"}


@asynccontextmanager
async def raw_client(url: str) -> AsyncIterator[Callable]:
    """Yield a plain JetStream API call, for doing what a broker would not."""
    client = await nats.connect(url)

    async def call(verb: str, body: dict | None = None) -> dict:
        payload = json.dumps(body or {}).encode()
        answer = await client.request(f"$JS.API.{verb}", payload, timeout=5)
        return json.loads(answer.data)

    try:
        yield call
    finally:
        await client.close()


async def consumers_of(url: str, stream: str) -> list[str]:
    """Return the names of a stream's consumers."""
    async with raw_client(url) as call:
        return (await call(f"CONSUMER.NAMES.{stream}")).get("consumers") or []
