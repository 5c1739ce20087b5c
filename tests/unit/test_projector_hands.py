"""What hands are told to go by, and decisions that grew old before they were due."""

import asyncio
from contextlib import asynccontextmanager

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from controlplane.broker.memory import MemoryBroker, MemoryServer
from controlplane.clock import SystemClock
from controlplane.eventlog import EventLog
from controlplane.projector.core import Limits
from controlplane.projector.effects import Expire, Publish, TakeSnapshot
from controlplane.projector.hands import DECISION_S_MAX, Hands, RebuildError, Tools
from controlplane.projector.service import ProjectorService
from controlplane.settings import Settings
from controlplane.telemetry import ProjectorMetrics
from controlplane.topology import init
from controlplane.viewfeed import ViewFeed
from events import PortReleased, WorkerExpired
from projections import Guard, Life, take
from tests.support.fleet_builder import (
    NAMESPACE,
    claimed,
    given,
    incarnation,
    registered,
    released,
)
from tests.support.projecting import ViewList, settled
from tests.support.waiting import eventually

EXPIRE = Expire(
    Life(
        namespace=NAMESPACE,
        worker_id="w1",
        incarnation=incarnation("w1"),
        lease_ttl_s=10.0,
        registered=1,
        last=1,
    ),
    silent_for_s=12.0,
)


class StoppedClock(SystemClock):
    """A clock that stands until the test lets time pass."""

    def __init__(self):
        self.s = 100.0

    def monotonic(self):
        return self.s


class Turns:
    """A leader's hands, and the log that they write to."""

    def __init__(self, hands, log, clock, core):
        self.hands, self.log, self.clock, self.core = hands, log, clock, core
        self.tools = hands._tools

    async def hold(self):
        """Take every turn in which something could be expired."""
        while not self.hands._expiries.locked():
            await self.hands._expiries.acquire()

    async def decided(self):
        """Decide an expiry, and return when it waits for its turn."""
        self.hands.do([EXPIRE])
        await eventually(lambda: self.hands._expiries._waiters)

    async def continued(self):
        """Let it have its turn, and return when it is over."""
        self.hands._expiries.release()
        await eventually(lambda: not self.hands._expiring)

    async def go_on(self, story):
        """Append what ``story`` has more than the log, and fold it."""
        known = self.core.fold.revision
        for record in story[known:]:
            await self.log.append(record.event)
        self.core.records([r async for r in self.log.read(after=known)], 100.0)

    async def expiries(self):
        events = [record.event async for record in self.log.read()]
        return [event for event in events if isinstance(event, WorkerExpired)]

    async def released(self):
        events = [record.event async for record in self.log.read()]
        return [event.port for event in events if isinstance(event, PortReleased)]


@asynccontextmanager
async def turns(*steps):
    broker, settings, clock = MemoryBroker(MemoryServer()), Settings(), StoppedClock()
    await broker.start()
    await init(broker, "c", settings)
    log = EventLog(broker, "c", settings)
    records = given(*(steps or [registered("w1")]))
    for record in records:
        await log.append(record.event)
    core = settled(list(records), ViewList()).core

    async def resign(reason):
        raise AssertionError(reason)

    tools = Tools(
        broker=broker,
        log=log,
        feed=ViewFeed(broker, "c"),
        clock=clock,
        metrics=ProjectorMetrics(CollectorRegistry()),
        name="a",
        resign=resign,
        log_fill=lambda: 0.0,
    )
    async with asyncio.TaskGroup() as tasks:
        yield Turns(Hands(core, tools, tasks), log, clock, core)
    await broker.stop()


@pytest.mark.parametrize("namespace", ["team.a", "", "x" * 500])
async def test_of_a_life_that_no_worker_can_have_the_ports_are_let_go(namespace):
    """A stranger can append such a claim; it must not end those who lead."""
    claim = claimed("w9", 20000, 2, namespace=namespace)
    async with turns(claim) as made:
        (life,) = made.core.fold.lives.values()
        made.hands.do([Expire(life, silent_for_s=12.0)])
        await eventually(made.released)
        assert await made.released() == [20000, 20001]
        assert not await made.expiries()


@pytest.mark.parametrize(
    ("stopped_s", "expired"),
    [(0.0, True), (DECISION_S_MAX - 0.1, True), (DECISION_S_MAX, False), (60.0, False)],
)
async def test_an_expiry_is_not_appended_when_its_decision_grew_old(stopped_s, expired):
    """Decided, then the process stood still: who came back meanwhile it cannot know."""
    async with turns() as made:
        await made.hold()
        await made.decided()
        made.clock.s += stopped_s
        await made.continued()
        assert bool(await made.expiries()) is expired


