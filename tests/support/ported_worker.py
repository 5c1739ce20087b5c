"""A worker with ports as a process: ``python -m tests.support.ported_worker SPEC``.

``SPEC`` is JSON: worker_id, size, first, last, and crash (die as soon as the ports are
claimed). It prints what happens to it, one JSON object a line.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys

import controlplane as cp

HOST = "10.9.0.1"
"""No machine's: ports are not tried, so that tests do not meet at sockets."""
SETTINGS = cp.Settings(port_cooldown_s=1.0)


def say(**fields: object) -> None:
    """Tell whoever started this process."""
    print(json.dumps(fields), flush=True)  # noqa: T201 - the test reads it


def spec_of(worker_id: str) -> cp.WorkerSpec:
    """A worker with the shortest lease."""
    return cp.WorkerSpec(
        model="llama",
        address="http://127.0.0.1:8000",
        namespace="prod",
        worker_id=worker_id,
        lease_ttl_s=5.0,
        status=cp.Status.READY,
    )


def die_at_claim(plane: cp.Plane) -> None:
    """End this process the moment that its claim is acknowledged."""
    claim = plane.ports.claimer.claim

    async def claim_and_die(*args: object, **named: object) -> None:
        await claim(*args, **named)
        os._exit(9)

    plane.ports.claimer.claim = claim_and_die


async def main(told: dict) -> None:
    """Hold ports, and say when they are lost."""
    want = cp.Want("nixl", told["size"], cp.PortRange(told["first"], told["last"]))
    async with cp.connect(settings=SETTINGS) as plane:
        if told.get("crash"):
            die_at_claim(plane)
        worker = plane.worker(
            spec_of(told["worker_id"]),
            ports={"nixl": want},
            host=HOST,
            bind_check=False,
        )
        async with worker:
            say(entered=worker.incarnation, ports=list(worker.ports["nixl"]))
            say(lost=type(await worker.wait_lost()).__name__)


if __name__ == "__main__":
    asyncio.run(main(json.loads(sys.argv[1])))
