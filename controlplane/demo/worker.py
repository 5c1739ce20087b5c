"""A worker that serves nothing, well: ``python -m controlplane.demo.worker``.

It is what a real engine does with the client: listen, register, turn ready when the
engine answers, and on SIGTERM drain before it leaves. ``NATS_URL`` and ``CP_CELL`` say
where.
"""

from __future__ import annotations

import argparse
import asyncio
import socket
import sys
from http import HTTPStatus
from typing import Final
from urllib.parse import urlsplit

from controlplane.logs import get_logger
from controlplane.plane import Plane, connect
from controlplane.worker import WorkerHandle, WorkerSpec
from events import ControlPlaneError, Revision, Role

from .engine import FakeEngine
from .process import announce, first_to_end, run_process
from .web import ask

QUIET_S: Final = 0.2
"""So long after the last request none that was sent before is still under way."""
LOOPBACK: Final = ("127.0.0.1", "localhost")

_log = get_logger("demo")


async def serve(options: argparse.Namespace, stopping: asyncio.Event) -> None:
    """Serve until told to stop, or until the worker's life is over."""
    host = urlsplit(options.address).hostname
    bind = "127.0.0.1" if host in LOOPBACK else "0.0.0.0"  # noqa: S104 - a container
    name = options.worker_id or socket.gethostname()
    engine = FakeEngine(options.model, name=name, answer_s=options.answer_s)
    port = await engine.start(bind, options.port)
    spec = WorkerSpec(
        model=options.model,
        address=expand(options.address, port=port),
        namespace=options.namespace,
        worker_id=options.worker_id,
        role=options.role,
        lease_ttl_s=options.lease_ttl_s,
    )
    try:
        async with (
            connect(name=options.worker_id) as plane,
            plane.worker(spec) as worker,
        ):
            await _turn_ready(worker, spec.address, port)
            await first_to_end(
                stopping.wait(), worker.drain_requested.wait(), _lost(worker)
            )
            await drain(plane, worker, engine, within_s=options.drain_s)
            await first_to_end(stopping.wait(), _lost(worker))
    finally:
        await engine.stop()


async def _turn_ready(worker: WorkerHandle, address: str, port: int) -> None:
    status, _ = await ask("GET", f"http://127.0.0.1:{port}/health")
    if status != HTTPStatus.OK:
        message = f"the engine's health is {status}"
        raise OSError(message)
    revision = await worker.ready()
    announce(
        name=worker.worker_id,
        url=address,
        namespace=worker.namespace,
        incarnation=worker.incarnation,
        revision=revision,
    )


async def _lost(worker: WorkerHandle) -> None:
    raise await worker.wait_lost()


async def drain(
    plane: Plane, worker: WorkerHandle, engine: FakeEngine, *, within_s: float
) -> None:
    """Finish what is in flight once no router sends more; then say so.

    Takes ``within_s`` at most, whatever the routers and the requests do.
    """
    revision = await worker.drain(reason="the process was asked to stop")
    await _until_routers_know(plane, revision, within_s / 2)
    await engine.quiet(QUIET_S, within_s=within_s / 2)
    await worker.drained()
    _log.info("worker drained", revision=revision, worker_id=worker.worker_id)


async def _until_routers_know(
    plane: Plane, revision: Revision, within_s: float
) -> None:
    try:
        if not await plane.routers():
            return
        result = await plane.wait(revision, timeout_s=within_s)
    except ControlPlaneError as error:
        _log.warning("routers not asked", reason=str(error), revision=revision)
        return
    if result.missing:
        _log.warning("routers not there", missing=result.missing, revision=revision)


def expand(address: str, *, port: int) -> str:
    """``address`` with this machine's ``{hostname}`` and the engine's ``{port}``."""
    hostname = socket.gethostname()
    return address.replace("{hostname}", hostname).replace("{port}", str(port))


def main() -> int:
    """Read the command line and run."""
    parser = argparse.ArgumentParser(description="A make-believe worker.")
    parser.add_argument("--model", required=True)
    parser.add_argument("--namespace", help="else from the environment")
    parser.add_argument("--worker-id", help="else generated")
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    parser.add_argument(
        "--address",
        default="http://127.0.0.1:{port}",
        help="as routers reach it; {hostname} and {port} are filled in",
    )
    roles = [role.value for role in Role]
    parser.add_argument("--role", choices=roles, default=Role.AGGREGATED.value)
    parser.add_argument("--lease-ttl-s", type=float, default=10.0)
    parser.add_argument("--answer-s", type=float, default=0.02)
    parser.add_argument("--drain-s", type=float, default=10.0)
    return run_process(serve, parser.parse_args())


if __name__ == "__main__":
    sys.exit(main())
