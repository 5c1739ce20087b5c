"""Scenarios of lost answers and of logs that are lost or made anew."""

from __future__ import annotations

import asyncio

from events import Revision, Status, WorkerStatusChanged
from tests.support.stage import CommandError, Stage, StagedRouter, StagedWorker
from tests.worlds.holding import (
    append,
    check_no_step_back,
    check_places,
    digests_of,
    level,
    life,
    log_end,
)


async def lost_answers_are_no_second_events(stage: Stage) -> None:
    """S22: acknowledgements are lost, with and without their connection.

    Entering takes as long as an answer may: less than the shortest lease, so nobody
    expires unknowing. Then nobody answers for five seconds, for the log is gone: a
    command waits, and succeeds with the log that is made anew. (A worker that is only
    about to enter is told instead: that is the contract of entering.) Other errors
    surface.
    """
    router, worker = stage.router("r"), stage.worker("w1", status="starting")
    for process in (stage.projector("p"), router):
        await process.start()
    worker.link.lose_answers(1)
    await worker.start()
    assert worker.link.answers_lost == 1
    assert await kinds_of(stage) == ["WorkerRegistered"]
    for count, verb in ((2, "ready"), (3, "drain"), (4, "ready")):
        worker.link.lose_answers(1, breaking=True)
        assert await worker.say(verb) == count
        assert worker.link.answers_lost == count
    await level(stage, router)
    assert worker.notices == []
    assert await kinds_of(stage) == ["WorkerRegistered", *3 * ["WorkerStatusChanged"]]
    await no_log_for_a_while(stage, worker, router)
    twin = stage.worker("twin", worker_id="w1")
    await twin.start()
    assert await refusal(worker, "ready") == "IncarnationSupersededError"
    await stage.until(lambda: worker.lost == "IncarnationSupersededError")


async def no_log_for_a_while(
    stage: Stage, worker: StagedWorker, router: StagedRouter
) -> None:
    """Five seconds without anybody who answers; then it is said, once."""
    await stage.broker.delete_log()
    saying = asyncio.ensure_future(worker.say("drain"))
    await stage.lapse(5.0)
    assert not saying.done()
    await stage.broker.create_log()
    await saying
    await level(stage, router)
    found = (await router.fleet()).worker("prod", "w1")
    assert found is not None
    assert found.status is Status.DRAINING
    assert (await kinds_of(stage)).count("WorkerRegistered") == 1


async def kinds_of(stage: Stage) -> list[str]:
    return [type(record.event).__name__ for record in await stage.records()]


async def refusal(worker: StagedWorker, verb: str) -> str:
    """The class of the error that a command raises."""
    try:
        await worker.say(verb)
    except CommandError as error:
        return error.name
    return ""


async def log_made_anew(stage: Stage) -> None:
    """S26: 5000 events, then another log of ten; a lower revision is no step back.

    One router lives through it, one was away and comes back with its checkpoint.
    """
    projector = stage.projector("p")
    seen, kept = stage.router("seen"), stage.router("kept", checkpoint=True)
    for process in (projector, seen, kept):
        await process.start()
    lives = [life(stage, f"old{n}") for n in range(50)]
    events = [one.registers() for one in lives]
    statuses = stage.count(real=4950, simulated=450)
    events += [lives[n % 50].toggles() for n in range(statuses)]
    await append(stage, events)
    end = await level(stage, seen, kept)
    assert end == 50 + statuses
    epoch, told = seen.now.epoch, len(seen.heard)
    await kept.stop()

    await stage.broker.delete_log()
    await stage.broker.create_log()
    await append(stage, [life(stage, f"new{n}").registers() for n in range(10)])
    await kept.start()
    assert kept.now.revision in (end, 10)
    for router in (seen, kept):
        await router.synced()
    assert await level(stage, seen, kept) == 10
    await check_only_the_new(stage, epoch, seen, kept)
    kinds = [heard.kind for heard in seen.heard[told:]]
    assert kinds == ["removed"] * 50 + ["added"] * 10
    await projector.kill()
    await projector.start()
    last = await append(stage, [life(stage, "late").registers()])
    await stage.until(lambda: seen.now.revision == last)
    await level(stage, seen, kept)


async def check_only_the_new(
    stage: Stage, old_epoch: str | None, *routers: StagedRouter
) -> None:
    """In every later epoch a router showed the new log, and never again the old."""
    digests = await digests_of(stage)
    for router in routers:
        epochs = [place.epoch for place in router.places]
        [*before] = [n for n, epoch in enumerate(epochs) if epoch == old_epoch]
        for place in router.places[before[-1] + 1 :]:
            assert place.digest == digests[place.revision], (router.name, place)
        check_no_step_back(router.places)


async def rolled_back_store(stage: Stage) -> None:
    """A store that goes back gives revisions again: never a mixture, and it is named.

    Everything in the copy agrees; only who saw more knows that history was lost.
    """
    seen, late = stage.router("seen"), stage.router("late")
    for process in (stage.projector("p"), seen):
        await process.start()
    lives = [life(stage, f"w{n}") for n in range(5)]
    await append(stage, [one.registers() for one in lives])
    await level(stage, seen)
    await stage.broker.mark()
    lost: Revision = await append(stage, [one.toggles() for one in lives])
    await level(stage, seen)
    epoch = seen.now.epoch
    await stage.broker.roll_back()
    await stage.until(lambda: log_end(stage))
    again = await append(stage, [lives[0].leaves()])
    assert again < lost
    await seen.synced()
    await late.start()
    await level(stage, seen, late)
    assert seen.now.epoch != epoch
    await check_places(stage, late)
    events = [record.event for record in await stage.records()]
    assert not any(isinstance(event, WorkerStatusChanged) for event in events)
