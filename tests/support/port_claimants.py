"""Claimants as processes of their own, forked from one: a start costs milliseconds.

``python -m tests.support.port_claimants PLAN`` with a `Plan` as JSON. Every claimant
says what came of it in a line of JSON; those that hold a block keep it until the
standard input is closed, and then leave; the others end at once.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from contextlib import asynccontextmanager

import msgspec

import controlplane as cp
from controlplane.server import die_with
from tests.support.forking import be_ready_to_fork


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """How many claim what, where."""

    url: str | list[str]
    cell: str
    hosts: dict[str, int]
    """So many claimants for each host."""
    size: int
    within: tuple[int, int]
    this_host: str = ""
    """The one on which sockets are tried."""
    settings: cp.Settings = cp.Settings()
    claims: int = 1
    """So many blocks each, one after another."""


class Said(msgspec.Struct, frozen=True, kw_only=True):
    """What one claimant has to say."""

    host: str
    pid: int
    start: int = 0
    error: str = ""
    seconds: float


async def claim(plan: Plan, host: str) -> None:
    """Claim, say so, and hold until told to leave."""
    plane = cp.connect(plan.url, cell=plan.cell, settings=plan.settings)
    async with plane:
        held = False
        for _ in range(plan.claims):
            began = time.monotonic()
            start, error = 0, ""
            try:
                block = await plane.ports.claim(
                    plan.size,
                    cp.PortRange(*plan.within),
                    host=host,
                    bind_check=host == plan.this_host,
                )
                start, held = block.start, True
            except cp.ControlPlaneError as refusal:
                error = f"{type(refusal).__name__}: {refusal}"
            seconds = time.monotonic() - began
            say(
                Said(
                    host=host,
                    pid=os.getpid(),
                    start=start,
                    error=error,
                    seconds=seconds,
                )
            )
        if held:
            await told_to_leave()


def say(said: Said) -> None:
    """One line, in one write: lines of several processes do not mix."""
    os.write(1, msgspec.json.encode(said) + b"\n")


async def told_to_leave() -> None:
    """Wait until nobody holds the other end of the standard input."""
    loop, over = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(0, over.set)
    await over.wait()
    loop.remove_reader(0)


def main(plan: Plan) -> int:
    """Fork all claimants and wait for them."""
    be_ready_to_fork()
    gate, keeper = os.pipe()
    children = []
    for host in [host for host, count in plan.hosts.items() for _ in range(count)]:
        pid = os.fork()
        if pid == 0:
            die_with(os.getppid())()
            os.close(keeper)
            os.read(gate, 1)  # until all are there
            asyncio.run(claim(plan, host))
            os._exit(0)
        children.append(pid)
    os.close(keeper)
    return max(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children)


@asynccontextmanager
async def claimants(plan: Plan):
    """Run them; yields how to read what the next so many said."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "tests.support.port_claimants"),
        msgspec.json.encode(plan).decode(),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )

    async def said(count: int, within_s: float) -> list[Said]:
        async with asyncio.timeout(within_s):
            lines = [await process.stdout.readline() for _ in range(count)]
        return [msgspec.json.decode(line, type=Said) for line in lines]

    said.leave = process.stdin.close
    said.ended = process.wait
    try:
        yield said
    finally:
        process.stdin.close()
        try:
            await asyncio.wait_for(process.wait(), 20)
        finally:
            if process.returncode is None:
                process.send_signal(signal.SIGKILL)
                await process.wait()


if __name__ == "__main__":
    sys.exit(main(msgspec.json.decode(sys.argv[1], type=Plan)))
