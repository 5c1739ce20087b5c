"""After an outage of the broker a silent router is not gone: it could say nothing."""

from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from controlplane.broker.memory import MemoryBroker
from controlplane.broker.memory_server import MemoryServer
from controlplane.presence import (
    Presence,
    RouterReport,
    say_goodbye,
    say_presence,
    say_report,
)
from controlplane.settings import Settings
from controlplane.topology import Names, init
from controlplane.vigil import BLOCK, Vigil, lately_there

SETTINGS = Settings()
KEPT_S = SETTINGS.presence_ttl_s + SETTINGS.presence_lapse_s
NAMES = Names("default")
EVERY_S = 10.0
PRESENCE = Presence(
    name="r1",
    epoch="log-a.1.1@0",
    revision=10,
    digest="0" * 32,
    source="live",
    stale_for_s=0.1,
)


class Time:
    """The broker's clock, and a gate's; tests move both."""

    def __init__(self):
        self.passed_s = 0.0

    def broker(self):
        return datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=self.passed_s)

    def gate(self):
        return self.passed_s


@pytest.fixture
def time():
    return Time()


@pytest.fixture
async def broker(time):
    made = MemoryBroker(MemoryServer(time.broker))
    await made.start()
    await init(made, "default", SETTINGS)
    yield made
    await made.stop()


async def report(broker, name, reason="regular"):
    presence = msgspec.structs.replace(PRESENCE, name=name)
    at = datetime(2026, 1, 1, tzinfo=UTC)
    said = RouterReport(presence=presence, at=at, ejected=(), reason=reason)
    await say_report(broker, NAMES, said)


async def speak(broker, time, *names, for_s):
    """These report as living routers do, for so long."""
    end_s = time.passed_s + for_s
    while time.passed_s < end_s:
        for name in names:
            await report(broker, name)
        time.passed_s += EVERY_S


async def lately(broker):
    return await lately_there(broker, NAMES, SETTINGS)


async def test_who_was_silent_while_others_spoke_is_gone(broker, time):
    await speak(broker, time, "r1", "r2", for_s=20)
    await speak(broker, time, "r1", for_s=KEPT_S - 10)
    assert await lately(broker) == {"r1", "r2"}
    await speak(broker, time, "r1", for_s=20)
    assert await lately(broker) == {"r1"}


@pytest.mark.parametrize("away_s", [80, 3600, 86400])
async def test_an_outage_makes_nobody_absent(broker, time, away_s):
    await speak(broker, time, "r1", "r2", "r3", for_s=60)
    time.passed_s += away_s
    await report(broker, "r1", "contact lost")
    assert await lately(broker) == {"r1", "r2", "r3"}


async def test_who_was_gone_before_the_outage_stays_gone(broker, time):
    await speak(broker, time, "r1", "r3", for_s=20)
    await speak(broker, time, "r1", "r2", for_s=KEPT_S + 10)
    time.passed_s += 40
    await report(broker, "r1")
    assert await lately(broker) == {"r1", "r2"}


async def test_who_left_by_itself_is_not_waited_for(broker, time):
    await speak(broker, time, "r1", "r2", for_s=20)
    await report(broker, "r2", "stopped")
    time.passed_s += 80
    assert await lately(broker) == {"r1"}


async def test_who_came_back_under_its_name_is_there(broker):
    await report(broker, "r1", "stopped")
    await report(broker, "r1", "resync: start")
    assert await lately(broker) == {"r1"}


async def test_there_may_be_no_report_or_more_than_are_read_at_once(broker, time):
    assert await lately(broker) == set()
    await report(broker, "r2")
    time.passed_s += EVERY_S
    for _ in range(2 * BLOCK):
        await report(broker, "r1")
    assert await lately(broker) == {"r1", "r2"}


async def test_a_gate_waits_for_who_could_not_speak_until_it_had_its_time(broker, time):
    await speak(broker, time, "r1", "r2", "r3", for_s=20)
    time.passed_s += 80
    vigil = Vigil(broker, NAMES, SETTINGS, time.gate)
    vigil.looked()
    assert await vigil.unheard({"r1"}) == ("r2", "r3")
    assert await vigil.unheard({"r1", "r2", "r3"}) == ()
    while time.passed_s < 100 + SETTINGS.presence_ttl_s:
        assert await vigil.unheard({"r1", "r2"}) == ("r3",)
        time.passed_s += 0.5
        vigil.looked()
    assert await vigil.unheard({"r1", "r2"}) == ()


async def test_a_gate_s_time_begins_anew_when_it_lost_sight(broker, time):
    await speak(broker, time, "r1", "r2", for_s=20)
    time.passed_s += 80
    vigil = Vigil(broker, NAMES, SETTINGS, time.gate)
    time.passed_s += SETTINGS.presence_ttl_s
    vigil.looked()  # the broker answered only now
    assert await vigil.unheard({"r1"}) == ("r2",)


async def test_a_goodbye_is_heard_though_no_report_says_so(broker, time):
    await speak(broker, time, "r1", "r2", for_s=20)
    vigil = Vigil(broker, NAMES, SETTINGS, time.gate)
    r2 = msgspec.structs.replace(PRESENCE, name="r2")
    said = await say_presence(broker, NAMES, r2)
    assert await vigil.unheard({"r1"}) == ("r2",)
    await say_goodbye(broker, NAMES, "r2", said)
    assert await vigil.unheard({"r1"}) == ()