@pytest.mark.parametrize("worker", ["w9", "w1"], ids=["ports only", "superseded"])
async def test_what_another_claimed_since_the_decision_is_not_released(worker):
    """It was let go and claimed again while the decision waited for its turn."""
    story = given(claimed(worker, 20000), registered("w1", life=2))
    async with turns(claimed(worker, 20000), registered("w1", life=2)) as made:
        life = made.core.fold.lives[NAMESPACE, worker, incarnation(worker)]
        await made.hold()
        made.hands.do([Expire(life, silent_for_s=12.0)])
        await eventually(lambda: made.hands._expiries._waiters)
        await made.go_on(story.then(released(20000), claimed("other", 20000)))
        await made.continued()
        assert await made.released() == [20000]  # by its holder
        assert not await made.expiries()


async def test_a_decision_that_grew_old_may_be_taken_anew():
    async with turns() as made:
        await made.hold()
        await made.decided()
        made.clock.s += 60.0
        await made.continued()
        made.hands.do([EXPIRE])
        await eventually(made.expiries)


@pytest.mark.parametrize("lost", [0, 3], ids=["sound", "denied"])
async def test_a_newer_snapshot_of_lost_history_has_all_begin_anew(lost):
    """It is not replaced in its epoch: routers would load it again and again."""
    async with turns(registered("w1"), registered("w2")) as made:
        place, now = made.core.position, made.tools.clock.now()
        log_id = (await made.log.state()).log_id
        epoch = msgspec.structs.replace(place.epoch, log_id=log_id)
        place = msgspec.structs.replace(place, epoch=epoch)
        snapshot = take(made.core.fold, place)
        newer = msgspec.structs.replace(place, ordinal=place.ordinal + lost)
        theirs = msgspec.structs.replace(
            snapshot, position=newer, revision=snapshot.revision + lost
        )
        assert await made.tools.feed.write_snapshot(theirs, now)
        made.hands.do([TakeSnapshot(snapshot)])
        refused = made.tools.metrics.snapshots_failed._value.get
        if lost:
            with pytest.raises(RebuildError, match="lost history: the log ends at 2"):
                await made.hands.until_rebuild()
        else:
            await eventually(lambda: len(made.hands._tasks._tasks) == 0)
            assert not made.hands._rebuild.done()
        assert not refused()


async def test_who_leads_no_more_expires_nobody():
    async with turns() as made:
        await made.hold()
        await made.decided()
        made.core.lost()
        await made.continued()
        assert not await made.expiries()


async def test_each_number_of_the_settings_reaches_who_goes_by_it():
    settings = Settings(
        publish_batch_max=7,
        snapshot_every=8,
        snapshot_records=81,
        view_max_bytes=9 << 20,
        view_max_age_s=10.0,
        head_every_s=1.1,
        canary_every_s=0.12,
        canary_lost_s=13.0,
        guard_share=0.14,
        guard_min=15,
        guard_hold_s=16.0,
        blind_gap_s=1.7,
        lease_s=1.8,
    )
    broker = MemoryBroker(MemoryServer())
    await broker.start()
    await init(broker, "c", settings)
    projector = ProjectorService(
        broker=broker,
        log=EventLog(broker, "c", settings),
        feed=ViewFeed(broker, "c"),
        settings=settings,
        clock=SystemClock(),
        name="a",
    )
    async with projector:
        core = await eventually(lambda: projector._core)
    assert core._limits == Limits(
        publish_batch_max=7,
        snapshot_every=8,
        snapshot_records=81,
        snapshot_bytes=9 << 19,
        snapshot_age_s=5.0,
        head_every_s=1.1,
        judge_every_s=0.12,
        canary_lost_s=13.0,
    )
    fields = msgspec.structs.asdict(Limits())
    assert all(getattr(core._limits, field) != fields[field] for field in fields)
    assert core.book._guard == Guard(share=0.14, least=15, hold_s=16.0, blind_gap_s=1.7)
    assert projector._lease._ttl_s == 1.8
    await broker.stop()


@pytest.mark.parametrize("lost", ["before", "meanwhile", None])
async def test_what_was_decided_before_contact_was_lost_is_not_published(lost):
    """The view stream may have been cut and filled anew: the fence would not tell."""
    async with turns() as at:
        publish = Publish((b"delta",), 0)
        if lost == "meanwhile":
            at.core.line._in_flight = publish
            at.core.contact_lost()
        elif lost:
            at.tools.broker.set_reachable(reachable=False)
        refused = at.tools.metrics.publishes_refused.labels(reason="refused")
        at.hands.do([publish])
        if lost is None:
            await eventually(at.tools.metrics.deltas_published._value.get)
            return
        await eventually(refused._value.get)
        at.tools.broker.set_reachable(reachable=True)
        await eventually(lambda: not at.core.line._footing.looking)
        assert (await at.tools.feed.state()).last_sequence == 0
        assert refused._value.get() == 1
