"""A log that lost its tail gives the same numbers to other records."""

import pytest

from controlplane.broker.memory import MemoryBroker, MemoryServer
from controlplane.clock import SystemClock
from controlplane.eventlog import EventLog
from controlplane.settings import Settings
from controlplane.topology import init
from controlplane.worker.performing import Performer
from controlplane.worker.signals import Appended, ReadSubject
from tests.support import fleet_builder as builder
from tests.support.worker_inputs import READY, REGISTERED, SPEC, core_after, notice

TAKEN = builder.given(builder.registered("w1"), builder.registered("w1"))


@pytest.fixture
async def log():
    broker = MemoryBroker(MemoryServer())
    await broker.start()
    await init(broker, "default", Settings())
    log = EventLog(broker, "default", Settings())
    for record in TAKEN:
        await log.append(record.event)
    yield log
    await broker.stop()


@pytest.mark.parametrize(
    ("known", "whole", "revisions"),
    [("lost", True, [1, 2]), (TAKEN[-1].fingerprint, False, []), ("", False, [])],
)
async def test_another_record_in_the_place_of_ones_own_shows_a_lost_tail(
    log, known, whole, revisions
):
    performer = Performer(
        log=log, broker=log._broker, clock=SystemClock(), by="test", metrics=None
    )
    log_id = (await log.state()).log_id
    read = await performer.read(SPEC, ReadSubject(2, log_id, known))
    assert read.whole is whole
    assert [record.revision for record in read.records] == revisions
    assert read.fingerprint == TAKEN[-1].fingerprint


def test_a_worker_asks_for_what_follows_its_own_last_record_and_says_which_that_is():
    core = core_after(*REGISTERED[:-1], Appended(1, "first"), READY)
    core.step(Appended(2, "second"))
    (question,) = core.step(notice("unknown", revision=2))
    assert (question.after, question.fingerprint) == (2, "second")
