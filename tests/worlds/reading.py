"""Scenarios of routers that are slow, cut off, or robbed of their consumers."""

from __future__ import annotations

from events import Status
from tests.support.stage import (
    PATIENCE_S,
    SNAPSHOT_EVERY,
    Heard,
    Stage,
    StagedRouter,
)
from tests.worlds.holding import (
    append,
    check_no_step_back,
    check_places,
    check_view_stream,
    knowledge,
    level,
    life,
    loaded,
    log_end,
    reached,
)

COMES_BACK_S = 10.0
"""S28's bound: so soon a router has what was appended after a fault."""
QUIET_MAX_S = 2.5
"""A healthy view is never older: a head each second, the rest is slack."""


async def slow_reader(stage: Stage) -> None:
    """S27: each callback takes 200 ms and holds its process; 1000 updates a second.

    The slow router ends as the fast one does; its reader hears of fewer changes,
    never of wrong ones. What waits for it is bounded by the fleet: when nothing new
    comes it hears at most twice of each worker.
    """
    workers = 8
    fast = stage.router("fast")
    slow = stage.router("slow", reader_blocks_s=0.2, live_max=100)
    for process in (stage.projector("p"), fast, slow):
        await process.start()
    async with loaded(stage, per_s=1000, workers=workers) as load:
        await reached(stage, load.acknowledged, fast, slow)
        await stage.lapse(4.0)
    told = len(slow.heard)
    end = await level(stage, fast, slow)
    fleet = await slow.fleet()

    def knows_all() -> bool:
        known = knowledge(slow.heard)
        return known == {
            f"prod/{one.worker_id}": fleet_status(one.worker_id) for one in load.lives
        }

    def fleet_status(worker_id: str) -> str:
        worker = fleet.worker("prod", worker_id)
        return "" if worker is None else worker.status.value

    await stage.until(knows_all)
    assert len(slow.heard) - told <= 2 * workers
    assert len(slow.heard) < end / 10
    assert slow.now.dropped > 0
    assert fast.now.dropped == 0
    await check_places(stage, fast, slow)


async def consumers_are_killed(stage: Stage) -> None:
    """S28: consumers deleted, the server restarted, both while a router is stopped.

    Each time every router goes on by itself within ten seconds, and wherever it
    stood it was right: nothing is missed, nothing applied twice.
    """
    routers = [stage.router("paused"), stage.router("other")]
    for process in (stage.projector("p1"), stage.projector("p2"), *routers):
        await process.start()
    async with loaded(stage, per_s=200) as load:
        await reached(stage, load.acknowledged, *routers)
        await stage.broker.drop_consumers()
        await goes_on(stage, *routers)
        await stage.broker.restart()
        await goes_on(stage, *routers)
        await routers[0].freeze()
        await stage.broker.drop_consumers()
        await stage.broker.restart()
        await goes_on(stage, routers[1])
        await routers[0].thaw()
        await goes_on(stage, *routers)
    await level(stage, *routers)
    await check_places(stage, *routers)
    await check_view_stream(stage)
    for router in routers:
        check_no_step_back(router.places)


async def goes_on(stage: Stage, *routers: StagedRouter) -> None:
    """All have in time what is acknowledged from now on."""
    after = await stage.until(lambda: log_end(stage))
    await reached(stage, after + 20, *routers, within_s=COMES_BACK_S)


async def silence(stage: Stage) -> None:
    """S29: a black hole makes a router stale, and says so; quiet does not.

    Nothing is refused and no connection breaks. It serves on meanwhile, and comes
    back by itself; then the same with broken connections.
    """
    router = stage.router("r")
    for process in (stage.projector("p"), router):
        await process.start()
    await append(stage, [life(stage, f"w{n}").registers() for n in range(3)])
    await level(stage, router)
    for _ in range(30):
        await stage.lapse(0.1)
        assert router.now.stale_for_s < QUIET_MAX_S
    for number, fault in enumerate((router.link.black_hole, router.link.cut)):
        fault()
        end = await append(stage, [life(stage, f"late{number}").registers()])
        await stage.until(lambda: router.now.stale_for_s > 3.0, 3.0 + QUIET_MAX_S)
        assert router.now.revision < end
        assert (await router.fleet()).worker("prod", "w0") is not None
        router.link.heal()
        await reached(stage, end, router, within_s=COMES_BACK_S)
        await stage.until(lambda: router.now.stale_for_s < QUIET_MAX_S, COMES_BACK_S)
    await level(stage, router)


