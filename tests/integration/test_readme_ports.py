"""What the README says of ports, run as it stands there."""

import asyncio
import os
import signal
import sys
from contextlib import asynccontextmanager
from pathlib import Path
from textwrap import indent

import pytest

import controlplane as cp
from controlplane.broker import Outgoing
from tests.support.commands import command
from tests.support.servers import unique

ROOT = Path(__file__).parents[2]
HOST = "readme.example"
WANTED = {"kv_events": 1, "nixl_side_channel": 8}
TIMEOUT_S = 30.0


def examples() -> list[str]:
    """The Python of the section on ports, block by block."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    section = text.split("\n## Ports\n")[1].split("\n## ")[0]
    return [part.split("```")[0] for part in section.split("```python\n")[1:]]


@asynccontextmanager
async def the_worker(**where):
    """The first example as a process, for so long at most."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        examples()[0],
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, **where, "CP_HOST": HOST},
        cwd=ROOT,
    )
    try:
        async with asyncio.timeout(TIMEOUT_S):
            yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def test_the_worker_has_its_ports_while_it_serves(shared_nats_server):
    where = {"NATS_URL": shared_nats_server.url, "CP_CELL": unique("readme")}
    assert (await command("init", **where)).code == 0
    async with the_worker(**where) as process:
        said = (await process.stdout.readline()).decode()
        listed = await command("ports", "--host", HOST, "-o", "json", **where)
        process.send_signal(signal.SIGTERM)
        await process.communicate()
    assert process.returncode == 0
    blocks = {block["reason"]: block for block in listed.document["blocks"]}
    assert {name: block["size"] for name, block in blocks.items()} == WANTED
    assert {block["state"] for block in blocks.values()} == {"held"}
    assert len({block["owner"]["incarnation"] for block in blocks.values()}) == 1
    side_channel = blocks["nixl_side_channel"]
    numbers = list(range(side_channel["start"], side_channel["end"] + 1))
    start = blocks["kv_events"]["start"]
    assert said == f"start the engine with {start} and {numbers}\n"
    async with cp.connect(where["NATS_URL"], cell=where["CP_CELL"]) as plane:
        records = [record async for record in plane.log.read()]
    kinds = [type(record.event) for record in records]
    assert kinds[9] is cp.WorkerRegistered, "claimed, then registered"
    assert kinds[-10:].count(cp.PortReleased) == 9
    assert kinds[-10:].count(cp.WorkerDeregistered) == 1


async def test_the_worker_learns_that_it_is_over():
    async with (
        cp.local() as plane,
        the_worker(NATS_URL=plane.server.url, CP_CELL=plane.cell) as process,
    ):
        assert await process.stdout.readline()
        told = [record.event async for record in plane.log.read()]
        (first,) = (event for event in told if isinstance(event, cp.WorkerRegistered))
        spec = cp.WorkerSpec(
            model="llama",
            address="http://10.0.0.8:8000",
            namespace=first.namespace,
            worker_id=first.worker_id,
        )
        async with plane.worker(spec):
            _, complaint = await process.communicate()
    assert process.returncode == 1
    assert "IncarnationSupersededError" in complaint.decode().splitlines()[-1]


async def test_a_port_that_nobody_can_read_is_freed_by_hand(shared_nats_server):
    far = {"host": "10.0.0.7", "bind_check": False}
    within = cp.PortRange(20003, 20004)
    cell, settings = unique("readme"), cp.Settings(port_cooldown_s=0)
    async with cp.connect(
        shared_nats_server.url, cell=cell, settings=settings
    ) as plane:
        await plane.init()
        subject = plane.names.absolute("log.port.10%2E0%2E0%2E7.20004")
        poison = Outgoing(subject=subject, payload=b"{")
        stored = await plane.broker.store(plane.names.log_stream, poison)
        revision = stored.sequence
        where = {"NATS_URL": shared_nats_server.url, "CP_CELL": cell}
        asked = ("log", "tail", "--host", far["host"], "--type", "poison")
        said = await command(*asked, "-o", "json", **where)
        assert [one["revision"] for one in said.document] == [revision]
        with pytest.raises(cp.PortsExhaustedError, match="1 unreadable; look") as full:
            await plane.ports.claim(2, within, **far)
        assert full.value.unreadable == 1
        names = {"cp": cp, "plane": plane, "revision": revision}
        exec(f"async def free():\n{indent(examples()[2], '    ')}", names)  # noqa: S102 - the README's own
        await names["free"]()
        assert list(await plane.ports.claim(2, within, **far)) == [20003, 20004]
        with pytest.raises(cp.AppendConflictError):
            await names["free"]()


async def test_ports_without_a_worker_are_held_and_let_go(
    shared_nats_server, monkeypatch
):
    monkeypatch.setenv("CP_HOST", HOST)
    names = {"cp": cp}
    exec(f"async def use(plane):\n{indent(examples()[1], '    ')}", names)  # noqa: S102 - the README's own
    async with cp.connect(shared_nats_server.url, cell=unique("readme")) as plane:
        await plane.init()
        await names["use"](plane)
        state = await plane.log.replay()
    ports = state.ports.ports
    assert len(ports) >= 8
    assert {port.host for port in ports.values()} == {HOST}
    assert {port.cause for port in ports.values()} == {"released"}
