"""Ports: how fast many claimants get them, beside the ways that promise less.

The sequential way, as others do it: read who holds what, choose, create one key a
port, and take them back when one of them is somebody's. It runs over the same broker.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from random import Random

import controlplane as cp
from controlplane.broker import Outgoing, StreamSpec
from controlplane.errors import AppendConflictError
from controlplane.identifiers import new_uuid7
from tests.bench.figures import Figure, percentile

CLAIMANTS = 50
SINGLES_EACH = 60
BLOCKS_EACH = 16
LONE = 100
SIZE = 8
WIDE = cp.PortRange(20000, 29999)
MS = 1000.0
FAR = {"bind_check": False}
"""A foreign host's: this machine's sockets are no part of the broker's figures."""
RAW = "RAW_PORTS"
MEMORY = Path("/dev/shm")  # noqa: S108 - a directory of its own is made there
HAS_MEMORY = MEMORY.is_dir()
SETTINGS = cp.Settings(port_cooldown_s=0)

Claim = Callable[[], Awaitable[object]]


async def run() -> list[Figure]:
    """All of it on one server, each figure on a host of its own."""
    async with (
        cp.EmbeddedServer() as server,
        cp.connect(server.url, settings=SETTINGS) as plane,
    ):
        await plane.init()
        await create_raw(plane)
        return [
            *await lone(plane),
            *await singles(plane),
            *await blocks(plane, server.url),
        ]


async def create_raw(plane: cp.Plane) -> None:
    """A stream for what is compared with."""
    spec = StreamSpec(name=RAW, subjects=("raw.>",), allow_atomic=True)
    await plane.broker.create_stream(spec)


# ---- one claimant ------------------------------------------------------------------
async def lone(plane: cp.Plane) -> list[Figure]:
    """One after another, with sockets held, beside a bare batch of the broker's."""
    await plane.ports.claim(SIZE, WIDE)
    ours = await timed(LONE, lambda: plane.ports.claim(SIZE, WIDE))
    raw = await timed(LONE, lambda: bare_batch(plane))
    keys = Keys(plane, "lone")
    others = await timed(LONE, lambda: keys.claim(SIZE))
    return [
        Figure(
            name="a lone claim of 8 ports, p50",
            value=percentile(ours, 0.5) * MS,
            unit="ms",
            bound=3.0,
            ceiling=percentile(raw, 0.5) * MS,
            ceiling_is="an atomic batch of the same size",
        ),
        Figure(
            name="the sequential way, a lone claim of 8, p50",
            value=percentile(others, 0.5) * MS,
            unit="ms",
        ),
    ]


async def bare_batch(plane: cp.Plane) -> None:
    """Store as many messages of that size, each new on its subject, with an id."""
    batch = new_uuid7()
    messages = [
        Outgoing(
            subject=f"raw.batch.{batch}.{place}",
            payload=b"x" * 450,
            message_id=f"{batch}.{place}",
            expect_subject_sequence=0,
        )
        for place in range(SIZE)
    ]
    await plane.broker.store_batch(RAW, messages)


async def timed(count: int, claim: Claim) -> list[float]:
    """How long each of so many took."""
    samples = []
    for _ in range(count):
        began = time.perf_counter()
        await claim()
        samples.append(time.perf_counter() - began)
    return samples


# ---- many at once ------------------------------------------------------------------
async def crowd(each: int, claims: list[Claim]) -> tuple[float, list[float]]:
    """All at once, each so often; grants per second, and how long each took."""
    began = time.perf_counter()
    samples = await asyncio.gather(*(timed(each, claim) for claim in claims))
    seconds = time.perf_counter() - began
    return each * len(claims) / seconds, [one for some in samples for one in some]


async def singles(plane: cp.Plane) -> list[Figure]:
    """Single ports."""
    claim = claiming(plane, 1, "singles")
    await claim()
    per_s, _ = await crowd(SINGLES_EACH, [claim] * CLAIMANTS)
    keys = [Keys(plane, "singles") for _ in range(CLAIMANTS)]
    other_per_s, _ = await crowd(SINGLES_EACH, [one(k, 1) for k in keys])
    return rate("single ports", per_s, 3000.0, other_per_s)


async def blocks(plane: cp.Plane, url: str) -> list[Figure]:
    """Blocks of 8, over one connection and over fifty."""
    claim = claiming(plane, SIZE, "blocks")
    await claim()
    per_s, samples = await crowd(BLOCKS_EACH, [claim] * CLAIMANTS)
    keys = [Keys(plane, "blocks") for _ in range(CLAIMANTS)]
    other_per_s, _ = await crowd(BLOCKS_EACH, [one(k, SIZE) for k in keys])
    return [
        *rate("blocks of 8", per_s, 400.0, other_per_s),
        Figure(
            name="blocks of 8, 50 claimants, p99",
            value=percentile(samples, 0.99) * MS,
            unit="ms",
            bound=150.0,
        ),
        *await apart("", plane, url),
        *await in_memory(),
        Figure(
            name="the sequential way, claims of 8 in a range of 400 that failed of 50",
            value=await failed_in_a_narrow_range(plane),
            unit="",
        ),
    ]


