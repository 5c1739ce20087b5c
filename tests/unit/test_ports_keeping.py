"""Claims that stand are let go by what the leader has, over a broker in memory."""

from __future__ import annotations

import asyncio
from random import Random

import msgspec
import pytest

import controlplane as cp
from controlplane import topology
from controlplane.broker import Outgoing
from controlplane.broker.memory import MemoryBroker, MemoryServer
from controlplane.clock import SystemClock
from controlplane.eventlog import EventLog
from controlplane.identifiers import new_uuid7
from controlplane.ports import keeping
from controlplane.ports.claimer import Claimer
from events import InvalidIdentityError, PortOwner, encode_token
from projections import PortBlock, Want
from tests.support.fleet_builder import Step, deregistered, expired, given, registered
from tests.support.lossy import LossyBroker
from tests.support.port_log import check_ports, port_records

HOST = "10.0.0.9"
SMALL = cp.PortRange(20000, 20007)
SETTINGS = cp.Settings(port_cooldown_s=0, connect_timeout_s=1.0)


class Host:
    """Claimants of one cell; each has a log and a client of its own."""

    def __init__(self) -> None:
        self.server = MemoryServer()
        self.brokers: list[LossyBroker] = []

    async def claimer(self) -> Claimer:
        broker = LossyBroker(MemoryBroker(self.server, connect_timeout_s=1.0))
        await broker.start()
        self.brokers.append(broker)
        await topology.init(broker, "default", SETTINGS)
        return Claimer(
            log=EventLog(broker, "default", SETTINGS),
            broker=broker,
            clock=SystemClock(),
            settings=SETTINGS,
            by="test",
            chance=Random(1),
        )

    async def purge(self, *ports: int) -> None:
        """Remove every record of the host, or of those ports."""
        names = topology.Names("default")
        tokens = [str(port) for port in ports] or [">"]
        for token in tokens:
            subject = names.absolute(f"log.port.{encode_token(HOST)}.{token}")
            await self.brokers[0].purge_stream(names.log_stream, subject=subject)

    def lose_all(self) -> None:
        """Lose every record, and give their numbers again."""
        stream = self.server.streams[topology.Names("default").log_stream]
        sequences, stream.last_sequence = list(stream._messages), 0
        for sequence in sequences:
            stream._remove(sequence)


@pytest.fixture
async def host():
    made = Host()
    yield made
    for broker in made.brokers:
        await broker.stop()


async def claim(claimer: Claimer, size: int = 8) -> PortBlock:
    owner = PortOwner(namespace="prod", worker_id="w1", incarnation=new_uuid7())
    claimed = await claimer.claim(
        [Want("", size, SMALL)],
        host=HOST,
        owner=owner,
        lease_ttl_s=30.0,
        bind_check=False,
    )
    (block,) = claimed.blocks
    return block


async def held(claimer: Claimer) -> dict[int, str]:
    return check_ports(await port_records(claimer._log)).get(HOST, {})


async def test_letting_go_reads_nothing_of_what_others_claimed_meanwhile(host):
    """Fifty that leave at once would each read what all the others claimed."""
    claimer, other = await host.claimer(), await host.claimer()
    block = await claim(claimer, 2)
    theirs = await claim(other, 2)
    looks = host.brokers[0].asked
    await claimer.let_go([block])
    assert host.brokers[0].asked == looks
    assert await held(claimer) == dict.fromkeys(theirs, theirs.claim_id)


async def test_letting_go_is_by_the_fold_where_another_wrote_last(host):
    claimer = await host.claimer()
    block = await claim(claimer, 2)
    names = topology.Names("default")
    subject = names.absolute(f"log.port.{encode_token(HOST)}.{block.start}")
    await host.brokers[0].store(
        names.log_stream, Outgoing(subject=subject, payload=b"{")
    )
    await claimer.let_go([block])
    assert not await held(claimer)


@pytest.mark.parametrize("purged", [(), range(20000, 20008), range(20000, 20007)])
async def test_letting_go_what_the_log_lost_ends(host, purged):
    claimer = await host.claimer()
    block = await claim(claimer)
    await claimer.watch(HOST).look()
    await host.purge(*purged)
    before = host.brokers[0].stores
    async with asyncio.timeout(2.0):
        await claimer.let_go([block])
    assert host.brokers[0].stores - before <= 5


async def test_a_claim_right_before_the_log_lost_all_is_let_go_without_a_word(host):
    claimer = await host.claimer()
    block = await claim(claimer)
    host.lose_all()
    before = host.brokers[0].stores
    await claimer.let_go([block])
    assert host.brokers[0].stores == before


