"""What anybody may publish beside the log must not stop anybody."""

from __future__ import annotations

import pytest

import controlplane as cp
from controlplane.broker import Outgoing
from tests.support.waiting import eventually

LEVELS = 5_000
DEEP = (
    b"[" * LEVELS + b"]" * LEVELS,
    b'{"x":' + b"[" * LEVELS + b"]" * LEVELS + b"}",
    b"\x81\xa1x" + b"\x91" * LEVELS + b"\xc0",
    b"",
    b"null",
)


async def litter(plane: cp.Plane, worker: cp.WorkerHandle) -> None:
    """Publish garbage wherever somebody listens or reads."""
    names, broker = plane.names, plane.broker
    core = (
        names.head,
        names.live,
        names.beat("prod", worker.worker_id),
        names.beat("a", "b"),
        names.canary("x"),
        names.notice("prod", worker.worker_id),
    )
    stored = (
        (names.snapshot_stream, names.snapshot_pointer),
        (names.report_stream, names.report("evil")),
        (f"KV_{names.presence_bucket}", names.entry(names.presence_bucket, "evil")),
        (f"KV_{names.lease_bucket}", names.entry(names.lease_bucket, "evil")),
    )
    for payload in DEEP:
        for subject in core:
            await broker.publish(subject, payload)
        for stream, subject in stored:
            await broker.store(stream, Outgoing(subject=subject, payload=payload))


async def test_garbage_beside_the_log_stops_nobody(tmp_path):
    spec = cp.WorkerSpec(
        model="llama",
        address="http://127.0.0.1:8000",
        namespace="prod",
        status=cp.Status.READY,
    )
    async with cp.local() as plane, plane.view(name="router-a") as view:
        async with plane.worker(spec) as worker:
            await view.synced(10)
            await litter(plane, worker)
            revision = await worker.update(labels={"zone": "b"})
            await view.wait_for(revision, 10)
            assert view.pick("llama").labels == {"zone": "b"}
            assert [r.presence.name for r in await plane.routers()] == ["router-a"]
            assert (await plane.wait(revision, timeout_s=10)).reached
            path = tmp_path / "checkpoint"
            path.write_bytes(DEEP[0] + b"\n")
            async with plane.view(checkpoint=path) as late:
                await late.synced(20)
                assert late.digest == view.digest
            assert plane.projector is not None
            await eventually(lambda: plane.projector.service.health.status == "ok")
        await view.synced(10)
        with pytest.raises(cp.ModelUnavailableError):
            view.pick("llama")
