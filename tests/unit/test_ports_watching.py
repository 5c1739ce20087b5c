"""What is known of a host's ports, and how it is found out."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

import controlplane as cp
from controlplane import topology
from controlplane.broker.memory import MemoryBroker, MemoryServer
from controlplane.eventlog import EventLog, Pending
from controlplane.identifiers import new_uuid7
from controlplane.ports import reading
from controlplane.ports.shunning import Contested, Landed
from controlplane.ports.watching import HostWatch
from projections import Held, PortBlock, Resting
from tests.support.fleet_builder import claimed, given, released
from tests.support.waiting import eventually

HOST = "10.0.0.9"
SETTINGS = cp.Settings(connect_timeout_s=0.3)


class Cell:
    """A log in memory, and what is known of a host there."""

    def __init__(self, server: MemoryServer) -> None:
        self.server = server
        self.broker = MemoryBroker(server, connect_timeout_s=0.3)
        self.log = EventLog(self.broker, "default", SETTINGS)
        self.watch = HostWatch(self.log, self.broker, SETTINGS, HOST)

    async def say(self, *steps) -> int:
        """Append a story; the last revision."""
        for record in given(*steps):
            event = msgspec.structs.replace(record.event, event_id=new_uuid7())
            last = (await self.log.append_all([Pending(event)])).revision
        return last


def standing(watch, port, claim_id):
    """The last record on ``port``, if this claim holds it as far as is known."""
    why = watch.shunned.get(port)
    if isinstance(why, Landed) and why.claim_id == claim_id:
        return why.revision
    state = watch.known.ports.get(port)
    holds = isinstance(state, Held) and state.claim_id == claim_id
    return watch.known.expected(port) if holds else None


@pytest.fixture
async def cell():
    made = Cell(MemoryServer())
    await made.broker.start()
    await topology.init(made.broker, "default", SETTINGS)
    yield made
    await made.broker.stop()


def claim(port: int, claim_id: str, host: str = HOST):
    return claimed("w1", port, host=host, claim=claim_id)


def release(port: int, claim_id: str, host: str = HOST):
    return released(port, host=host, claim=claim_id)


async def test_a_look_knows_what_was_appended_before_it(cell):
    await cell.say(claim(20000, "a"), claim(20001, "b"), claim(20001, "x", "other"))
    await cell.watch.look()
    assert sorted(cell.watch.known.ports) == [20000, 20001]
    await cell.say(release(20000, "a"))
    await cell.watch.look()
    assert isinstance(cell.watch.known.ports[20000], Resting)
    assert cell.watch.now is not None


async def test_those_who_ask_together_share_a_look_that_began_after_they_asked(cell):
    await cell.say(claim(20000, "a"))
    looking = [asyncio.create_task(cell.watch.look()) for _ in range(9)]
    await asyncio.gather(*looking)
    assert cell.watch._looks <= 2


async def test_a_release_that_is_not_its_holder_s_changes_nothing(cell):
    await cell.say(claim(20000, "a"), release(20000, "stray"))
    await cell.watch.look()
    assert standing(cell.watch, 20000, "a") == 2
    assert cell.watch.known.expected(20000) == 2


async def test_another_log_is_another_table(cell):
    await cell.say(claim(20000, "a"), claim(20001, "b"))
    await cell.watch.look()
    await cell.broker.delete_stream(cell.log.names.log_stream)
    await topology.init(cell.broker, "default", SETTINGS)
    await cell.watch.look()
    assert not cell.watch.known.ports
    await cell.say(claim(20002, "c"), claim(20003, "d"), claim(20004, "e"))
    await cell.watch.look()
    assert sorted(cell.watch.known.ports) == [20002, 20003, 20004]


async def test_a_log_without_what_was_read_is_read_anew(cell):
    await cell.say(claim(20000, "a"), claim(20001, "b"))
    await cell.watch.look()
    names = cell.log.names
    subject = names.absolute("log.port.10%2E0%2E0%2E9.20001")
    await cell.broker.purge_stream(names.log_stream, subject=subject)
    await cell.watch.look()
    assert sorted(cell.watch.known.ports) == [20000]


async def test_what_is_asked_anew_forgets_a_purged_port(cell):
    await cell.say(claim(19999, "o", "other"), claim(20000, "a"), claim(20001, "b"))
    await cell.watch.look()
    names = cell.log.names
    subject = names.absolute("log.port.10%2E0%2E0%2E9.20000")
    await cell.broker.purge_stream(names.log_stream, subject=subject)
    await cell.watch.look()
    assert sorted(cell.watch.known.ports) == [20000, 20001]
    await cell.watch.look(anew=True)
    assert sorted(cell.watch.known.ports) == [20001]


async def test_without_a_broker_a_look_says_so_in_time(cell):
    cell.server.disconnect(cell.broker)
    began = asyncio.get_running_loop().time()
    with pytest.raises(cp.LogUnavailableError):
        await cell.watch.look()
    assert asyncio.get_running_loop().time() - began < 5


async def test_without_a_cell_a_look_says_so_at_once(cell):
    await cell.broker.delete_stream(cell.log.names.log_stream)
    with pytest.raises(cp.LogUnavailableError):
        await cell.watch.look()


async def test_a_look_goes_on_when_the_broker_is_back(cell):
    await cell.say(claim(20000, "a"))
    cell.server.disconnect(cell.broker)
    looking = asyncio.create_task(cell.watch.look())
    await asyncio.sleep(0)
    cell.server.reconnect(cell.broker)
    await looking
    assert sorted(cell.watch.known.ports) == [20000]


# ---- a look that is cut --------------------------------------------------------------
class Cutting:
    """A broker's client that falls silent after so many batches of one record each."""

    def __init__(self, broker: MemoryBroker, batches: int) -> None:
        self._broker, self._batches = broker, batches
        self.afters: list[int] = []

    def __getattr__(self, name: str):
        return getattr(self._broker, name)

    async def read(self, stream, *, after=0, **options):
        self.afters.append(after)
        left = self._batches
        async for batch in self._broker.read(stream, after=after, **options):
            for message in batch:
                if not left:
                    await asyncio.Event().wait()
                left -= 1
                yield [message]


