"""Real nats-servers for tests, and what tests do to them."""

import asyncio
import json
import os
import shutil
import signal
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Self

import nats

from controlplane.broker.jetstream import JetStreamBroker
from controlplane.server import EmbeddedServer
from tests.support.processes import stop_process

_names = count()


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
    pid = server.pid
    assert pid is not None
    stop_process(pid)
    try:
        yield
    finally:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


class StoreMark:
    """What a server's store holds at one moment, kept to be put back.

    What was acknowledged by then is in it: the server writes before it answers. What
    is under way is in it whole or not at all, as after a crash.
    """

    def __init__(self, server: EmbeddedServer) -> None:
        self._server = server
        self._copy = server.store_dir / "marks" / str(next(_names))

    @property
    def _store(self) -> Path:
        return self._server.store_dir / "jetstream"

    async def take(self) -> Self:
        """Copy the store; a server that runs is frozen meanwhile."""
        if self._server.pid is None:
            await asyncio.to_thread(shutil.copytree, self._store, self._copy)
        else:
            with frozen(self._server):
                await asyncio.to_thread(shutil.copytree, self._store, self._copy)
        return self

    async def roll_back(self, stream: str | None = None) -> None:
        """Kill the server; start it again, on its port, with what was copied.

        ``stream``: only that one goes back, all others stay as they are. If it was
        not there at that moment it is gone.
        """
        await self._server.kill()
        await asyncio.to_thread(self._put_back, stream)
        await self._server.start()

    def _put_back(self, stream: str | None) -> None:
        if stream is None:
            shutil.rmtree(self._store)
            shutil.copytree(self._copy, self._store)
            return
        pattern = f"*/streams/{stream}"
        for old in list(self._store.glob(pattern)):
            shutil.rmtree(old)
        for kept in self._copy.glob(pattern):
            shutil.copytree(kept, self._store / kept.relative_to(self._copy))


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
