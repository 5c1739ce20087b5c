"""Routers as processes: killed, and started from what they left."""

import time

import pytest

from controlplane.router.checkpoint import read_checkpoint_snapshot
from controlplane.settings import Settings
from projections import SnapshotUnusableError
from tests.support.cells import projected_cell
from tests.support.routers import (
    Life,
    append_all,
    check_against,
    digests_of,
    router_process,
)
from tests.support.waiting import eventually

NUMBERS = {"checkpoint_every_s": 0.5, "snapshot_every": 200, "connect_timeout_s": 1.0}
CATCH_UP_S = 5.0
PATIENCE_S = 20.0
"""For what has no bound of its own: processes start slowly on a busy machine."""


@pytest.fixture
async def own(nats_server, broker_factory):
    """A server that may be broken, and a cell on it."""
    server = await nats_server()
    broker = await broker_factory(server.url, connect_timeout_s=1.0)
    async with projected_cell(broker, **NUMBERS) as cell:
        yield server, cell


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
