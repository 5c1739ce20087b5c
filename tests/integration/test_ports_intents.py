"""Two connections to a real server: what one is about to claim the other keeps off."""

from __future__ import annotations

import controlplane as cp
from controlplane.ports.shunning import Intended
from controlplane.ports.watching import HostWatch
from tests.support.servers import unique
from tests.support.waiting import eventually

HOST = "10.0.0.9"
WITHIN = cp.PortRange(20000, 20063)
FAR = {"host": HOST, "bind_check": False}


def lost(plane: cp.Plane) -> float:
    name = "controlplane_ports_races_lost_total"
    return plane.registry.get_sample_value(name) or 0.0


async def test_who_is_told_of_a_claim_under_way_picks_another_block(
    shared_nats_server,
):
    cell = unique("intents").lower()
    async with (
        cp.connect(shared_nats_server.url, cell=cell) as one,
        cp.connect(shared_nats_server.url, cell=cell) as two,
    ):
        await one.init()
        elsewhere = cp.PortRange(21000, 21015)
        await two.ports.claim(8, elsewhere, **FAR)  # from now on it hears
        watch = two.ports.claimer.watch(HOST)
        firsts = [await one.ports.claim(8, WITHIN, **FAR) for _ in range(7)]
        starts = [block.start for block in firsts]
        await eventually(lambda: told_of(watch, starts))
        # Of the log it has read nothing since, and there is one block left to choose.
        assert not any(start in watch.known.ports for start in starts)
        last = await two.ports.claim(8, WITHIN, **FAR)
        assert last.start not in starts
        assert lost(two) == 0


def told_of(watch: HostWatch, ports: list[int]) -> bool:
    return all(isinstance(watch.shunned.get(port), Intended) for port in ports)
