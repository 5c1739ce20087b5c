"""The projector as a whole over a broker in memory: terms, lease, beats, heads."""

import asyncio
from contextlib import asynccontextmanager

import msgspec
import pytest

from controlplane.beats import Beat
from controlplane.broker.memory import MemoryBroker, MemoryServer
from controlplane.clock import SystemClock
from controlplane.eventlog import EventLog
from controlplane.projector import service as service_module
from controlplane.projector.effects import Rebuild
from controlplane.projector.leadership import holder
from controlplane.projector.service import ProjectorService
from controlplane.settings import Settings
from controlplane.topology import init
from controlplane.viewfeed import ViewFeed, decode_head
from projections import FOLD_VERSION, encode_view
from tests.support.fleet_builder import claimed, given, incarnation, registered
from tests.support.waiting import eventually


class Plane:
    """One cell in memory, and projectors of it."""

    def __init__(self, server, **settings):
        self.server = server
        self.settings = Settings(**settings)
        self.broker = MemoryBroker(server)
        self.log = EventLog(self.broker, "c", self.settings)
        self.feed = ViewFeed(self.broker, "c")
        self.clock = SystemClock()

    def projector(self, name="a"):
        return ProjectorService(
            broker=self.broker,
            log=self.log,
            feed=self.feed,
            settings=self.settings,
            clock=self.clock,
            name=name,
        )

    async def append(self, *steps):
        for record in given(*steps):
            await self.log.append(record.event)


@pytest.fixture
async def plane():
    made = Plane(MemoryServer(), lease_s=8.0, log_max_bytes=100_000)
    await made.broker.start()
    await init(made.broker, "c", made.settings)
    return made


@asynccontextmanager
async def led(plane):
    async with plane.projector() as projector:
        await eventually(lambda: projector.leading)
        await eventually(lambda: projector.health.status == "ok")
        yield projector


async def test_a_fresh_cell_is_led_at_once(plane):
    """Not after the pause in which others ask for the lease: that is 1 s here."""
    began = asyncio.get_running_loop().time()
    async with led(plane):
        assert asyncio.get_running_loop().time() - began < 0.9


async def test_heads_say_how_full_the_log_is(plane):
    heads = await plane.feed.subscribe_heads()
    async with led(plane):
        await plane.append(registered("w1"), claimed("w1", 20000, 8))
        async with asyncio.timeout(5):
            async for message in heads:
                head = decode_head(message.payload)
                if head.log_fill > 0:
                    break
        state = await plane.log.state()
        assert head.log_fill == state.bytes / 100_000
        assert head.revision == 9
    await heads.close()


async def test_behind_a_newer_version_it_does_not_lead_and_says_why(plane):
    async with led(plane):
        entry = await eventually(lambda: plane.feed.at(1))
    epoch = msgspec.structs.replace(
        entry.message.epoch, count=2, fold_version=FOLD_VERSION + 1
    )
    newer = msgspec.structs.replace(entry.message, epoch=epoch)
    await plane.feed.publish([encode_view(newer)], after=1)
    async with plane.projector("b") as projector:
        await eventually(lambda: projector.health.reasons)
        await eventually(lambda: "newer version" in projector.health.reasons[0])
        assert projector.health.status == "stuck"
        assert await holder(plane.broker, plane.log.names) is None


async def test_a_beat_counts_while_there_is_no_core(plane):
    """Else a long recovery would look like the silence of everybody."""
    projector = plane.projector()
    beat = Beat(incarnation=incarnation("w1"), log_id="log-1", revision=1)
    projector._beat("prod", "w1", beat)
    assert ("prod", "w1", incarnation("w1")) in projector._book._pulses


async def test_who_has_nothing_to_lead_with_gives_the_lease_back(plane, monkeypatch):
    monkeypatch.setattr(service_module, "COLD_S_MAX", 0.1)
    plane.settings = msgspec.structs.replace(plane.settings, lease_s=1.0)
    names = plane.log.names
    async with led(plane) as projector:
        await plane.append(registered("w1"), claimed("w1", 20000, 8))
        await eventually(lambda: projector.fleet.revision == 9)
        await plane.broker.purge_stream(names.log_stream, up_to=5)
        await plane.broker.purge_stream(names.snapshot_stream)
        projector._hands.do([Rebuild("the test says so")])

        async def given_back():
            return await holder(plane.broker, names) is None

        await eventually(given_back)
        assert projector.health.status == "stuck"
        assert "the log begins at revision 5" in projector.health.reasons[0]


