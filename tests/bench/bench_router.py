"""A router's figures: cold start, picks, and how soon a registration is visible.

``python -m tests.bench.bench_router [-o json]`` prints them by themselves.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
import time
from random import Random

import msgspec
import uvloop

import controlplane as cp
from controlplane.broker import Outgoing, StreamSpec
from controlplane.eventlog import Pending
from projections import Fleet
from tests.bench.figures import Figure, percentile
from tests.bench.processes import running
from tests.support.fleet_builder import MODEL, draining, forked, given, registered

WORKERS = 10_000
SETS = 100
COLD_STARTS = 7
PICKS = 20_000
FIRST_PICKS = 50
EVENTS = 500
EVENTS_PER_S = 100
MS = 1000.0
PROJECTOR = ("controlplane.cli", "projector", "--http", "127.0.0.1:0")
PROBE = "tests.bench.router_probe"


async def run() -> list[Figure]:
    """All of it, on one server and one projector."""
    async with cp.EmbeddedServer() as server, cp.connect(server.url) as plane:
        await plane.init()
        hop_ms, store_ms = await raw_hop(plane), await raw_store(plane)
        await fill(plane)
        async with running(*PROJECTOR, url=server.url):
            await visible(plane, 120)
        # Its clean stop left a snapshot of all there is.
        async with running(*PROJECTOR, url=server.url):
            await visible(plane, 30)
            figures = await cold_starts(server.url)
            figures += await picks(plane)
            figures += await latency(plane, server.url, 2 * hop_ms + store_ms)
    ceilings = [
        Figure(name="raw: core NATS hop, p50", value=hop_ms, unit="ms"),
        Figure(name="raw: JetStream store, p50", value=store_ms, unit="ms"),
    ]
    return [*figures, *ceilings]


async def fill(plane: cp.Plane) -> None:
    """Append the arrivals of all workers, in 100 WorkerSets of one model."""
    steps = [
        registered(f"w{n}", namespace=f"ns-{n % SETS}", lease_ttl_s=3600.0)
        for n in range(WORKERS)
    ]
    story = [Pending(record.event) for record in given(*steps)]
    for start in range(0, len(story), 1000):
        await plane.log.append_all(story[start : start + 1000])


async def visible(plane: cp.Plane, within_s: float) -> None:
    """Wait until a router sees all that is in the log."""
    async with plane.view(announce=False) as view:
        await view.synced(within_s)


# ---- cold start --------------------------------------------------------------------
async def cold_starts(url: str) -> list[Figure]:
    """From connected to synced, each in a process of its own."""
    said = []
    for _ in range(COLD_STARTS):
        async with running(PROBE, "cold", url=url) as process:
            assert process.stdout is not None
            said.append(json.loads(await process.stdout.readline()))
    assert all(one.pop("workers") == WORKERS for one in said)
    middle = {name: statistics.median(one[name] for one in said) for name in said[0]}
    total_s = middle.pop("total")
    figures = [
        Figure(
            name="router cold start to synced, 10,000 workers, median",
            value=total_s * MS,
            unit="ms",
            bound=100.0,
            ceiling=middle["chunks and decoding"] * MS,
            ceiling_is="reading and decoding the snapshot, and nothing else",
        )
    ]
    return figures + [
        Figure(name=f"of a start, by itself and warm: {name}", value=s * MS, unit="ms")
        for name, s in middle.items()
    ]


# ---- picks -------------------------------------------------------------------------
async def picks(plane: cp.Plane) -> list[Figure]:
    """One pick while nothing changes, and the first one after a change."""
    async with plane.view(announce=False) as view:
        await view.synced(30)
        view.pick(MODEL)
        started = time.perf_counter()
        for _ in range(PICKS):
            view.pick(MODEL)
        steady_us = (time.perf_counter() - started) / PICKS * 1e6
        started = time.perf_counter()
        for _ in range(PICKS):
            view.pick(MODEL, policy="round_robin")
        in_turn_us = (time.perf_counter() - started) / PICKS * 1e6
        ceiling_us = bare_choice_us(view.fleet)
        view.eject(view.pick(MODEL), 3600)
        started = time.perf_counter()
        for _ in range(PICKS):
            view.pick(MODEL)
        ejected_us = (time.perf_counter() - started) / PICKS * 1e6
        first_us = await first_picks(plane, view)
    return [
        Figure(
            name="pick, 10,000 workers in 100 WorkerSets of one model",
            value=steady_us,
            unit="µs",
            bound=10.0,
            ceiling=ceiling_us,
            ceiling_is="random choice out of a list",
        ),
        Figure(name="pick in turn", value=in_turn_us, unit="µs"),
        Figure(name="pick while one is ejected", value=ejected_us, unit="µs"),
        Figure(name="first pick after a change, median", value=first_us, unit="µs"),
    ]


def bare_choice_us(fleet: Fleet) -> float:
    """A random worker's key out of a list of all."""
    keys, rng = list(fleet.state.workers), Random(1)
    started = time.perf_counter()
    for _ in range(PICKS):
        rng.choice(keys)
    return (time.perf_counter() - started) / PICKS * 1e6


