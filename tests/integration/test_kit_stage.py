"""The real stage by itself: it fails when it should, and says why."""

import asyncio
import os
import signal

import pytest

from tests.support.real_stage import RealWorld
from tests.support.routers import Life
from tests.support.stage import CommandError


def test_a_process_that_ends_by_itself_fails_the_scenario(capsys):
    async def scenario(stage):
        router = stage.router("r")
        await router.start()
        os.kill(router._process.pid, signal.SIGKILL)
        await stage.until(lambda: not router.running)

    with pytest.raises(AssertionError, match="r ended"):
        RealWorld().run(scenario)
    assert "seed 7" in capsys.readouterr().out


def test_what_never_comes_about_fails_and_names_the_last_answer():
    async def scenario(stage):
        await stage.until(list, within_s=0.1)

    with pytest.raises(AssertionError, match=r"the last answer was \[\]"):
        RealWorld().run(scenario)


def test_an_absent_broker_is_no_answer_yet():
    async def scenario(stage):
        async def end():
            return (await stage.log.state()).last_revision

        await stage.log.append(Life("w").registers())
        await stage.broker.kill()
        asking = asyncio.ensure_future(stage.until(end))
        await stage.lapse(0.3)
        await stage.broker.start()
        assert await asking == 1
        await stage.broker.freeze()
        with pytest.raises(AssertionError, match="not available"):
            await stage.until(end, within_s=0.1)
        await stage.broker.thaw()
        assert await stage.until(end) == 1

    RealWorld().run(scenario, connect_timeout_s=0.2)


def test_verbs_do_what_they_say():
    """Killed, frozen, thawed, stopped, started again; what a command raises comes."""

    async def scenario(stage):
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

    RealWorld().run(scenario)