async def apart(where: str, plane: cp.Plane, url: str) -> list[Figure]:
    """Blocks of 8 by claimants that know nothing of each other, beside bare batches."""
    per_s, samples, lost = await apart_from_each_other(url)
    bare_per_s, bare = await crowd(BLOCKS_EACH, [lambda: bare_batch(plane)] * CLAIMANTS)
    return [
        Figure(
            name=f"blocks of 8, 50 connections{where}: a grant each ({per_s:,.0f}/s)",
            value=MS / per_s,
            unit="ms",
            ceiling=MS / bare_per_s,
            ceiling_is=f"bare batches of that size: {bare_per_s:,.0f}/s",
        ),
        Figure(
            name=f"blocks of 8, 50 connections{where}, p99",
            value=percentile(samples, 0.99) * MS,
            unit="ms",
            ceiling=percentile(bare, 0.99) * MS,
            ceiling_is="the same",
        ),
        Figure(
            name=f"blocks of 8, 50 connections{where}: races lost of "
            f"{CLAIMANTS * BLOCKS_EACH}",
            value=lost,
            unit="",
        ),
    ]


async def in_memory() -> list[Figure]:
    """The same, where no disk bounds the broker; nothing if the system has no such."""
    if not HAS_MEMORY:
        return []
    with tempfile.TemporaryDirectory(dir=MEMORY) as directory:
        async with (
            cp.EmbeddedServer(directory) as server,
            cp.connect(server.url, settings=SETTINGS) as plane,
        ):
            await plane.init()
            await create_raw(plane)
            return await apart(" and no disk", plane, server.url)


def claiming(plane: cp.Plane, size: int, host: str) -> Claim:
    """A claim by the plane; kept until it leaves."""
    return lambda: plane.ports.claim(size, WIDE, host=host, **FAR)


def one(keys: Keys, size: int) -> Claim:
    """A claim in the sequential way."""
    return lambda: keys.claim(size)


def rate(what: str, per_s: float, promised: float, other_per_s: float) -> list[Figure]:
    """Grants per second, as milliseconds a grant so that less is better."""
    return [
        Figure(
            name=f"{what}, 50 claimants: a grant each ({per_s:,.0f}/s)",
            value=MS / per_s,
            unit="ms",
            bound=MS / promised,
            ceiling=MS / other_per_s,
            ceiling_is=f"the sequential way over the same broker: {other_per_s:,.0f}/s",
        ),
        Figure(
            name=f"{what}: times the sequential way",
            value=per_s / other_per_s,
            unit="x",
        ),
    ]


async def apart_from_each_other(url: str) -> tuple[float, list[float], float]:
    """The same claims, each claimant with a connection and a table of his own.

    And how many races were lost.
    """
    planes = [cp.connect(url, settings=SETTINGS) for _ in range(CLAIMANTS)]
    try:
        await asyncio.gather(*(plane.start() for plane in planes))
        claims = [claiming(plane, SIZE, "apart") for plane in planes]
        await asyncio.gather(*(claim() for claim in claims))
        before = races_lost(planes)
        per_s, samples = await crowd(BLOCKS_EACH, claims)
        return per_s, samples, races_lost(planes) - before
    finally:
        await asyncio.gather(*(plane.stop() for plane in planes))


def races_lost(planes: list[cp.Plane]) -> float:
    """So many since they started, by their metrics."""
    name = "controlplane_ports_races_lost_total"
    return sum(plane.registry.get_sample_value(name) or 0.0 for plane in planes)


# ---- the sequential way --------------------------------------------------------------
class Keys:
    """A claimant that creates one key a port, and rolls back when one is taken.

    It is told at no cost what it knows of others: what it met on its way.
    """

    def __init__(self, plane: cp.Plane, host: str, ports: int = len(WIDE)) -> None:
        self._broker, self._host, self._ports = plane.broker, host, ports
        self._taken: set[int] = set()
        self._chance = Random()

    async def claim(self, size: int, tries: int = 1000) -> bool:
        """Whether a block was got."""
        for _ in range(tries):
            start = self._chance.randrange(self._ports - size + 1)
            block = range(start, start + size)
            if self._taken.isdisjoint(block) and await self._create(block):
                return True
        return False

    async def _create(self, block: range) -> bool:
        made: list[tuple[int, int]] = []
        for port in block:
            try:
                stored = await self._store(port, 0)
            except AppendConflictError:
                self._taken.add(port)
                for old, sequence in made:
                    await self._store(old, sequence, b"")
                return False
            made.append((port, stored))
            self._taken.add(port)
        return True

    async def _store(
        self, port: int, expected: int, payload: bytes = b"x" * 450
    ) -> int:
        message = Outgoing(
            subject=f"raw.{self._host}.{port}",
            payload=payload,
            expect_subject_sequence=expected,
        )
        return (await self._broker.store(RAW, message)).sequence


async def failed_in_a_narrow_range(plane: cp.Plane) -> float:
    """How many of fifty that claim at once in a range that they would just fill."""
    keys = [Keys(plane, "narrow", ports=400) for _ in range(CLAIMANTS)]
    got = await asyncio.gather(*(one.claim(SIZE, tries=100) for one in keys))
    return float(len(got) - sum(got))
