"""One measured reading in a process of its own: ``… replay_probe WHAT``.

``raw``: messages, passed over; ``fold``: decoding and folding them, their reading not
counted; ``replay``: from the stream to the digests. Says seconds of the clock and of
the processor, the memory taken at most, and both digests.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from collections.abc import Awaitable, Callable

import uvloop

import controlplane as cp
from projections import Folding, FoldState
from tests.bench.raw_reader import read_raw


async def raw(plane: cp.Plane) -> dict[str, object]:
    """The ceiling of reading."""
    last = (await plane.log.state()).last_revision
    elapsed_s, processor_s = await read_raw(
        os.environ["NATS_URL"], plane.names.log_stream, last
    )
    return {"elapsed": elapsed_s, "processor": processor_s}


async def fold(plane: cp.Plane) -> dict[str, object]:
    """The ceiling of decoding and folding."""
    folding, taken_s = Folding(FoldState()), 0.0
    async for batch in plane.broker.read(plane.names.log_stream):
        began = time.process_time()
        for record in map(plane.log.record, batch):
            folding.add(record)
        taken_s += time.process_time() - began
    began = time.process_time()
    state = folding.settled()
    taken_s += time.process_time() - began
    digests = [state.fleet_state.digest, state.ports.digest]
    return {"elapsed": taken_s, "processor": taken_s, "digests": digests}


async def replay(plane: cp.Plane) -> dict[str, object]:
    """All of it, as ``controlplane replay --no-snapshot`` does it."""
    began = time.perf_counter(), time.process_time()
    state = await plane.log.replay()
    digests = [state.fleet.digest, state.ports.digest]
    return {
        "elapsed": time.perf_counter() - began[0],
        "processor": time.process_time() - began[1],
        "digests": digests,
    }


WORK: dict[str, Callable[[cp.Plane], Awaitable[dict[str, object]]]] = {
    "raw": raw,
    "fold": fold,
    "replay": replay,
}


async def main(what: str) -> None:
    """Do it, and print what was seen as one line of JSON."""
    async with cp.connect() as plane:
        await plane.broker.wait_connected(10)
        said = await WORK[what](plane)
    said["bytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    sys.stdout.write(json.dumps(said) + "\n")


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1]))
