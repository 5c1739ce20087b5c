"""Scenarios of the stage itself: its verbs do in each world what they promise."""

from __future__ import annotations

import asyncio

import pytest

from tests.support.routers import Life
from tests.support.stage import CommandError, Stage
from tests.worlds.holding import life, log_end


async def verbs(stage: Stage) -> None:
    """Killed, frozen, thawed, stopped, started again; what a command raises comes."""
    worker, router = stage.worker("w1"), stage.router("r", checkpoint=True)
    projector = stage.projector("p")
    for process in (projector, router, worker):
        await process.start()
    await stage.until(lambda: [heard.worker for heard in router.heard])
    with pytest.raises(CommandError) as caught:
        await worker.say("set_status", status="lazy")
    assert caught.value.name == "InvalidIdentityError"
    await worker.freeze()
    saying = asyncio.ensure_future(worker.say("drain"))
    await stage.lapse(0.2)
    assert not saying.done()
    await worker.thaw()
    revision = await saying
    await worker.stop()
    await router.synced()
    assert [heard.kind for heard in router.heard] == ["added", "changed", "removed"]
    assert router.heard[1].status == "draining"
    assert {place.epoch for place in router.places} == {router.now.epoch}
    await router.kill()
    with pytest.raises(AssertionError, match="r does not run"):
        await router.fleet()
    await projector.kill()
    await router.start()
    assert router.now.source in ("none", "checkpoint")
    assert not projector.running
    assert revision == 2


async def absent_broker(stage: Stage) -> None:
    """A broker that is away is no answer yet; one that stays away is no answer."""
    await stage.log.append(Life("w", clock=stage.clock).registers())
    await stage.broker.kill()
    asking = asyncio.ensure_future(stage.until(lambda: log_end(stage)))
    await stage.lapse(0.3)
    await stage.broker.start()
    assert await asking == 1
    await stage.broker.freeze()
    with pytest.raises(AssertionError, match="not available"):
        await stage.until(lambda: log_end(stage), within_s=0.1)
    await stage.broker.thaw()
    assert await stage.until(lambda: log_end(stage)) == 1


async def never_comes_about(stage: Stage) -> None:
    """Waits for what is never true."""
    await stage.until(list, within_s=0.1)


async def killed_while_asked(stage: Stage) -> None:
    """Who asks a process that is killed is told."""
    worker = stage.worker("w1")
    await worker.start()
    await worker.freeze()
    saying = asyncio.ensure_future(worker.say("drain"))
    await stage.lapse(0.1)
    await worker.kill()
    with pytest.raises(CommandError, match="Ended: w1 has ended"):
        await saying


async def store_goes_back(stage: Stage) -> None:
    """Rolled back, twice, the log holds what it held when it was marked."""
    one = life(stage, "w1")
    await stage.log.append(one.registers())
    kept = await stage.records()
    await stage.broker.mark()
    for turn in range(2):
        for _ in range(3):
            await stage.log.append(one.toggles())
        assert await log_end(stage) == 4, turn
        await stage.broker.roll_back("log")
        assert await stage.until(lambda: log_end(stage)) == 1
        assert await stage.records() == kept
