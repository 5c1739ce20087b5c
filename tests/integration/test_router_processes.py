"""Routers as processes: killed, stopped, started from what they left, cut off."""

import os
import signal
import time

import pytest

from controlplane.router.checkpoint import read_checkpoint_snapshot
from controlplane.settings import Settings
from projections import SnapshotUnusableError
from tests.support.cells import projected_cell
from tests.support.processes import Processes
from tests.support.routers import (
    Life,
    append_all,
    check_against,
    digests_of,
    router_process,
    writer_process,
)
from tests.support.servers import raw_client
from tests.support.waiting import eventually

NUMBERS = {"checkpoint_every_s": 0.5, "snapshot_every": 200, "connect_timeout_s": 1.0}
CATCH_UP_S = 5.0
PATIENCE_S = 20.0
"""For what has no bound of its own: processes start slowly on a busy machine."""


@pytest.fixture
def processes():
    made = Processes()
    yield made
    made.clean_up()


@pytest.fixture
async def own(nats_server, broker_factory):
    """A server that may be broken, and a cell on it."""
    server = await nats_server()
    broker = await broker_factory(server.url, connect_timeout_s=1.0)
    async with projected_cell(broker, **NUMBERS) as cell:
        yield server, cell


async def delete_consumers(server, cell):
    """Delete every consumer of the cell's log and view by API, as an operator might."""
    async with raw_client(server.url) as call:
        for stream in (cell.names.view_stream, cell.names.log_stream):
            names = (await call(f"CONSUMER.NAMES.{stream}")).get("consumers") or []
            for name in names:
                await call(f"CONSUMER.DELETE.{stream}.{name}")


async def test_replicas_agree_and_come_back_from_anything(own, processes):
    """S37, S28: three routers, two projectors, consumers deleted, the server restarted.

    One router is stopped while all of that happens.
    """
    server, cell = own
    settings = Settings(**NUMBERS)
    routers = []

    def start_router(name):
        started = router_process(processes, server.url, cell.cell, name, settings)
        routers.append(started)
        return started

    processes.projector(server.url, cell.cell, "p1", settings)
    start_router("early")
    processes.projector(server.url, cell.cell, "p2", settings)
    writer = writer_process(processes, server.url, cell.cell, writers=2, per_s=200)
    await eventually(lambda: routers[0].now.revision > 150, PATIENCE_S)
    start_router("later")
    await eventually(lambda: routers[1].now.revision > 300, PATIENCE_S)

    os.kill(routers[0].process.pid, signal.SIGSTOP)
    await delete_consumers(server, cell)
    await server.kill()
    await server.start()
    start_router("last")
    os.kill(routers[0].process.pid, signal.SIGCONT)
    await cell.broker.wait_connected(10)
    if not writer.running:  # it gives up when an outcome stays unknown
        writer_process(processes, server.url, cell.cell, writers=2, per_s=200)
    back = time.monotonic()
    goal = (await cell.log.state()).last_revision + 50
    await eventually(lambda: all(r.now.revision >= goal for r in routers), PATIENCE_S)
    assert time.monotonic() - back < 10  # S28's bound
    writer.kill()

    async def level():
        end = (await cell.log.state()).last_revision
        return all(r.now.revision == end for r in routers)

    await eventually(level, PATIENCE_S)
    assert len({(r.now.epoch, r.now.revision, r.now.digest) for r in routers}) == 1
    digests = await digests_of(cell.log)
    for router in routers:
        check_against(router.said, digests)


async def test_a_router_starts_from_what_it_left_even_without_a_broker(
    own, processes, tmp_path
):
    server, cell = own
    settings, path = Settings(**NUMBERS), tmp_path / "checkpoint"

    def start_router():
        return router_process(
            processes, server.url, cell.cell, "r", settings, checkpoint=path
        )

    async with cell.service():
        lives = [Life(f"w{n}") for n in range(50)]
        end = await append_all(cell.log, [life.registers() for life in lives])
        first = start_router()
        await eventually(lambda: first.now.revision == end, PATIENCE_S)
        await eventually(lambda: saved_at(path) == end, PATIENCE_S)
        first.process.kill()

        # SIGKILLed: it starts where it was, then follows.
        end = await append_all(cell.log, [life.toggles() for life in lives[1:]])
        second = start_router()
        await eventually(lambda: second.now.revision == end, PATIENCE_S)
        assert second.said[0].source == "checkpoint"
        assert second.now.source == "live"
        await eventually(lambda: second.now.picked == "w0", PATIENCE_S)
        await eventually(lambda: saved_at(path) == end, PATIENCE_S)
        second.process.kill()

        # A corrupt file is not used, and replaced.
        whole = path.read_bytes()
        path.write_bytes(whole[:-20] + b"x" * 20)
        third = start_router()
        await eventually(lambda: third.now.revision == end, PATIENCE_S)
        assert {line.source for line in third.said} == {"none", "live"}
        assert "checkpoint not used" in third.process.said
        await eventually(lambda: saved_at(path) == end, PATIENCE_S)

        # The server goes while it follows: it serves on, says for how long, comes back.
        await server.kill()
        await eventually(lambda: third.now.stale_for_s > 3, PATIENCE_S)
        assert third.now.picked == "w0"
        third.process.kill()

        # Started with the server down: from the checkpoint, and it knows how old.
        fourth = start_router()
        await eventually(lambda: fourth.now.source == "checkpoint", PATIENCE_S)
        before = fourth.now
        assert before.revision == end
        assert before.picked == "w0"
        assert before.stale_for_s > 3
        await eventually(
            lambda: fourth.now.stale_for_s > before.stale_for_s + 1, PATIENCE_S
        )
        await server.start()
        await cell.broker.wait_connected(10)
        back = time.monotonic()
        end = await append_all(cell.log, [lives[0].toggles()])
        await eventually(lambda: fourth.now.revision == end, PATIENCE_S)
        assert time.monotonic() - back < CATCH_UP_S
        assert fourth.now.source == "live"
        await eventually(lambda: fourth.now.stale_for_s < 2, PATIENCE_S)
        check_against(fourth.said, await digests_of(cell.log))
        assert fourth.now.picked == "ModelUnavailableError"


def saved_at(path):
    """The revision that the checkpoint stands at; None: it cannot be used."""
    try:
        return read_checkpoint_snapshot(path)[0].revision
    except SnapshotUnusableError:
        return None
