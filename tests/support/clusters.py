"""Three real nats-servers as one cluster on loopback, to be killed one by one."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from controlplane.server import die_with, find_nats_server
from tests.support.servers import raw_client

SIZE = 3


class Cluster:
    """Its servers by number, 0 to 2."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._ports = _free_ports(2 * SIZE)
        self._processes: dict[int, asyncio.subprocess.Process] = {}

    @property
    def urls(self) -> list[str]:
        """Where clients connect."""
        return [f"nats://127.0.0.1:{port}" for port in self._ports[:SIZE]]

    async def start(self, number: int) -> None:
        """Start one server, on its own port and data."""
        home = self._directory / f"n{number}"
        home.mkdir(parents=True, exist_ok=True)
        config = home / "nats.conf"
        routes = "\n".join(f"nats://127.0.0.1:{port}" for port in self._ports[SIZE:])
        config.write_text(
            f"""
            server_name: n{number}
            listen: 127.0.0.1:{self._ports[number]}
            jetstream {{ store_dir: "{home}" }}
            cluster {{
              name: test
              listen: 127.0.0.1:{self._ports[SIZE + number]}
              routes: [{routes}]
            }}
            """
        )
        self._processes[number] = await asyncio.create_subprocess_exec(
            str(find_nats_server()),
            *("-c", str(config), "-l", str(home / "log")),
            preexec_fn=die_with(os.getpid()),
        )

    async def kill(self, number: int) -> None:
        """SIGKILL one server."""
        process = self._processes.pop(number)
        process.send_signal(signal.SIGKILL)
        await process.wait()

    async def leader_of(self, stream: str) -> int:
        """Which server leads a stream; asked of any that is up."""
        number = next(iter(self._processes))
        async with raw_client(self.urls[number]) as call:
            info = await call(f"STREAM.INFO.{stream}")
        return int(info["cluster"]["leader"].removeprefix("n"))

    async def stop(self) -> None:
        """End all that run."""
        for number in list(self._processes):
            await self.kill(number)


@asynccontextmanager
async def running_cluster(directory: Path) -> AsyncIterator[Cluster]:
    """Run three servers; they elect a leader in their own time."""
    cluster = Cluster(directory)
    try:
        for number in range(SIZE):
            await cluster.start(number)
        yield cluster
    finally:
        await cluster.stop()


def _free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [found.getsockname()[1] for found in sockets]
    for found in sockets:
        found.close()
    return ports
