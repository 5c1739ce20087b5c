"""The simulated stage by itself: it does what the real one does, and fails as it does.

What both stages promise is in `tests.worlds.staging`.
"""

import asyncio

import pytest

from controlplane.eventlog import Pending
from events import WorkerExpired
from tests.simulation.outcome import Violation
from tests.simulation.stage import END_S, SimWorld
from tests.support.routers import Life
from tests.support.stage import TTL_S, CommandError
from tests.worlds.holding import life, loaded, log_end, reached


def play(scenario, **settings):
    world = SimWorld()
    world.run(scenario, **settings)
    return world


async def started(stage, *processes):
    for process in processes:
        await process.start()


# ---- failing -----------------------------------------------------------------------
def test_what_a_scenario_raises_comes_out_and_is_shown(capsys):
    async def scenario(stage):
        await started(stage, stage.projector("p"))
        await stage.lapse(1.0)
        raise CommandError("AsItIs", "nobody knows why")

    with pytest.raises(CommandError, match="AsItIs: nobody knows why"):
        play(scenario)
    shown = capsys.readouterr().out
    assert "seed 7" in shown
    assert "leads" in shown


def test_a_scenario_that_never_ends_fails():
    async def scenario(stage):
        del stage
        await asyncio.Event().wait()

    with pytest.raises(AssertionError, match=f"did not end within {END_S}"):
        play(scenario)


def test_a_process_that_ends_by_itself_fails_the_scenario():
    async def scenario(stage):
        router = stage.router("r")
        await router.start()
        router.host.process.kill()
        await stage.until(lambda: not router.running)

    with pytest.raises(AssertionError, match="r ended"):
        play(scenario)


def test_what_must_always_hold_is_looked_at_while_a_scenario_plays():
    """A worker that beats is expired by somebody: nothing here asks for it."""

    async def scenario(stage):
        worker = stage.worker("w1")
        await started(stage, stage.projector("p"), worker)
        told = {name: getattr(Life("w1"), name) for name in ("namespace", "worker_id")}
        event = WorkerExpired(
            **told,
            event_id="1",
            at=stage.clock.now(),
            by="nobody",
            incarnation=worker.incarnation,
            silent_for_s=9.0,
            observed_by="nobody",
        )
        await stage.log.append(event)
        await stage.lapse(1.0)

    with pytest.raises(Violation, match="expired_alive"):
        play(scenario)


# ---- doing what it says ------------------------------------------------------------
@pytest.mark.parametrize("breaking", [False, True])
def test_a_lost_answer_is_of_what_was_stored(breaking):
    """It costs time, or a connection; with the count it is over."""

    async def scenario(stage):
        worker, loop = stage.worker("w1"), asyncio.get_running_loop()
        await worker.start()
        connection = worker.host.brokers[0]
        changes = []
        connection.on_connection(changes.append)
        worker.link.lose_answers(1, breaking=breaking)
        since = loop.time()
        assert await worker.say("drain") == 2
        took_s = loop.time() - since
        assert (took_s >= stage.settings.connect_timeout_s) is not breaking
        assert changes == [False, True] * breaking
        assert worker.link.answers_lost == 1
        assert await worker.say("ready") == 3
        assert len(await stage.records()) == 3

    play(scenario)


def test_a_black_hole_refuses_nothing_and_lets_pass_what_was_sent():
    async def scenario(stage):
        worker = stage.worker("w1")
        await worker.start()
        worker.link.black_hole()
        saying = asyncio.ensure_future(worker.say("drain"))
        await stage.lapse(0.5)
        assert worker.host.brokers[0].connected
        assert await log_end(stage) == 1
        worker.link.heal()
        assert await saying == 2

    play(scenario)


def test_a_cut_is_seen_at_once_and_lasts():
    async def scenario(stage):
        worker = stage.worker("w1")
        await started(stage, stage.projector("p"), worker)
        worker.link.cut()
        await stage.lapse(0.01)
        assert not worker.host.brokers[0].connected
        await stage.until(lambda: log_end_is(stage, 2), TTL_S + 4)
        assert not worker.host.brokers[0].connected
        worker.link.heal()
        await stage.until(lambda: worker.notices)

    async def log_end_is(stage, revision):
        return await log_end(stage) == revision

    play(scenario)


def test_a_reader_that_blocks_holds_up_its_whole_process():
    async def scenario(stage):
        router = stage.router("r", reader_blocks_s=1.0)
        await started(stage, stage.projector("p"), router)
        lives = [life(stage, f"w{n}") for n in range(3)]
        await stage.log.append_all([Pending(one.registers()) for one in lives])
        await stage.until(lambda: len(router.heard) == 1)
        for count in (1, 2, 3):
            fleet = asyncio.ensure_future(router.fleet())
            await stage.lapse(0.9)
            assert len(router.heard) == count
            assert not fleet.done()
            await stage.lapse(0.1)
        assert len((await router.fleet()).models["llama"].worker_sets) == 1
        await stage.log.append(lives[0].leaves())
        await stage.until(lambda: len(router.heard) == len(lives) + 1)
        await router.freeze()
        await stage.lapse(0.5)
        await router.thaw()
        assert not router.host.running
        await stage.lapse(0.2)
        await router.freeze()
        await stage.lapse(1.0)
        assert not router.host.running
        await router.thaw()
        assert router.host.running

    play(scenario)


def test_a_play_goes_the_same_way_each_time():
    async def scenario(stage):
        projector, router = stage.projector("p"), stage.router("r", checkpoint=True)
        await started(stage, projector, router, stage.worker("w1"))
        async with loaded(stage, per_s=100) as load:
            await stage.lapse(stage.chance.uniform(0.0, 1.0))
            await projector.kill()
            await projector.start()
            await stage.broker.restart()
            await reached(stage, load.acknowledged + 20, router)

    assert play(scenario).trace_digest == play(scenario).trace_digest
