"""Machines whose process claims a block of ports, with a worker or without one."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from controlplane.beats import Beat
from controlplane.identifiers import new_uuid7
from controlplane.ports.claimer import Claimed, Claimer
from controlplane.topology import Names
from controlplane.worker import WorkerHandle, WorkerSpec
from events import ControlPlaneError, PortOwner, Status
from projections import PortBlock, PortRange, Want

from .hosts import CELL, Host
from .plan import Claim
from .workers import LoopBeats, claimer_of, claims_of

if TYPE_CHECKING:
    from .world import World

NAMESPACE = "ports"
NAMES = Names(CELL)


class ClaimantHost(Host):
    """A machine that claims ports for a while, and gives them back."""

    def __init__(self, world: World, name: str) -> None:
        super().__init__(world, name)
        self.claim: Claim | None = None
        self.handle: WorkerHandle | None = None
        self.held: tuple[str, tuple[PortBlock, ...]] | None = None
        """A life without a worker that beats here, and the ports it believes in."""

    def build(self) -> None:
        self.handle, self.held = None, None

    @property
    def claims(self) -> tuple[str, tuple[PortBlock, ...]] | None:
        """The life that claims here, and the ports that it believes to hold."""
        return (self.held or claims_of(self.handle)) if self.running else None

    def beats_for(self, incarnation: str) -> bool:
        """Whether a life that runs here now beats."""
        claims = self.claims
        return claims is not None and claims[0] == incarnation

    def begin(self, claim: Claim) -> None:
        if not self.alive:
            self.claim, self.wanted = claim, True
            self.start()

    async def main(self) -> None:
        with self.world.waiting(self, "claim"):
            claim = self.claim
            assert claim is not None
            broker = self.broker("claimant")
            await broker.start()
            live = self._work if claim.register else self._hold
            try:
                await broker.wait_connected(30.0)
                await live(claim, broker)
            except ControlPlaneError as error:
                self.say(f"claimant gave up: {type(error).__name__} {error}")
        self.wanted = False
        self.ended()

    async def _work(self, claim: Claim, broker: Any) -> None:
        """Be a worker with these ports for a while."""
        beats: Any = LoopBeats(self)
        handle = self.handle = WorkerHandle(
            WorkerSpec(
                model="ported",
                address="http://10.0.0.8:8000",
                namespace=NAMESPACE,
                worker_id=self.name,
                lease_ttl_s=self._ttl_s,
                status=Status.READY,
            ),
            log=self.log(broker),
            broker=broker,
            beats=beats,
            settings=self.world.settings,
            clock=self.clock,
            by=self.name,
            environ={},
            ports={"sim": want_of(claim)},
            claiming=claimer_of(self, broker),
            host=claim.host,
            bind_check=False,
        )
        await handle.start()
        self.say(f"holds {handle.ports['sim']} as {handle.incarnation}")
        try:
            async with asyncio.timeout(claim.hold_s):
                self.say(f"lost: {await handle.wait_lost()}")
        except TimeoutError:
            await handle.stop()
            self.say("released")

    async def _hold(self, claim: Claim, broker: Any) -> None:
        """Hold these ports for a while without a worker."""
        claimer, life = claimer_of(self, broker), new_uuid7()
        owner = PortOwner(namespace=NAMESPACE, worker_id=self.name, incarnation=life)
        claimed = await claimer.claim(
            [want_of(claim)],
            host=claim.host,
            owner=owner,
            lease_ttl_s=self._ttl_s,
            bind_check=False,
        )
        self.say(f"holds {claimed.blocks[0]} as {life}")
        beats = self._beat(life, claimed)
        await asyncio.sleep(claim.hold_s)
        self.held = None
        beats.drop(self.name)
        await self._release(claimer, claimed)

    async def _release(self, claimer: Claimer, claimed: Claimed) -> None:
        (block,) = claimed.blocks
        await claimer.release(block)
        self.say("released")

    def _beat(self, life: str, claimed: Claimed) -> LoopBeats:
        beats = LoopBeats(self)
        beat = Beat(incarnation=life, log_id=claimed.log_id, revision=claimed.revision)
        self.held = (life, claimed.blocks)
        beats.keep(self.name, NAMES.beat(NAMESPACE, self.name), beat, self._ttl_s)
        return beats

    @property
    def _ttl_s(self) -> float:
        return 5.0 * self.world.plan.pace.factor


def want_of(claim: Claim) -> Want:
    """The block that is wanted: there is room for it once; a lone port has two."""
    last = claim.port + max(claim.size, 2) - 1
    return Want("sim", claim.size, PortRange(claim.port, last))
