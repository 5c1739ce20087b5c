"""How fast the fold is over a large fleet: ``python -m tests.bench bench_fold``.

Ten thousand workers in a hundred WorkerSets live a life each, all interleaved: ready,
updated, an adapter, draining, gone, registered anew. The ceiling is decoding the same
records, which whoever folds has to do before.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime
from random import Random

from events import Record, decode_record
from projections import FoldState, evolve, fold_all, replay
from tests.bench.figures import Figure
from tests.support.fleet_builder import (
    Step,
    deregistered,
    draining,
    given,
    loaded,
    ready,
    starting,
    updated,
)

WORKERS = 10_000
SETS = 100
ROUNDS = 7
PROMISED_PER_S = 150_000
US = 1e6


async def run() -> list[Figure]:
    """A fold record by record, of all at once, and a replay from nothing."""
    stored = interleaved_lives()
    records = decoded(stored)
    before, rest = fold_all(FoldState(), records[:WORKERS]), records[WORKERS:]
    decoding_us = least(lambda: decoded(stored), len(stored))
    at_once_us = least(lambda: fold_all(before, rest), len(rest))
    replay_us = least(lambda: replay(records), len(records))
    singly_us = least(lambda: singly(before, rest), len(rest))
    one_by_one = singly(before, rest)
    assert fold_all(before, rest) == one_by_one
    assert replay(records).digest == one_by_one.fleet_state.digest
    return [
        Figure(
            name=f"{what}, 10,000 workers, an event",
            value=value,
            unit=f"µs ({US / value:,.0f}/s)",
            bound=bound,
            ceiling=decoding_us,
            ceiling_is="decoding the record",
        )
        for what, value, bound in (
            ("fold of a log at once", at_once_us, US / PROMISED_PER_S),
            ("replay from the beginning", replay_us, US / PROMISED_PER_S),
            ("evolve, record by record", singly_us, None),
        )
    ]


def decoded(stored: list[tuple[int, datetime, str, bytes]]) -> list[Record]:
    """The records, read."""
    return [decode_record(*one) for one in stored]


def singly(state: FoldState, records: list[Record]) -> FoldState:
    """The fold, one record after another."""
    for record in records:
        state = evolve(state, record)
    return state


def interleaved_lives() -> list[tuple[int, datetime, str, bytes]]:
    """What the log holds: everybody's arrival, then all lives among each other."""
    names = [(f"w{n}", f"ns-{n % SETS}") for n in range(WORKERS)]
    arrivals = [arrival(*name) for name in names]
    lives = [iter(a_life(*name)) for name in names]
    order = [n for n in range(WORKERS) for _ in a_life("w", "ns")]
    Random(1).shuffle(order)
    story = given(*arrivals, *(next(lives[n]) for n in order))
    return [
        (record.revision, record.recorded_at, record.subject, payload)
        for record, payload in zip(story, story.payloads, strict=True)
    ]


def arrival(worker: str, namespace: str) -> Step:
    """A worker registers and is not ready yet."""
    return starting(worker, namespace=namespace, lease_ttl_s=3600.0)


def a_life(worker: str, namespace: str) -> list[Step]:
    """What it says from then on, and its next arrival."""
    where = {"namespace": namespace}
    return [
        ready(worker, **where),
        updated(worker, labels={"zone": "b"}, **where),
        loaded(worker, "sql", **where),
        draining(worker, **where),
        deregistered(worker, **where),
        arrival(worker, namespace),
    ]


def least(work: Callable[[], object], events: int) -> float:
    """Microseconds an event, of the fastest round: others on the machine only add."""
    taken = []
    for _ in range(ROUNDS):
        started = time.process_time()
        work()
        taken.append(time.process_time() - started)
    return min(taken) / events * US