async def test_releases_that_are_refused_for_ever_are_given_up(host, monkeypatch):
    monkeypatch.setattr(keeping, "PAUSE_S_MIN", 0.1)
    claimer = await host.claimer()
    block = await claim(claimer)
    refusals = []

    async def refuse(pending):
        refusals.append(pending)
        raise cp.AppendConflictError(subject="s", expected=1, last=2, code=0)

    monkeypatch.setattr(claimer._log, "append_all", refuse)
    with pytest.raises(cp.AppendConflictError):
        await claimer.let_go([block])
    assert 2 <= len(refusals) <= 10  # pauses of 0.1, 0.2, 0.4 s…: 5 in a second


async def test_a_release_expects_what_the_log_says_and_not_what_was_remembered(host):
    """The log lost its tail: at the claim's revision there is another's now."""
    claimer, other = await host.claimer(), await host.claimer()
    block = await claim(claimer)
    host.lose_all()
    theirs = await claim(other)
    assert set(theirs) == set(block)
    assert (await port_records(other._log))[0].revision == 1
    with pytest.raises(cp.AppendConflictError):
        await claimer.release(block)
    assert await held(other) == dict.fromkeys(theirs, theirs.claim_id)


async def append(claimer: Claimer, step: Step, incarnation: str) -> None:
    """Append what ``step`` says, of that life."""
    *_, record = given(registered("w1"), step)
    life = {"incarnation": incarnation, "event_id": new_uuid7()}
    await claimer._log.append(msgspec.structs.replace(record.event, **life))


async def test_a_registered_worker_s_ports_are_not_another_process_s_to_let_go(host):
    own, other = await host.claimer(), await host.claimer()
    block = await claim(own)
    (first, *_) = await port_records(own._log)
    life = first.event.owner.incarnation
    await append(own, registered("w1"), life)
    with pytest.raises(cp.AppendConflictError, match="worker prod/w1 holds the block"):
        await other.release(block)
    assert set(await held(own)) == set(block)
    await own.release(block)
    assert not await held(own)


@pytest.mark.parametrize("end", [expired("w1"), deregistered("w1")])
async def test_what_a_worker_that_ended_left_may_be_let_go_by_others(host, end):
    own, other = await host.claimer(), await host.claimer()
    block = await claim(own)
    (first, *_) = await port_records(own._log)
    for step in (registered("w1"), end):
        await append(own, step, first.event.owner.incarnation)
    await other.release(block)
    assert not await held(own)


async def test_what_was_let_go_here_is_let_go_again_whoever_has_it_now(host):
    claimer, other = await host.claimer(), await host.claimer()
    block = await claim(claimer)
    await claimer.release(block)
    theirs = await claim(other)
    await claimer.release(block)
    assert await held(other) == dict.fromkeys(theirs, theirs.claim_id)


async def test_only_so_many_claims_that_were_let_go_are_remembered(host, monkeypatch):
    monkeypatch.setattr(keeping, "RELEASED_MAX", 3)
    claimer = await host.claimer()
    for _ in range(5):
        await claimer.release(await claim(claimer))
    assert len(claimer._keeper._released) == 3
    assert not claimer._keeper._holdings
    assert not claimer._keeper._counts


@pytest.mark.parametrize(
    "wrong",
    [
        {"host": 5},
        {"host": ""},
        {"start": "a"},
        {"start": True},
        {"start": 0},
        {"size": 10**7},
        {"size": 0},
        {"claim_id": None},
        {"claim_id": ""},
        {"size": 4},
        {"size": 9},
        {"start": 20001},
    ],
)
@pytest.mark.parametrize("own", [True, False])
async def test_only_a_whole_claim_is_let_go(host, wrong, own):
    claimer = await host.claimer()
    block = await claim(claimer)
    whole = {
        "host": block.host,
        "start": block.start,
        "size": block.size,
        "claim_id": block.claim_id,
    }
    who = claimer if own else await host.claimer()
    with pytest.raises(InvalidIdentityError):
        await who.release(PortBlock(**{**whole, **wrong}))
    assert len(await held(claimer)) == 8
    await who.release(PortBlock(**whole))
    assert not await held(claimer)


async def test_a_release_that_comes_second_is_fine_whoever_has_the_ports_by_then(host):
    one, two = await host.claimer(), await host.claimer()
    block = await claim(one)
    taking = asyncio.ensure_future(taken(two))
    await asyncio.gather(*(one.release(block) for _ in range(3)))
    await taking


async def taken(claimer):
    """The only block, as soon as it is free."""
    while True:
        try:
            return await claim(claimer)
        except cp.PortsExhaustedError:
            await asyncio.sleep(0)
