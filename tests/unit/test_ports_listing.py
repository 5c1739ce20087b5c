"""The whole table begins with the projector's snapshot where a look does."""

from __future__ import annotations

import pytest

import controlplane as cp
from controlplane import topology
from controlplane.playback import replay_ports
from controlplane.ports import beginning, reading
from projections import (
    FoldState,
    host_ports,
    step,
)
from tests.support.port_cell import END, HOST, OTHER, SETTINGS, STORY, Cell


@pytest.fixture(autouse=True)
def _soon_worth_it(monkeypatch):
    monkeypatch.setattr(beginning, "RECORDS_MIN", 0)
    monkeypatch.setattr(beginning, "BYTES_A_RECORD", 1 << 20)
    monkeypatch.setattr(reading, "LONG", 1)


@pytest.fixture
async def cell():
    made = Cell()
    await made.broker.start()
    await topology.init(made.broker, "default", SETTINGS)
    await made.tell(STORY)
    yield made
    await made.broker.stop()


@pytest.mark.parametrize("host", [None, HOST, OTHER, "nobody"])
@pytest.mark.parametrize("at", [1, 7, END])
async def test_a_listing_begins_with_the_snapshot_too(cell, at, host):
    plain = (await replay_ports(cell.broker, cell.log, host)).ports
    cell.broker.afters.clear()
    await cell.snapshot(at)
    for _ in range(2):
        then = await replay_ports(cell.broker, cell.log, host)
        assert (then.ports, then.revision) == (plain, END)
        assert then.ports.digest == plain.digest
        await cell.purge(at)
    assert set(cell.broker.afters) <= {0, at}
    assert (host == "nobody") == (0 in cell.broker.afters)
    if at < END:
        await cell.purge(at + 2)
        with pytest.raises(cp.HistoryTruncatedError):
            await replay_ports(cell.broker, cell.log, host)
    whole = FoldState()
    for record in STORY:
        whole = step(whole, record).state
    if host is not None:
        assert host_ports(plain, host) == host_ports(whole.ports, host)


async def test_a_listing_begins_again_when_a_purge_overtakes_it(cell):
    async def purging() -> None:
        await cell.snapshot(6)
        await cell.purge(6)

    plain = (await replay_ports(cell.broker, cell.log)).ports
    cell.broker.afters.clear()
    cell.broker.first_batch = purging
    then = await replay_ports(cell.broker, cell.log)
    assert then.ports == plain
    assert cell.broker.afters == [0, 6]
