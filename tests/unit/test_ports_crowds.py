"""Where others claim at the same time it is asked first whether a batch can stand."""

from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry

from controlplane.telemetry import PortMetrics
from projections import Want
from tests.support.port_hosts import SMALL, Host, claim

CELLS = len(SMALL) // 8


@pytest.fixture
async def host():
    made = Host()
    yield made
    for broker in made.brokers:
        await broker.stop()


def refusals(registry: CollectorRegistry) -> float:
    return registry.get_sample_value("controlplane_ports_races_lost_total") or 0.0


async def test_after_one_lost_race_no_batch_is_sent_that_is_bound_to_be_refused(host):
    registry = CollectorRegistry()
    one = await host.claimer(seed=7)
    # Whoever hears what others are about to claim would not lose that race.
    deaf = ("cp.default.intent.>",)
    two = await host.claimer(seed=7, metrics=PortMetrics(registry), denied=deaf)
    blocks = [await claim(two, Want("", 8, SMALL))]  # two knows the host from now on
    others = [await claim(one, Want("", 8, SMALL)) for _ in range(CELLS // 2)]
    mine = CELLS - len(others) - len(blocks)
    blocks += [await claim(two, Want("", 8, SMALL)) for _ in range(mine)]
    # Half of what two knows as free was taken: it lost once, and asked from then on.
    assert refusals(registry) == 1
    ports = [port for (block,) in [*blocks, *others] for port in block]
    assert sorted(ports) == list(range(SMALL.first, SMALL.last + 1))


async def test_a_lone_port_is_tried_without_a_question(host):
    registry = CollectorRegistry()
    one = await host.claimer(seed=7)
    two = await host.claimer(seed=7, metrics=PortMetrics(registry))
    await claim(two, Want("", 8, SMALL))
    before = [await claim(one, Want("", 8, SMALL)) for _ in range(CELLS // 2)]
    await claim(two, Want("", 8, SMALL))
    asked = host.brokers[1].lasts
    after = [await claim(two, Want("", 1, SMALL)) for _ in range(20)]
    # Looks ask, too, but seldom; a question before each would be as many as claims.
    assert host.brokers[1].lasts - asked <= 20 // 2
    ports = [port for (block,) in [*before, *after] for port in block]
    assert len(ports) == len(set(ports))
