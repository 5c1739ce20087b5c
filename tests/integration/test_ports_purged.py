"""Ports of a log whose beginning was purged, by a real projector's snapshot."""

import json

import pytest

import controlplane as cp
from controlplane.playback import replay_ports
from tests.support.commands import command
from tests.support.servers import unique
from tests.support.waiting import eventually

SETTINGS = cp.Settings(port_cooldown_s=0.0, snapshot_every=1)
SMALL = cp.PortRange(20000, 20011)
FAR = {"host": "203.0.113.7", "bind_check": False}


async def test_ports_of_a_purged_log_are_claimed_by_the_projector_s_snapshot(
    shared_nats_server,
):
    cell, url = unique("ports").lower(), shared_nats_server.url
    options = {"cell": cell, "settings": SETTINGS}
    spec = cp.WorkerSpec(model="llama", address="http://203.0.113.7:8000")
    async with cp.connect(url, **options) as plane:
        await plane.init()
        async with cp.Projector(plane, http=False):
            rested = await plane.ports.claim(4, SMALL, **FAR)
            await plane.ports.release(rested)
            kept = await plane.ports.claim(4, SMALL, **FAR)
            async with plane.worker(spec, ports={"nixl": 2}, **FAR) as worker:
                end = (await plane.log.state()).last_revision

                async def taken() -> bool:
                    pointer = await plane.feed.snapshot_pointer()
                    return pointer is not None and pointer.revision >= worker.revision

                await eventually(taken)
                whole = await plane.log.replay()
                names = plane.log.names
                await plane.broker.purge_stream(names.log_stream, up_to=end + 1)
                async with cp.connect(url, **options) as late:
                    table = await late.ports.table(FAR["host"])
                    assert set(table) == {*kept, *worker.ports["nixl"]}
                    then = await replay_ports(late.broker, late.log)
                    assert then.ports == whole.ports
                    free = set(range(20000, 20012)) - set(kept)
                    new = await late.ports.claim(4, SMALL, **FAR)
                    assert set(new) <= free, "some of them rested in purged records"
                    await late.ports.release(new)
                where = {"NATS_URL": url, "CP_CELL": cell}
                listed = await command("ports", "-o", "ndjson", **where)
                assert listed.code == 0, listed
                held = [json.loads(line) for line in listed.lines]
                assert {b["start"] for b in held if b["state"] == "held"} == {
                    kept.start,
                    worker.ports["nixl"].start,
                }
            await plane.broker.purge_stream(names.snapshot_stream)
            async with cp.connect(url, **options) as late:
                with pytest.raises(cp.HistoryTruncatedError):
                    await late.ports.claim(1, SMALL, **FAR)