async def first_picks(plane: cp.Plane, view: cp.RouterView) -> float:
    """Each after the status of one worker changed."""
    steps = [draining(f"w{n}", namespace=f"ns-{n}") for n in range(FIRST_PICKS)]
    samples = []
    for record in given(forked("first picks"), *steps):
        await view.wait_for((await plane.log.append(record.event)).revision)
        started = time.perf_counter()
        view.pick(MODEL)
        samples.append((time.perf_counter() - started) * 1e6)
    return statistics.median(samples)


# ---- latency -----------------------------------------------------------------------
async def latency(plane: cp.Plane, url: str, ceiling_ms: float) -> list[Figure]:
    """Acknowledged here, visible in another process."""
    steps = [registered(f"x{n}", lease_ttl_s=3600.0) for n in range(EVENTS)]
    events = [record.event for record in given(forked("latency"), *steps)]
    async with running(PROBE, "follow", url=url) as follower:
        assert follower.stdout is not None
        await follower.stdout.readline()
        acknowledged = {}
        due = time.perf_counter()
        for event in events:
            due += 1 / EVENTS_PER_S
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            appended = await plane.log.append(event)
            acknowledged[appended.revision] = time.monotonic_ns()
        samples, waiting = [], sorted(acknowledged)
        async with asyncio.timeout(10):
            while waiting:
                at, moment = map(int, (await follower.stdout.readline()).split())
                while waiting and waiting[0] <= at:
                    since_ns = moment - acknowledged[waiting.pop(0)]
                    samples.append(max(0.0, since_ns / 1e6))
    return [
        Figure(
            name=f"registration acknowledged to visible, 100/s, {word}",
            value=percentile(samples, share),
            unit="ms",
            bound=bound,
            ceiling=ceiling_ms,
            ceiling_is="two bare hops and a bare store, p50",
        )
        for word, share, bound in (("p50", 0.5, 1.5), ("p99", 0.99, 5.0))
    ]


async def raw_hop(plane: cp.Plane) -> float:
    """A core message from this process to another, p50 in ms."""
    async with running(PROBE, "hear", url=plane.url) as listener:
        assert listener.stdout is not None
        await listener.stdout.readline()
        samples = []
        for number in range(200):
            sent = time.monotonic_ns()
            await plane.broker.publish("hop", str(number).encode())
            _, moment = map(int, (await listener.stdout.readline()).split())
            samples.append((moment - sent) / 1e6)
            await asyncio.sleep(0.002)
    return percentile(samples, 0.5)


async def raw_store(plane: cp.Plane) -> float:
    """A stored and acknowledged message, p50 in ms."""
    await plane.broker.create_stream(StreamSpec(name="RAW", subjects=("raw",)))
    samples = []
    for _ in range(200):
        started = time.perf_counter()
        await plane.broker.store("RAW", Outgoing(subject="raw", payload=b"x" * 800))
        samples.append((time.perf_counter() - started) * MS)
        await asyncio.sleep(0.002)
    return percentile(samples, 0.5)


def main(words: list[str]) -> int:
    """Print the figures; 1 if a promise is not kept."""
    figures = uvloop.run(run())
    if "json" in words:
        sys.stdout.write(msgspec.json.encode(figures).decode() + "\n")
    else:
        for figure in figures:
            bound = "" if figure.bound is None else f"  (at most {figure.bound:g})"
            beside = "" if figure.ceiling is None else f"  ceiling {figure.ceiling:.3g}"
            sys.stdout.write(
                f"{figure.name}: {figure.value:.3g} {figure.unit}{bound}{beside}\n"
            )
    return 0 if all(figure.ok for figure in figures) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
