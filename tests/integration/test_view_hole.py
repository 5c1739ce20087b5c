"""A message that is gone from amid the view stream keeps no router out."""

from __future__ import annotations

import msgspec

import controlplane as cp
from controlplane import topology
from controlplane.broker import Outgoing
from tests.support.servers import raw_client, unique

SETTINGS = cp.Settings(presence_ttl_s=3.0)


async def cell_without_protection(plane: cp.Plane) -> None:
    """Create the cell, but let messages of the view stream be deleted."""
    for spec in topology.streams(plane.names, SETTINGS, 1):
        loose = spec.name == plane.names.view_stream
        made = msgspec.structs.replace(spec, deny_delete=False) if loose else spec
        await plane.broker.create_stream(made)


async def test_routers_pass_a_hole_by_a_snapshot(shared_nats_server):
    cell = unique("cell").lower()
    url = shared_nats_server.url
    async with cp.connect(url, cell=cell, settings=SETTINGS) as plane:
        await cell_without_protection(plane)
        async with cp.Projector(plane, http=False), plane.view() as before:
            workers = [
                await plane.worker(
                    cp.WorkerSpec(
                        model="llama", address=f"http://w{n}", worker_id=f"w{n}"
                    )
                ).start()
                for n in range(10)
            ]
            await before.synced(10)
            async with raw_client(url) as call:
                answer = await call(
                    f"STREAM.MSG.DELETE.{plane.names.view_stream}",
                    {"seq": 5, "no_erase": True},
                )
            assert answer["success"]
            async with plane.view() as late:
                await late.synced(10)
                assert late.digest == before.digest
            for worker in workers:
                await worker.stop()
        for stream in topology.streams(plane.names, SETTINGS, 1):
            await plane.broker.delete_stream(stream.name)


async def test_nobody_deletes_a_delta_by_mistake(shared_nats_server):
    cell = unique("cell").lower()
    url = shared_nats_server.url
    async with cp.connect(url, cell=cell) as plane:
        await plane.init()
        message = Outgoing(subject=plane.names.view, payload=b"x")
        await plane.broker.store(plane.names.view_stream, message)
        async with raw_client(url) as call:
            answer = await call(
                f"STREAM.MSG.DELETE.{plane.names.view_stream}", {"seq": 1}
            )
        assert "error" in answer
        for stream in topology.streams(plane.names, plane.settings, 1):
            await plane.broker.delete_stream(stream.name)