async def test_a_divergence_is_counted_and_ends_in_a_new_epoch(plane):
    async with led(plane) as projector:
        await plane.append(registered("w1"))
        await eventually(lambda: projector._core.line.published == 1)
        entry = await plane.feed.at(2)
        forged = msgspec.structs.replace(
            entry.message, ordinal=2, revision=1, digest="0" * 32
        )
        await plane.feed.publish([encode_view(forged)], after=2)
        await eventually(lambda: projector.metrics.divergences._value.get() == 1)
        starts = projector.metrics.epoch_starts
        await eventually(lambda: starts.labels(reason="divergence")._value.get() == 1)
        await eventually(lambda: projector.health.status == "ok")


QUIET = {"canary_every_s": 30.0, "canary_lost_s": 90.0, "head_every_s": 30.0}
"""Nothing is due for long: what happens soon happens because it was owed."""


async def test_a_head_that_is_owed_is_said_when_it_is(plane):
    plane.settings = msgspec.structs.replace(plane.settings, **QUIET)
    heads = await plane.feed.subscribe_heads()
    async with led(plane):
        for record in given(registered("w1"), claimed("w1", 20000, 3)):
            began = asyncio.get_running_loop().time()
            await plane.log.append(record.event)
            if record.revision == 1:  # a delta says that
                continue
            async with asyncio.timeout(5):
                async for message in heads:
                    if decode_head(message.payload).revision == record.revision:
                        break
            assert asyncio.get_running_loop().time() - began < 1.0
    await heads.close()


async def test_a_leader_stands_down_when_its_lease_lapses(plane):
    """Not at its next judgement, which may be far away."""
    plane.settings = msgspec.structs.replace(plane.settings, lease_s=1.0, **QUIET)
    async with led(plane) as projector:
        plane.server.disconnect(plane.broker)
        await eventually(lambda: not projector.leading, within_s=4.0)
        plane.server.reconnect(plane.broker)
        await eventually(lambda: projector.leading)


class LateAnswers(MemoryBroker):
    """Who stores in the lease's bucket is answered when the test says so."""

    def __init__(self, server):
        super().__init__(server)
        self.answers = asyncio.Event()
        self.answers.set()

    async def store(self, stream, message, **options):
        stored = await super().store(stream, message, **options)
        if message.subject.endswith(".projector"):
            await self.answers.wait()
        return stored


class LeapingClock(SystemClock):
    """A process that did not run for a while sees its clock leap."""

    ahead_s = 0.0

    def monotonic(self):
        return super().monotonic() + self.ahead_s


async def test_who_stood_down_while_the_lease_was_renewed_leads_again():
    """It lapsed here, for the renewal began late and its answer came later still."""
    plane = Plane(MemoryServer(), lease_s=2.0)
    plane.broker, plane.clock = LateAnswers(plane.server), LeapingClock()
    plane.log = EventLog(plane.broker, "c", plane.settings)
    plane.feed = ViewFeed(plane.broker, "c")
    await plane.broker.start()
    await init(plane.broker, "c", plane.settings)
    async with led(plane) as projector:
        plane.broker.answers.clear()
        plane.clock.ahead_s = 0.6 * plane.settings.lease_s
        await eventually(lambda: not projector.leading)
        plane.broker.answers.set()
        await eventually(lambda: projector.leading)


class Deaf(MemoryBroker):
    """Who follows a log over it hears nothing of it, not even that it is gone."""

    async def follow(self, stream, **options):
        if stream.endswith("_LOG"):
            await asyncio.Event().wait()
        async for batch in super().follow(stream, **options):
            yield batch


async def test_a_log_that_was_made_anew_is_noticed_before_there_is_anything_to_read():
    plane = Plane(MemoryServer(), head_every_s=0.1)
    plane.broker = Deaf(plane.server)
    plane.log = EventLog(plane.broker, "c", plane.settings)
    plane.feed = ViewFeed(plane.broker, "c")
    await plane.broker.start()
    await init(plane.broker, "c", plane.settings)
    async with led(plane) as projector:
        await plane.broker.delete_stream(plane.log.names.log_stream)
        await init(plane.broker, "c", plane.settings)
        new = (await plane.log.state()).log_id
        await eventually(lambda: projector._core and projector._core.line.log_id == new)


async def test_between_two_terms_no_tick_is_lost(plane):
    """The next core is judged by although nobody slept for it."""
    async with led(plane) as projector:
        before = projector._core
        projector._hands.do([Rebuild("the test says so")])
        await eventually(lambda: projector._core not in (None, before))
        judged = projector._core._judge_at
        await eventually(lambda: projector._core._judge_at > judged)
