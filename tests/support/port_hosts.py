"""Claimants of one host over a broker in memory, each with a client of its own."""

from __future__ import annotations

from random import Random

import controlplane as cp
from controlplane import topology
from controlplane.broker.memory import MemoryBroker, MemoryServer
from controlplane.clock import SystemClock
from controlplane.eventlog import EventLog
from controlplane.identifiers import new_uuid7
from controlplane.ports.claimer import Claimer
from controlplane.telemetry import PortMetrics
from events import PortOwner
from projections import PortBlock, Want
from tests.support.lossy import LossyBroker

HOST = "10.0.0.9"
SMALL = cp.PortRange(20000, 20399)
NO_REST = cp.Settings(port_cooldown_s=0)


class Host:
    """Claimants of one cell; each has a log and a client of its own."""

    def __init__(self) -> None:
        self.server = MemoryServer()
        self.brokers: list[LossyBroker] = []

    async def claimer(
        self,
        settings: cp.Settings = NO_REST,
        seed: int = 1,
        metrics: PortMetrics | None = None,
    ) -> Claimer:
        broker = LossyBroker(MemoryBroker(self.server, connect_timeout_s=1.0))
        await broker.start()
        self.brokers.append(broker)
        await topology.init(broker, "default", settings)
        log = EventLog(broker, "default", settings)
        return Claimer(
            log=log,
            broker=broker,
            clock=SystemClock(),
            settings=settings,
            by="test",
            metrics=metrics,
            chance=Random(seed),
        )


def owner(worker_id: str = "w1") -> PortOwner:
    return PortOwner(namespace="prod", worker_id=worker_id, incarnation=new_uuid7())


async def claim(claimer: Claimer, *wants: Want, **options) -> tuple[PortBlock, ...]:
    options = {"owner": owner(), "lease_ttl_s": 30.0, "bind_check": False, **options}
    return (await claimer.claim(wants, host=HOST, **options)).blocks