async def resync_is_a_diff(stage: Stage) -> None:
    """S32: cut off while B leaves, C changes and D joins, among 10,000 that stay.

    Told are these three, in this order, and nothing of the others: when the lost
    deltas are fetched, and when the view stream has forgotten them.
    """
    router = stage.router("r")
    for process in (stage.projector("p"), router):
        await process.start()
    many = stage.count(real=10_000, simulated=500)
    lives = {name: life(stage, name) for name in "ABCDE"}
    filler = life(stage, "w0")
    events = [filler.registers()]
    events += [life(stage, f"w{n}").registers() for n in range(1, many)]
    await append(stage, [*events, *(lives[name].registers() for name in "ABC")])
    await level(stage, router, within_s=2 * PATIENCE_S)
    await stage.until(lambda: len(router.heard) == many + 3)
    resyncs = router.now.resyncs
    for names, forgotten in (("BCD", False), ("DAE", True)):
        told = len(router.heard)
        router.link.cut()
        left, changed, joined = (lives[name] for name in names)
        await append(
            stage,
            [
                joined.registers(),
                changed.says(Status.DRAINING),
                left.leaves(),
                *(filler.toggles() for _ in range(2 * SNAPSHOT_EVERY)),
            ],
        )
        if forgotten:
            await forget_the_lost(stage, router)
        router.link.heal()
        await level(stage, router)
        assert router.heard[told:] == [
            Heard("removed", f"prod/{left.worker_id}"),
            Heard("changed", f"prod/{changed.worker_id}", "draining"),
            Heard("added", f"prod/{joined.worker_id}", "ready"),
        ]
        assert router.now.resyncs - resyncs == forgotten


async def forget_the_lost(stage: Stage, router: StagedRouter) -> None:
    """The view stream begins after a snapshot that has more than the router."""
    behind = router.now.revision

    async def there() -> int:
        pointer = await stage.feed.snapshot_pointer()
        is_newer = pointer is not None and pointer.revision > behind
        return pointer.position.view_seq if pointer is not None and is_newer else 0

    covered = await stage.until(there)
    view = await stage.feed.state()
    await stage.broker.trim_view(max(1, view.last_sequence - covered))


async def replicas_agree(stage: Stage) -> None:
    """S37: three routers started at different times, two projectors, one killed.

    For each epoch and revision all digests are equal, and what the replicas say of
    themselves in the end is the same text: a diff of two of them is empty.
    """
    projectors = [stage.projector("p1"), stage.projector("p2")]
    routers = [stage.router(name) for name in ("early", "later", "last")]
    for projector in projectors:
        await projector.start()
    async with loaded(stage, per_s=200) as load:
        for router in routers:
            await router.start()
            await reached(stage, load.acknowledged + 50, router)
        await projectors[0].kill()
        await reached(stage, load.acknowledged + 50, *routers)
        await projectors[0].start()
        await projectors[1].kill()
        await reached(stage, load.acknowledged + 50, *routers)
    await level(stage, *routers)
    digests: dict[tuple[str, int], str] = {}
    for router in routers:
        check_no_step_back(router.places)
        for place in router.places:
            key = (place.epoch, place.revision)
            assert digests.setdefault(key, place.digest) == place.digest
    await check_places(stage, *routers)


async def seam_between_catching_up_and_live(stage: Stage) -> None:
    """S33: projectors go from replay to live under load, with snapshots all the time.

    Each record is folded once and no delta is skipped: the view stream has every
    ordinal once, over all of them. A router is started each time as well: its seam
    is between snapshot, tail and live.
    """
    projectors = [stage.projector("p1"), stage.projector("p2")]
    steady, again = stage.router("steady"), stage.router("again", checkpoint=True)
    for process in (*projectors, steady, again):
        await process.start()
    async with loaded(stage, per_s=stage.count(real=600, simulated=100)) as load:
        for turn in range(stage.count(real=6, simulated=100)):
            projector = projectors[turn % 2]
            await (projector.kill() if turn % 3 else projector.stop())
            await again.kill()
            await projector.start()
            await again.start()
            acknowledged = load.acknowledged
            await again.synced()
            assert again.now.revision >= acknowledged
            await reached(stage, acknowledged + 1, steady, again)
    await level(stage, steady, again)
    await check_places(stage, steady, again)
    await check_view_stream(stage)
    check_no_step_back(steady.places)
