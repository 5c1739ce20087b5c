"""A long log of lives, as a busy fleet writes it: the generator of the benchmarks.

Ten thousand workers on five hundred hosts in a hundred WorkerSets. A life claims two
ports, registers, becomes ready, says so again with other labels, drains, deregisters
and releases its ports; then the worker begins the next one. All lives are interleaved.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from random import Random
from uuid import UUID

from events import (
    AnyEvent,
    Capacity,
    ModelCard,
    PortClaimed,
    PortOwner,
    PortReleased,
    Role,
    Status,
    StoredRecord,
    WorkerDeregistered,
    WorkerRegistered,
    WorkerStatusChanged,
    WorkerUpdated,
    encode,
    subject_of,
)

WORKERS = 10_000
HOSTS = 500
SETS = 100
START = datetime(2026, 1, 1, tzinfo=UTC)
CARD = ModelCard(kv_block_size=16, context_length=131_072, quantization="fp8")
CAPACITY = Capacity(total_kv_blocks=40_000, max_num_seqs=256)


def lifecycle(count: int, seed: int = 1) -> Iterator[StoredRecord]:
    """The first ``count`` records of the log; equal in, equal out."""
    chance = Random(seed)
    lives = [_lives(number, chance) for number in range(WORKERS)]
    for revision in range(1, count + 1):
        at = START + timedelta(milliseconds=10 * revision)
        event = next(lives[chance.randrange(WORKERS)])
        yield StoredRecord(revision, at, subject_of(event), encode(event))


def _lives(number: int, chance: Random) -> Iterator[AnyEvent]:
    """What one worker says, life after life."""
    while True:
        yield from _a_life(number, chance)


def _a_life(number: int, chance: Random) -> Iterator[AnyEvent]:
    worker, namespace = f"vllm-decode-{number:05}", f"team-{number % SETS}"
    incarnation, claim = _id(chance), _id(chance)
    start = 20_000 + 2 * (number // HOSTS)
    host = f"10.0.{number % HOSTS // 250}.{number % 250}"
    owner = PortOwner(namespace=namespace, worker_id=worker, incarnation=incarnation)
    who = {"namespace": namespace, "worker_id": worker, "incarnation": incarnation}

    def said() -> dict[str, object]:
        return {"event_id": _id(chance), "at": START, "by": worker}

    for port in (start, start + 1):
        yield PortClaimed(
            **said(),
            host=host,
            port=port,
            claim_id=claim,
            block_start=start,
            block_size=2,
            owner=owner,
            reason="nixl_side_channel",
            lease_ttl_s=10.0,
        )
    yield WorkerRegistered(
        **said(),
        **who,
        component="backend",
        endpoint="generate",
        role=Role.AGGREGATED,
        model="meta-llama/Llama-3.1-70B-Instruct",
        card=CARD,
        address=f"http://{host}:{start}",
        capacity=CAPACITY,
        lease_ttl_s=10.0,
        status=Status.STARTING,
    )
    yield WorkerStatusChanged(**said(), **who, status=Status.READY)
    yield WorkerUpdated(**said(), **who, labels={"zone": "b"})
    yield WorkerStatusChanged(**said(), **who, status=Status.DRAINING, reason="rollout")
    yield WorkerStatusChanged(**said(), **who, status=Status.DRAINED)
    yield WorkerDeregistered(**said(), **who, reason="rollout")
    for port in (start, start + 1):
        yield PortReleased(
            **said(), host=host, port=port, claim_id=claim, cause="released"
        )


def _id(chance: Random) -> str:
    return str(UUID(int=chance.getrandbits(128)))
