"""A small network of the simulation alone: two servers, clients, nothing else.

For tests of the simulator itself.
"""

from __future__ import annotations

from random import Random

from controlplane.broker import Outgoing, StreamSpec
from events import ControlPlaneError
from tests.simulation.broker import SimBroker
from tests.simulation.loop import Process, SimLoop
from tests.simulation.server import NODES, SimServer

SPEC = StreamSpec(
    name="S", subjects=("s.>",), allow_atomic=True, republish=("s.>", "live.>")
)
GIVES_UP_S = (3.0, 4.0)
RECONNECTS_S = 0.45
"""The longest that a client takes to try again, and a way there."""


class Client:
    """A process with a connection, and what it did."""

    def __init__(self, net, name, seed, options):
        self.net = net
        self.process = Process(name, net.loop)
        self.broker = self.process.context.run(
            lambda: SimBroker(net.server, Random(f"{seed}/{name}"), **options)
        )
        self.heard, self.connections, self.subscription = [], [], None
        self.broker.on_connection(
            lambda up: self.connections.append((round(net.loop.time(), 3), up))
        )
        self.spawn(self.broker.start())

    def spawn(self, work):
        return self.process.spawn(work)

    def begin(self, work):
        """Do it meanwhile; the result is (value or error, when)."""

        async def timed():
            try:
                value = await work
            except ControlPlaneError as error:
                value = error
            return value, self.net.loop.time()

        return self.spawn(timed())

    def ask(self, work, within_s=30.0):
        """Do it now; return (value or error, seconds that it took)."""
        began = self.net.loop.time()
        task = self.begin(work)
        while not task.done():
            assert self.net.loop.time() < began + within_s, "no answer at all"
            self.net.run(0.001)
        value, at_s = task.result()
        return value, at_s - began

    def store(self, rest="a", payload=b"", **fields):
        message = Outgoing(subject=f"s.{rest}", payload=payload, **fields)
        return self.broker.store("S", message)

    def follow(self, after=0):
        """Every batch that comes, with its time; an error ends the list."""

        async def follow():
            try:
                async for batch in self.broker.follow("S", after=after):
                    at_s = round(self.net.loop.time(), 4)
                    self.heard.append((at_s, [m.sequence for m in batch]))
            except ControlPlaneError as error:
                self.heard.append((round(self.net.loop.time(), 4), error))

        self.spawn(follow())

    def listen(self, subject="s.>", *, read=True):
        """Every core message that comes, by its payload."""

        async def listen():
            self.subscription = await self.broker.subscribe(subject)
            if read:
                await self.read()

        self.spawn(listen())

    async def read(self):
        async for message in self.subscription:
            self.heard.append(message.payload)

    @property
    def batches(self):
        return [batch for _, batch in self.heard]


class Net:
    """Two servers with a stream, and clients."""

    def __init__(self, seed=1):
        self.loop = SimLoop()
        self.seed = seed
        self.server = SimServer(self.loop, context=Process("broker", self.loop).context)
        self.server.create(SPEC)

    def client(self, name="c1", *, node=None, **options):
        """A client, connected, to ``node`` if that matters."""
        others = [each for each in NODES if node not in (None, each)]
        self.server.stall(others)
        client = Client(self, name, self.seed, options)
        self.run(0.5)
        self.server.resume(others)
        assert client.broker.connected
        return client

    def run(self, for_s):
        self.loop.run_to(self.loop.time() + for_s)

    @property
    def payloads(self):
        """What the stream holds."""
        stream = self.server.held("S")
        return [m.payload for m in stream.between(0, stream.last_sequence, None)]


def black(client, *, on):
    client.broker.black = on
    if on:
        client.broker.silent()
    else:
        client.broker.flush()
        client.broker.may_connect()
