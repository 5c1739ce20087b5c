"""From an archive to the digest, a million events: ``… tests.bench bench_archive``.

The reading runs in a process of its own, as a command would, and says how much memory
it took at most. The ceilings: unpacking the file, and decoding and folding the same
records out of memory.
"""

from __future__ import annotations

import asyncio
import json
import resource
import sys
import tempfile
import time
from itertools import islice
from pathlib import Path

from controlplane.archive import Archive, ArchiveHistory
from controlplane.archive.form import FORMAT, Header
from controlplane.archive.frames import whole_frames
from controlplane.archive.writing import ArchiveWriter
from controlplane.cli.long_folds import in_a_long_fold
from controlplane.playback import state_at
from projections import Folding, FoldState
from tests.bench.figures import Figure
from tests.bench.lifecycles import START, lifecycle

EVENTS = 1_000_000
PROMISED_PER_S = 200_000
PROMISED_MB = 400
ROUNDS = 3
AT_ONCE = 2000
US = 1e6
MB = 1e6


async def run() -> list[Figure]:
    """Speed and memory of a replay from an archive, and of both ceilings."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "million.jsonl.zst"
        await write(path, EVENTS)
        replays = [await replayed(path) for _ in range(ROUNDS)]
        fold_us, digest = pure(path)
        unpack_us = unpacking(path)
    assert {replay["digest"] for replay in replays} == {digest}
    fastest = min(replay["seconds"] for replay in replays) / EVENTS * US
    memory = max(replay["bytes"] for replay in replays) / MB
    return [
        Figure(
            name="archive of 1,000,000 events to its digest, an event",
            value=fastest,
            unit=f"µs ({US / fastest:,.0f}/s)",
            bound=US / PROMISED_PER_S,
            ceiling=fold_us,
            ceiling_is="decoding and folding the records out of memory",
        ),
        Figure(
            name="the same beside unpacking the file, an event",
            value=fastest,
            unit="µs",
            ceiling=unpack_us,
            ceiling_is="unpacking the file",
        ),
        Figure(
            name="the same, memory at most",
            value=memory,
            unit="MB",
            bound=PROMISED_MB,
        ),
    ]


async def write(path: Path, count: int) -> None:
    """An archive of the first ``count`` records."""
    async with ArchiveWriter(path) as writer:
        writer.begin(
            Header(archive=FORMAT, cell="bench", log_id="bench", first_revision=1)
        )
        records = lifecycle(count)
        while batch := list(islice(records, AT_ONCE)):
            writer.add(batch)
        writer.finish(count, START)


async def replayed(path: Path) -> dict[str, float]:
    """What a process that replays the archive says of it."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.bench.bench_archive", path, stdout=-1
    )
    said, _ = await process.communicate()
    return json.loads(said)


def pure(path: Path) -> tuple[float, str]:
    """Microseconds an event to decode and fold it, whatever it was read from."""
    folding, taken = Folding(FoldState()), 0.0
    for batch in Archive(path).stored():
        began = time.process_time()
        for stored in batch:
            folding.add(stored.record)
        taken += time.process_time() - began
    return taken / EVENTS * US, folding.settled().fleet_state.digest


def unpacking(path: Path) -> float:
    """Microseconds an event to unpack the file."""
    began = time.process_time()
    with path.open("rb") as file:
        for _ in whole_frames(file):
            pass
    return (time.process_time() - began) / EVENTS * US


async def replay(path: Path) -> None:
    """Replay as the command does, which reads ahead; say how it went by the clock."""
    began = time.perf_counter()
    with in_a_long_fold():
        state = await state_at(await ArchiveHistory.of(path), None)
    seconds = time.perf_counter() - began
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    digest = state.fleet.digest
    said = {"seconds": seconds, "bytes": memory, "digest": digest}
    sys.stdout.write(json.dumps(said) + "\n")


if __name__ == "__main__":
    asyncio.run(replay(Path(sys.argv[1])))