async def test_a_look_that_is_cut_goes_on_where_it_was(cell):
    await cell.say(*(claim(20000 + n, "a") for n in range(7)))
    cutting = Cutting(cell.broker, 3)
    watch = HostWatch(cell.log, cutting, SETTINGS, HOST)
    await watch.look()
    assert cutting.afters == [0, 3, 6]
    assert sorted(watch.known.ports) == list(range(20000, 20007))


async def test_what_a_cancelled_look_read_is_kept(cell):
    await cell.say(*(claim(20000 + n, "a") for n in range(7)))
    cutting = Cutting(cell.broker, 3)
    watch = HostWatch(cell.log, cutting, SETTINGS, HOST)
    looking = asyncio.create_task(watch.look())
    await eventually(lambda: watch._reading.position == 3)
    looking.cancel()
    await asyncio.wait([looking])
    assert not watch.looked
    await watch.look()
    assert cutting.afters == [0, 3, 6]


async def test_a_look_that_reads_nothing_more_says_so_in_time(cell):
    await cell.say(claim(20000, "a"), claim(20001, "a"))
    watch = HostWatch(cell.log, Cutting(cell.broker, 0), SETTINGS, HOST)
    began = asyncio.get_running_loop().time()
    with pytest.raises(cp.LogUnavailableError):
        await watch.look()
    assert asyncio.get_running_loop().time() - began < 5


# ---- a log whose beginning is gone ---------------------------------------------------
async def purge(cell, up_to: int) -> None:
    await cell.broker.purge_stream(cell.log.names.log_stream, up_to=up_to)


@pytest.mark.parametrize("up_to", [2, 3, 4])
async def test_who_did_not_read_a_purged_beginning_knows_too_little(cell, up_to):
    await cell.say(claim(20000, "a"), claim(20001, "b"), claim(20002, "c"))
    await purge(cell, up_to)
    for _ in range(2):
        with pytest.raises(cp.HistoryTruncatedError) as refused:
            await cell.watch.look()
        assert refused.value.first == up_to
        assert not cell.watch.looked


@pytest.mark.parametrize("anew", [False, True])
async def test_who_read_a_purged_beginning_knows_it_still(cell, anew):
    await cell.say(claim(20000, "a"), claim(20001, "b"), claim(19999, "c", "other"))
    await cell.watch.look()
    await cell.say(claim(20002, "d"))
    await purge(cell, 4)
    await cell.watch.look(anew=anew)
    assert sorted(cell.watch.known.ports) == [20000, 20001, 20002]
    assert standing(cell.watch, 20000, "a") == 0, "nothing is on its subject any more"
    assert standing(cell.watch, 20002, "d") == 4


