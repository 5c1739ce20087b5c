"""Scenarios of processes that die or stop between any two steps."""

from __future__ import annotations

from controlplane.eventlog import Pending
from controlplane.identifiers import new_uuid7
from events import (
    PortClaimed,
    PortOwner,
    PortReleased,
    Status,
    WorkerExpired,
    WorkerRegistered,
    WorkerStatusChanged,
    worker_subject,
)
from projections import Held, Resting
from tests.support.routers import Life
from tests.support.stage import TTL_S, Stage, StagedRouter
from tests.worlds.holding import (
    append,
    check_places,
    check_view_stream,
    level,
    life,
    loaded,
    reached,
)

HOST, BLOCK = "host-1", range(20000, 20008)
CLAIM_TTL_S = 3600.0
STRANGER = "a stranger"
"""Who appends what no client of ours would: no world takes it for a client's fault."""


async def killed_between_applying_and_keeping(stage: Stage) -> None:
    """S42: SIGKILL at random points of projectors and of a router with a checkpoint.

    Whoever starts again ends where a full replay does: nothing is lost, nothing
    applied twice. Applied twice a status would not show in a digest; the counts of
    anomalies, of which the load makes some, do.
    """
    projectors = [stage.projector("p1"), stage.projector("p2")]
    kept = stage.router("kept", checkpoint=True)
    steady = stage.router("steady")
    for process in (*projectors, kept, steady):
        await process.start()
    async with loaded(stage, per_s=stage.count(real=200, simulated=60)) as load:
        await reached(stage, load.acknowledged, kept, steady)
        for turn in range(stage.count(real=20, simulated=200)):
            victim = (kept, *projectors)[turn % 3]
            await stage.lapse(stage.chance.uniform(0.0, 0.4))
            await victim.kill()
            await victim.start()
            if victim is kept:
                await kept.synced()
        await reached(stage, load.acknowledged, kept, steady)
    await level(stage, kept, steady)
    await check_places(stage, kept, steady)
    await check_view_stream(stage)
    assert "checkpoint" in kept.sources
    assert "checkpoint" not in steady.sources


async def zombie_is_fenced(stage: Stage) -> None:
    """S13: a worker is stopped beyond its lease; another takes its ports meanwhile.

    Thawed it beats, updates and releases as the life that ended: of that nothing has
    an effect, and its client lives on as a new incarnation. Claims and releases are
    planted in the log; that a returning client claims its ports again, or ends when
    another has them, waits for clients that claim ports.
    """
    router = stage.router("r")
    for process in (stage.projector("p"), router):
        await process.start()
    worker, other = stage.worker("w1"), life(stage, "x")
    await worker.start()
    old = worker.incarnation
    claim, other_claim = new_uuid7(), new_uuid7()
    await stage.log.append_all(
        [
            Pending(claimed(stage, "w1", old, claim, port, TTL_S), expected=0)
            for port in BLOCK
        ]
    )
    await stage.until(lambda: heard_last(router, "prod/w1") == "added")
    await worker.freeze()
    await stage.until(lambda: heard_last(router, "prod/w1") == "removed", TTL_S + 4)
    ports = (await stage.replay()).ports
    for port in BLOCK:
        found = ports.ports[HOST, port]
        assert isinstance(found, Resting)
        assert (found.claim_id, found.cause) == (claim, "expired")
    await append(stage, [other.registers(lease_ttl_s=CLAIM_TTL_S)])
    await stage.log.append_all(
        [
            Pending(
                claimed(stage, "x", other.incarnation, other_claim, port, CLAIM_TTL_S),
                expected=ports.revisions[HOST, port],
            )
            for port in BLOCK
        ]
    )
    before = (await stage.replay()).ports.digest

    await worker.thaw()
    await worker.say("update", labels={"back": "yes"})
    await append(stage, [released(stage, claim, port) for port in BLOCK])
    planted = late_word(stage, old)
    await append(stage, [planted])
    await stage.until(lambda: worker.incarnation != old)
    await level(stage, router)
    await check_fenced(stage, router, worker.incarnation, old, planted)
    assert (await stage.replay()).ports.digest == before
    for port in BLOCK:
        held = (await stage.replay()).ports.ports[HOST, port]
        assert isinstance(held, Held)
        assert held.owner.incarnation == other.incarnation
    assert worker.lost is None


async def check_fenced(
    stage: Stage,
    router: StagedRouter,
    new: str,
    old: str,
    planted: WorkerStatusChanged,
) -> None:
    """The old life said nothing after its end; the new one is there, as it wished."""
    fleet = await router.fleet()
    worker = fleet.worker("prod", "w1")
    assert worker is not None
    assert worker.incarnation == new
    assert worker.routable
    assert worker.labels == {"back": "yes"}
    assert fleet.worker("prod", "x") is not None
    subject = worker_subject("prod", "w1")
    events = [r.event for r in await stage.records() if r.subject == subject]
    [ends] = [n for n, e in enumerate(events) if isinstance(e, WorkerExpired)]
    late = [e for e in events[ends + 1 :] if getattr(e, "incarnation", "") == old]
    assert [e.event_id for e in late] == [planted.event_id]
    lives = [e.incarnation for e in events if isinstance(e, WorkerRegistered)]
    assert lives == [old, new]


def heard_last(router: StagedRouter, worker: str) -> str:
    """The kind of the last change that the router's reader got of this worker."""
    kinds = [heard.kind for heard in router.heard if heard.worker == worker]
    return kinds[-1] if kinds else ""


# ---- events that no client can append yet --------------------------------------------
def claimed(
    stage: Stage, worker_id: str, incarnation: str, claim: str, port: int, ttl_s: float
) -> PortClaimed:
    return PortClaimed(
        event_id=new_uuid7(),
        at=stage.clock.now(),
        by="scenario",
        host=HOST,
        port=port,
        claim_id=claim,
        block_start=BLOCK.start,
        block_size=len(BLOCK),
        owner=PortOwner(namespace="prod", worker_id=worker_id, incarnation=incarnation),
        reason="nixl_side_channel",
        lease_ttl_s=ttl_s,
    )


def released(stage: Stage, claim: str, port: int) -> PortReleased:
    return PortReleased(
        event_id=new_uuid7(),
        at=stage.clock.now(),
        by=STRANGER,
        host=HOST,
        port=port,
        claim_id=claim,
        cause="released",
    )


def late_word(stage: Stage, incarnation: str) -> WorkerStatusChanged:
    """What the life that ended would have said."""
    ended = Life("w1", clock=stage.clock)
    ended.incarnation = incarnation
    return ended.says(Status.DRAINING)
