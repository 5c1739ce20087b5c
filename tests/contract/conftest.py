"""The three brokers that the contract suite holds to the same behaviour."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from random import Random

import pytest

from controlplane.broker import Broker, StreamSpec
from controlplane.broker.jetstream import JetStreamBroker
from controlplane.broker.memory import MemoryBroker, MemoryServer
from controlplane.server import EmbeddedServer, ServerOptions
from tests.simulation.broker import SimBroker, Weather
from tests.simulation.server import EPOCH, SimServer
from tests.support.servers import consumers_of, raw_client, unique
from tests.support.waiting import eventually


class Bench:
    """A broker's maker, and the means to cut its connection and to mend it."""

    def __init__(self, stack: AsyncExitStack) -> None:
        self.stack = stack

    async def broker(self, *, connect_timeout_s: float = 4.0) -> Broker:
        """Return one more client, connected."""
        broker = self.make(connect_timeout_s)
        self.stack.push_async_callback(broker.stop)
        await broker.start()
        await broker.wait_connected(10)
        return broker

    def make(self, connect_timeout_s: float) -> Broker:
        raise NotImplementedError

    async def cut(self, broker: Broker) -> None:
        raise NotImplementedError

    async def mend(self, broker: Broker) -> None:
        raise NotImplementedError

    async def restricted(self, *denied: str) -> Broker:
        raise NotImplementedError

    async def drop_consumers(self, stream: str) -> None:
        """Delete, behind everybody's back, what the server keeps of its followers."""
        raise NotImplementedError


class MemoryBench(Bench):
    def __init__(self, stack: AsyncExitStack) -> None:
        super().__init__(stack)
        self.server = MemoryServer()

    def make(self, connect_timeout_s: float) -> Broker:
        return MemoryBroker(self.server, connect_timeout_s=connect_timeout_s)

    async def cut(self, broker: Broker) -> None:
        self.server.disconnect(broker)

    async def mend(self, broker: Broker) -> None:
        self.server.reconnect(broker)

    async def restricted(self, *denied: str) -> Broker:
        broker = MemoryBroker(self.server, denied=denied)
        await broker.start()
        return broker

    async def drop_consumers(self, stream: str) -> None:
        del stream  # it keeps nothing


class SimulatedBench(Bench):
    """The broker of the simulation, in good weather and real time."""

    def __init__(self, stack: AsyncExitStack) -> None:
        super().__init__(stack)
        loop = asyncio.get_running_loop()
        self.server = SimServer(loop)
        since = datetime.now(UTC) - EPOCH
        self.server.offset_s = since.total_seconds() - loop.time()

    def make(self, connect_timeout_s: float, *denied: str) -> SimBroker:
        return SimBroker(
            self.server,
            Random(1),
            weather=Weather(least_s=0.0, more_s=0.0005),
            connect_timeout_s=connect_timeout_s,
            denied=denied,
        )

    async def cut(self, broker: Broker) -> None:
        broker.cut = True
        broker.broken(landing=0.0)
        await eventually(lambda: not broker.connected)

    async def mend(self, broker: Broker) -> None:
        broker.cut = False
        broker.may_connect()

    async def restricted(self, *denied: str) -> Broker:
        broker = self.make(4.0, *denied)
        self.stack.push_async_callback(broker.stop)
        await broker.start()
        await broker.wait_connected(10)
        return broker

    async def drop_consumers(self, stream: str) -> None:
        self.server.drop_consumers(stream)


class NatsBench(Bench):
    """On the shared server, unless the test asks to break something."""

    def __init__(self, stack: AsyncExitStack, server: EmbeddedServer) -> None:
        super().__init__(stack)
        self.server = server

    def make(self, connect_timeout_s: float) -> Broker:
        return JetStreamBroker(
            self.server.url, name="contract", connect_timeout_s=connect_timeout_s
        )

    async def cut(self, broker: Broker) -> None:
        del broker  # the whole server goes
        await self.server.kill()

    async def mend(self, broker: Broker) -> None:
        del broker
        await self.server.start()

    async def restricted(self, *denied: str) -> Broker:
        rules = ", ".join(f'"{pattern}"' for pattern in denied)
        server = EmbeddedServer(
            options=ServerOptions(
                extra_config=f"""
                authorization {{
                  users: [{{user: u, password: p, permissions: {{
                    publish: {{deny: [{rules}]}}, subscribe: {{deny: [{rules}]}}
                  }}}}]
                }}"""
            )
        )
        await self.stack.enter_async_context(server)
        url = server.url.replace("nats://", "nats://u:p@")
        broker = JetStreamBroker(url, name="restricted")
        self.stack.push_async_callback(broker.stop)
        await broker.start()
        await broker.wait_connected(10)
        return broker

    async def drop_consumers(self, stream: str) -> None:
        async with raw_client(self.server.url) as call:
            for name in await consumers_of(self.server.url, stream):
                await call(f"CONSUMER.DELETE.{stream}.{name}")


@pytest.fixture(params=["memory", "simulated", "nats"])
async def bench(request, shared_nats_server) -> AsyncIterator[Bench]:
    """A server that the test may not break."""
    async with AsyncExitStack() as stack:
        if request.param == "memory":
            yield MemoryBench(stack)
        elif request.param == "simulated":
            yield SimulatedBench(stack)
        else:
            yield NatsBench(stack, shared_nats_server)


@pytest.fixture(params=["memory", "simulated", "nats"])
async def fragile(request) -> AsyncIterator[Bench]:
    """A server of the test's own, whose connection it may cut and mend."""
    async with AsyncExitStack() as stack:
        if request.param == "memory":
            yield MemoryBench(stack)
        elif request.param == "simulated":
            yield SimulatedBench(stack)
        else:
            server = await stack.enter_async_context(EmbeddedServer())
            yield NatsBench(stack, server)


@pytest.fixture
async def broker(bench: Bench) -> Broker:
    """A connected broker on a server that the test may not break."""
    return await bench.broker()


@pytest.fixture
async def stream(broker: Broker) -> StreamSpec:
    """A stream with atomic batches, on subjects ``{name}.>``."""
    spec = spec_of()
    await broker.create_stream(spec)
    return spec


def spec_of(**fields: object) -> StreamSpec:
    """Return the spec of a stream of this test's own."""
    name = unique("STREAM")
    return StreamSpec(
        **{"name": name, "subjects": (f"{name}.>",), "allow_atomic": True, **fields}
    )