async def test_who_read_nothing_else_before_the_purge_knows_all_if_all_is_purged(cell):
    last = await cell.say(claim(20000, "a"), claim(20001, "b"))
    await cell.watch.look()
    await purge(cell, last + 1)
    await cell.watch.look()
    assert sorted(cell.watch.known.ports) == [20000, 20001]


async def test_who_read_a_part_of_what_was_purged_knows_too_little(cell):
    await cell.say(claim(20000, "a"))
    await cell.watch.look()
    await purge(cell, 1 + await cell.say(claim(20001, "b"), claim(20002, "c")))
    with pytest.raises(cp.HistoryTruncatedError):
        await cell.watch.look()


async def test_of_a_log_that_is_made_anew_meanwhile_the_old_one_is_not_judged(
    cell, monkeypatch
):
    await cell.say(claim(20000, "a"), claim(20001, "b"), claim(20002, "c"))
    await purge(cell, 3)
    beginnings = cell.watch._reading._beginnings
    find, made = beginnings.find, []

    async def find_slowly(*asked):
        found = await find(*asked)
        if not made:
            await cell.broker.delete_stream(cell.log.names.log_stream)
            made.append(await topology.init(cell.broker, "default", SETTINGS))
            await cell.say(claim(20005, "d"))
        return found

    monkeypatch.setattr(beginnings, "find", find_slowly)
    await cell.watch.look()
    assert sorted(cell.watch.known.ports) == [20005]


async def test_what_is_purged_while_it_is_read_is_not_known(cell, monkeypatch):
    """To a reader it is a hole like any other: only the log's beginning tells."""
    monkeypatch.setattr(reading, "LONG", 1)
    await cell.say(*(claim(20000 + n, "a") for n in range(7)))
    cutting = Cutting(cell.broker, 3)
    watch = HostWatch(cell.log, cutting, SETTINGS, HOST)
    looking = asyncio.create_task(watch.look())
    await eventually(lambda: watch._reading.position == 3)
    await purge(cell, 6)
    with pytest.raises(cp.HistoryTruncatedError):
        await looking
    assert not watch.looked


async def test_a_purge_that_ends_a_long_reading_is_seen(cell, monkeypatch):
    monkeypatch.setattr(reading, "LONG", 1)
    await cell.say(*(claim(20000 + n, "a") for n in range(4)))

    class Purging(Cutting):
        async def read(self, stream, **options):
            await purge(cell, 3)
            async for batch in self._broker.read(stream, **options):
                yield batch

    watch = HostWatch(cell.log, Purging(cell.broker, 9), SETTINGS, HOST)
    with pytest.raises(cp.HistoryTruncatedError):
        await watch.look()


# ---- what this process does ----------------------------------------------------------
async def test_a_reservation_ends_unless_more_is_said_of_its_ports(cell):
    watch = cell.watch
    block = PortBlock(HOST, 20001, 1, "mine")
    with watch.reserving([20000, 20001, 20002]):
        assert sorted(watch.shunned) == [20000, 20001, 20002]
        watch.landed(block, 7)
        watch.doubt([20002])
    assert sorted(watch.shunned) == [20001, 20002]
    assert standing(watch, 20001, "mine") == 7
    assert standing(watch, 20001, "other") is None


async def test_a_landed_claim_is_shunned_until_it_is_read_back(cell):
    last = await cell.say(claim(20000, "mine"))
    cell.watch.landed(PortBlock(HOST, 20000, 1, "mine"), last)
    cell.watch.landed(PortBlock(HOST, 20001, 1, "later"), last + 1)
    await cell.watch.look()
    assert sorted(cell.watch.shunned) == [20001]
    assert standing(cell.watch, 20000, "mine") == last


async def test_a_contested_port_waits_for_a_look_that_began_later(cell):
    watch = cell.watch
    await watch.look()
    watch.contest([20000], 9)
    assert watch.unread == 9
    assert (watch.contested, watch.shunned[20000]) == (1, Contested(1))
    await watch.look()
    assert not watch.shunned
    assert not watch.contested


async def test_a_busy_port_is_forgiven_by_time(cell):
    watch = cell.watch
    watch.busy(20000, 10.0)
    watch.busy(20001, 20.0)
    await watch.look()
    watch.try_busy(15.0)
    assert sorted(watch.shunned) == [20001]
