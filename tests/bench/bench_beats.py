"""10,000 workers beating every 3 s: what it costs the leader, and nobody expires."""

from __future__ import annotations

import asyncio
import time
import urllib.request

import controlplane as cp
from controlplane.beats import Beat, encode_signal
from controlplane.eventlog import Pending
from controlplane.http import HttpServer
from events import WorkerExpired
from tests.bench.figures import Figure
from tests.bench.processes import processor_s, running
from tests.support.fleet_builder import given, ready, registered

WORKERS = 10_000
SETS = 100
BEAT_S = 3.0
TTL_S = 9.0
MEASURE_S = 15.0
SLICES = 100
BOUND_PERCENT = 15.0


async def run() -> list[Figure]:
    """The leader's share of a core, beside a process that only listens."""
    async with cp.EmbeddedServer() as server, cp.connect(server.url) as plane:
        await plane.init()
        revision = await fill(plane, WORKERS)
        port = await free_port()
        projector = ("controlplane.cli", "projector", "--http", f"127.0.0.1:{port}")
        async with (
            running(*projector, url=server.url) as leader,
            running("tests.bench.listener", url=server.url) as listener,
        ):
            beating = asyncio.create_task(beat(plane, revision))
            await leads(f"http://127.0.0.1:{port}/readyz")
            before = [processor_s(p.pid) for p in (leader, listener)]
            started = time.perf_counter()
            await asyncio.sleep(MEASURE_S)
            elapsed = time.perf_counter() - started
            after = [processor_s(p.pid) for p in (leader, listener)]
            beating.cancel()
            await asyncio.wait({beating})
            shares = [
                100 * (b - a) / elapsed for a, b in zip(before, after, strict=True)
            ]
        expired = [
            record
            async for record in plane.log.read(revision)
            if isinstance(record.event, WorkerExpired)
        ]
    return [
        Figure(
            name="leader, 10,000 workers beating every 3 s",
            value=shares[0],
            unit="% of a core",
            bound=BOUND_PERCENT,
            ceiling=shares[1],
            ceiling_is="a process that only receives the beats",
        ),
        Figure(name="false expiries meanwhile", value=len(expired), unit="", bound=0),
    ]


async def fill(plane: cp.Plane, workers: int) -> int:
    """Append the arrivals of so many workers in 100 WorkerSets; the last revision."""
    steps = [
        step
        for number in range(workers)
        for step in (
            registered(
                f"w{number}", namespace=f"ns-{number % SETS}", lease_ttl_s=TTL_S
            ),
            ready(f"w{number}", namespace=f"ns-{number % SETS}"),
        )
    ]
    story = [Pending(record.event) for record in given(*steps)]
    revision = 0
    for start in range(0, len(story), 1000):
        revision = (await plane.log.append_all(story[start : start + 1000])).revision
    return revision


async def beat(plane: cp.Plane, revision: int) -> None:
    """Beat for everybody, evenly spread over the interval."""
    state = await plane.log.state()
    replayed = await plane.log.replay()
    lives = replayed.fold_state.lives
    signals = [
        (
            plane.names.beat(life.namespace, life.worker_id),
            encode_signal(
                Beat(
                    incarnation=life.incarnation,
                    log_id=state.log_id,
                    revision=revision,
                    server_id=plane.broker.server_id or "",
                )
            ),
        )
        for life in lives.values()
    ]
    due = time.perf_counter()
    while True:
        for part in range(SLICES):
            for subject, payload in signals[part::SLICES]:
                await plane.broker.publish(subject, payload)
            due += BEAT_S / SLICES
            await asyncio.sleep(max(0.0, due - time.perf_counter()))


async def free_port() -> int:
    """A port that was free a moment ago."""
    server = HttpServer("127.0.0.1", 0, {})
    await server.start()
    port = server.port
    await server.stop()
    return port


async def leads(url: str) -> None:
    """Wait until the projector at ``url`` leads."""
    deadline = time.perf_counter() + 30
    while time.perf_counter() < deadline:
        try:
            answer = await asyncio.to_thread(_get, url)
        except OSError:
            answer = b""
        if b'"leader"' in answer and b'"ok"' in answer:
            return
        await asyncio.sleep(0.1)
    raise TimeoutError(url)


def _get(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=2) as answer:  # noqa: S310 - loopback
        return bytes(answer.read())
