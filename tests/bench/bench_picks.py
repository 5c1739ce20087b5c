"""What a pick takes by each policy, with 10,000 workers in 100 WorkerSets.

``python -m tests.bench bench_picks`` prints them by themselves. Each pick is timed by
itself; the least of `ROUNDS` medians counts, since other work on the machine only adds.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Final

import controlplane as cp
from controlplane.eventlog import Pending
from controlplane.loads import LoadReport, encode_load
from tests.bench.figures import Figure
from tests.bench.processes import running
from tests.support.fleet_builder import MODEL, given, registered
from tests.support.waiting import eventually

WORKERS: Final = 10_000
SETS: Final = 100
PICKS: Final = 1_000
ROUNDS: Final = 7
BOUND_US: Final = 5.0
PROJECTOR: Final = ("controlplane.cli", "projector", "--http", "127.0.0.1:0")
SETTINGS: Final = cp.Settings(load_fresh_s=600.0, load_forget_s=1200.0)
POLICIES: Final = ("weighted_random", "round_robin", "consistent_hash", "least_loaded")


async def run() -> list[Figure]:
    """Both shapes: 100 WorkerSets of one model, and 100 models of one each."""
    one = await picks("one model", lambda _: MODEL)
    return one + await picks("100 models", lambda n: f"{MODEL}-{n}")


async def picks(shape: str, model_of: Callable[[int], str]) -> list[Figure]:
    """Each policy on its own, then with every worker's load known, then with limits."""
    models = sorted({model_of(n) for n in range(SETS)})
    async with (
        cp.EmbeddedServer() as server,
        cp.connect(server.url, settings=SETTINGS) as plane,
    ):
        await plane.init()
        await fill(plane, model_of)
        async with (
            running(*PROJECTOR, url=server.url),
            plane.view(announce=False) as view,
        ):
            await view.synced(120)
            figures = [await figure(shape, policy, view, models) for policy in POLICIES]
            known = f"{shape}, loads known"
            figures += [
                await figure(known, policy, view, models, plane) for policy in POLICIES
            ]
            for model in models:
                await plane.thresholds(model, busy_kv_usage=0.9)
            await view.synced(30)
            limited = f"{shape}, a tenth is busy"
            figures += [
                await figure(limited, policy, view, models, plane)
                for policy in POLICIES
            ]
    return figures


async def fill(plane: cp.Plane, model_of: Callable[[int], str]) -> None:
    """Append the arrivals of all workers."""
    steps = [
        registered(
            f"w{n}",
            namespace=f"ns-{n % SETS}",
            model=model_of(n % SETS),
            lease_ttl_s=3600.0,
        )
        for n in range(WORKERS)
    ]
    story = [Pending(record.event) for record in given(*steps)]
    for start in range(0, len(story), 1000):
        await plane.log.append_all(story[start : start + 1000])


async def report(plane: cp.Plane, view: cp.RouterView) -> None:
    """Have every worker say its load; a tenth of them is almost full."""
    workers = sorted(
        view.fleet.state.workers.values(), key=lambda w: int(w.worker_id[1:])
    )
    wanted = view.tally.heard["taken"] + len(workers)
    for n, worker in enumerate(workers):
        load = LoadReport(
            incarnation=worker.incarnation,
            kv_usage=n // SETS % 100 / 100,
            running=n % 37,
            waiting=0,
        )
        subject = plane.names.load(worker.namespace, worker.worker_id)
        await plane.broker.publish(subject, encode_load(load))
    await eventually(lambda: view.tally.heard["taken"] >= wanted, 30)


async def figure(
    shape: str,
    policy: str,
    view: cp.RouterView,
    models: list[str],
    reports: cp.Plane | None = None,
) -> Figure:
    """The median of single picks; before each round all ``reports`` come anew."""
    medians = []
    for _ in range(ROUNDS):
        if reports is not None:
            await report(reports, view)
            view.pick(models[0], policy=policy, key="")
        medians.append(pick_us(view, policy, models))
    name = f"pick, {policy}, {shape}, p50"
    # The promise is of each policy by itself; least_loaded needs loads for that.
    promised = reports is None or (policy == "least_loaded" and "busy" not in shape)
    bound = BOUND_US if promised else None
    return Figure(name=name, value=min(medians), unit="µs", bound=bound)


def pick_us(view: cp.RouterView, policy: str, models: list[str]) -> float:
    """One round: what the middle one of `PICKS` took, the clock's own time left out."""
    pick, now, samples = view.pick, time.perf_counter_ns, []
    asked = [(models[n % len(models)], f"session-{n}") for n in range(PICKS)]
    for model, key in asked:
        started = now()
        pick(model, policy=policy, key=key)
        samples.append(now() - started)
    return (statistics.median(samples) - clock_ns()) / 1e3


def clock_ns() -> float:
    """What looking at the clock twice takes."""
    now = time.perf_counter_ns
    return statistics.median(-now() + now() for _ in range(1000))
