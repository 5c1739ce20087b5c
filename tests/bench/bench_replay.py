"""A million events from the stream to their digest: ``… tests.bench bench_replay``.

A real server, filled as workers would. Each reading runs in a process of its own and
says how much memory it took at most. The ceilings, in the same run: passing over the
messages, and decoding and folding them. Then the command: near the end, with and
without the projector's snapshot.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from datetime import UTC, datetime
from itertools import islice
from uuid import UUID

import controlplane as cp
from controlplane.broker import Outgoing
from projections import Epoch, Position, take
from tests.bench.figures import Figure
from tests.bench.lifecycles import lifecycle
from tests.bench.processes import running

EVENTS = 1_000_000
SNAPSHOT_AT = EVENTS - 700
UNTIL = EVENTS - 50
PROMISED_PER_S = 150_000
PROMISED_MB = 400.0
DIGESTED = ("fold", "replay")
ROUNDS = 3
BATCH = 1000
US, MB = 1e6, 1e6


async def run() -> list[Figure]:
    """All of it, on one server."""
    async with cp.EmbeddedServer() as server, cp.connect(server.url) as plane:
        await plane.init()
        await fill(plane)
        rounds = [
            {what: await probed(what, server.url) for what in ("raw", "fold", "replay")}
            for _ in range(ROUNDS)
        ]
        digests = {str(one[what]["digests"]) for one in rounds for what in DIGESTED}
        assert len(digests) == 1, digests
        asked = [await commanded(server.url) for _ in range(ROUNDS)]
        whole = await commanded(server.url, "--no-snapshot")
    assert {one["digest"] for one in (*asked, whole)} == {whole["digest"]}
    memory = max(one["replay"]["bytes"] for one in rounds) / MB
    return [
        *speeds(rounds),
        Figure(
            name="the same, memory at most", value=memory, unit="MB", bound=PROMISED_MB
        ),
        Figure(
            name="replay --until near the end of 1,000,000 events, the whole command",
            value=min(one["seconds"] for one in asked),
            unit="s",
            bound=1.0,
            ceiling=whole["seconds"],
            ceiling_is="the same with --no-snapshot",
        ),
    ]


def speeds(rounds: list[dict]) -> list[Figure]:
    """The fastest of each kind: others on the machine only add."""
    least = {
        (what, clock): min(one[what][clock] for one in rounds) / EVENTS * US
        for what in ("raw", "fold", "replay")
        for clock in ("elapsed", "processor")
    }
    elapsed, processor = least["replay", "elapsed"], least["replay", "processor"]
    return [
        Figure(
            name="stream of 1,000,000 events to its digest, an event",
            value=elapsed,
            unit=f"µs ({US / elapsed:,.0f}/s)",
            bound=US / PROMISED_PER_S,
            ceiling=least["raw", "elapsed"],
            ceiling_is="passing over its messages",
        ),
        Figure(
            name="the same in processor time, beside decoding and folding",
            value=processor,
            unit=f"µs ({US / processor:,.0f}/s)",
            ceiling=least["fold", "processor"],
            ceiling_is="decoding and folding what was read",
        ),
    ]


async def fill(plane: cp.Plane) -> None:
    """Append the events, and leave a snapshot as the projector does near the end."""
    records, stream = lifecycle(EVENTS), plane.names.log_stream
    while batch := list(islice(records, BATCH)):
        messages = [
            Outgoing(
                subject=plane.names.absolute(record.subject),
                payload=record.payload,
                message_id=str(UUID(int=record.revision)),
            )
            for record in batch
        ]
        await plane.broker.store_batch(stream, messages)
    log_id = (await plane.log.state()).log_id
    state = (await plane.log.replay(SNAPSHOT_AT)).fold_state
    epoch = Epoch(count=1, fold_version=1, log_id=log_id, revision=0)
    place = Position(epoch=epoch, base=1, ordinal=1, delta_revision=SNAPSHOT_AT)
    assert await plane.feed.write_snapshot(take(state, place), datetime.now(UTC))


async def probed(what: str, url: str) -> dict:
    """What a process of its own says of one reading."""
    async with running("tests.bench.replay_probe", what, url=url) as process:
        assert process.stdout is not None
        return json.loads(await process.stdout.readline())


async def commanded(url: str, *more: str) -> dict:
    """How long ``controlplane replay`` takes, from its start to its end."""
    words = ("replay", "--until", str(UNTIL), "-o", "json", *more)
    began = time.perf_counter()
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "controlplane.cli",
        *words,
        env={**os.environ, "NATS_URL": url},
        stdout=asyncio.subprocess.PIPE,
    )
    said, _ = await process.communicate()
    seconds = time.perf_counter() - began
    return {"seconds": seconds, "digest": json.loads(said)["digest"]}
