"""What others are about to claim is kept off, and decides nothing."""

from __future__ import annotations

import asyncio
import math

import msgspec
import pytest

import controlplane as cp
from controlplane.ports import intents
from controlplane.ports.claimer import Claimer
from controlplane.ports.intents import (
    BLOCKS_MAX,
    WAITING_MAX,
    Intent,
    decode_intent,
    encode_intent,
)
from controlplane.ports.shunning import Intended, Shunning
from controlplane.ports.watching import DECIDED_S, INTENDED_S
from controlplane.topology import Names
from projections import PORTS_MAX, Want
from tests.support.port_hosts import HOST, SMALL, Host, claim, owner
from tests.support.waiting import eventually

SUBJECT = Names("default").intent(HOST)
CELLS = [(start, 8) for start in range(SMALL.first, SMALL.last, 8)]
BLOCK = Want("", 8, SMALL)


@pytest.fixture
async def host():
    made = Host()
    yield made
    for broker in made.brokers:
        await broker.stop()


def listeners(host: Host, subject: str = SUBJECT) -> int:
    return len(host.server._subscriptions.get(subject, {}))


async def listening(host: Host, **options) -> Claimer:
    """A claimer that has a block, and hears what others say."""
    claimer = await host.claimer(**options)
    await claim(claimer, BLOCK)
    await eventually(lambda: listeners(host))
    return claimer


def say(host: Host, blocks, by: str = "another") -> None:
    host.server.publish(SUBJECT, encode_intent(Intent(by=by, blocks=tuple(blocks))))


async def heard_last_of(claimer: Claimer, port: int) -> None:
    await eventually(lambda: isinstance(shunned(claimer).get(port), Intended))


def shunned(claimer: Claimer):
    return claimer.watch(HOST).shunned


# ---- keeping off -------------------------------------------------------------------
async def test_what_another_is_about_to_claim_is_kept_off(host):
    claimer = await listening(host)
    (mine,) = [block for block in CELLS if block[0] in shunned(claimer)]
    free = CELLS[CELLS.index(mine) - 7]
    say(host, [b for b in CELLS if b not in (mine, free)])
    port = next(start for start, _ in reversed(CELLS) if start not in (*mine, *free))
    await heard_last_of(claimer, port)
    looks = host.brokers[0].asked
    (block,) = await claim(claimer, BLOCK)
    assert (block.start, block.size) == free
    assert host.brokers[0].asked == looks


async def test_two_who_choose_at_once_are_kept_apart_by_what_they_say(host):
    two = await listening(host)
    one = await host.claimer()
    await one.watch(HOST).look()
    # The log takes its time: what was said meanwhile is all that two can know.
    stores = host.brokers[1].stores
    (first,) = await claim(one, BLOCK)
    assert host.brokers[1].stores == stores + 1
    await heard_last_of(two, first.start)
    assert {shunned(two)[port] for port in first} == {shunned(two)[first.start]}


async def test_what_one_says_oneself_is_not_kept_off(host):
    claimer = await listening(host)
    (block,) = await claim(claimer, BLOCK)
    say(host, [(20000, 1)])
    await eventually(lambda: 20000 in shunned(claimer))
    assert not any(isinstance(shunned(claimer).get(p), Intended) for p in block)


# ---- and no more than that ---------------------------------------------------------
async def test_room_that_others_are_about_to_claim_is_room(host):
    claimer = await listening(host)
    for block in CELLS:
        say(host, [block])
    await eventually(lambda: len(shunned(claimer)) == len(SMALL))
    looks = host.brokers[0].asked
    async with asyncio.timeout(2.0):
        blocks = [await claim(claimer, BLOCK) for _ in CELLS[1:]]
    ports = {port for (block,) in blocks for port in block}
    assert len(ports) == len(SMALL) - 8
    assert host.brokers[0].asked - looks == 1
    with pytest.raises(cp.PortsExhaustedError):
        await claim(claimer, BLOCK)


async def test_who_is_told_without_end_that_all_is_taken_gets_its_block(host):
    claimer = await listening(host)
    over = asyncio.Event()

    async def flood() -> None:
        while not over.is_set():
            for _ in range(2 * WAITING_MAX):
                say(host, CELLS[:BLOCKS_MAX])
            await asyncio.sleep(0)

    flooding = asyncio.create_task(flood())
    try:
        async with asyncio.timeout(5.0):
            (block,) = await claim(claimer, BLOCK)
        assert block.size == 8
    finally:
        over.set()
        await flooding


def test_an_intent_is_believed_for_its_time_and_not_longer():
    shunning = Shunning()
    shunning.heard([(20000, 2)], at=10.0)
    shunning.heard([(20001, 2)], at=11.0)
    assert not shunning.forget_intents(before=10.0)
    assert shunning.forget_intents(before=11.0)
    assert set(shunning.shunned) == {20001, 20002}
    assert shunning.forget_intents()
    assert not shunning.shunned
    assert not shunning.forget_intents()


@pytest.mark.parametrize("state", ["reserved", "doubted", "contested", "busy"])
def test_what_is_known_better_stays_as_it_is(state):
    shunning = Shunning()
    shunning.heard([(20000, 1)], at=9.0)
    match state:
        case "reserved":
            with shunning.reserving([20000]):
                before = dict(shunning.shunned)
                shunning.heard([(20000, 1)], at=10.0)
                assert not shunning.forget_intents()
                assert shunning.shunned == before
            return
        case "doubted":
            shunning.doubt([20000])
        case "contested":
            shunning._lost([20000], 1)
        case _:
            shunning.busy(20000, 1.0)
    before = dict(shunning.shunned)
    shunning.heard([(20000, 1)], at=10.0)
    assert not shunning.forget_intents()
    assert shunning.shunned == before


async def test_a_look_tells_what_became_of_what_was_heard_a_while_before(host):
    watch = (await host.claimer()).watch(HOST)
    now = asyncio.get_running_loop().time()
    watch.heard([(20000, 1)], at=now - 2 * DECIDED_S)
    watch.heard([(20001, 1)], at=now)
    await watch.look()
    assert set(watch.shunned) == {20001}


async def test_what_was_heard_long_ago_is_free_again_without_a_look(host):
    watch = (await host.claimer()).watch(HOST)
    now = asyncio.get_running_loop().time()
    watch.heard([(20000, 1)], at=now - INTENDED_S)
    watch.heard([(20001, 1)], at=now)
    watch.next_port()
    assert set(watch.shunned) == {20001}


# ---- nonsense ------------------------------------------------------------------------
@pytest.mark.parametrize(
    "said",
    [
        {"by": "x", "blocks": [[0, 8]]},
        {"by": "x", "blocks": [[49152, 1]]},
        {"by": "x", "blocks": [[20000, 0]]},
        {"by": "x", "blocks": [[20000, -8]]},
        {"by": "x", "blocks": [[20000, 2**63]]},
        {"by": "x", "blocks": [[20000, PORTS_MAX + 1]]},
        {"by": "x", "blocks": [[20000, PORTS_MAX], [30000, 1]]},
        {"by": "x", "blocks": [[20000, 1]] * (BLOCKS_MAX + 1)},
        {"by": "x", "blocks": [[20000, math.nan]]},
        {"by": "x", "blocks": [20000, 8]},
        {"by": 7, "blocks": []},
        {"blocks": [[20000, 8]]},
        [],
    ],
)
def test_what_nobody_may_claim_is_no_intent(said):
    assert decode_intent(msgspec.msgpack.encode(said)) is None


@pytest.mark.parametrize("payload", [b"", b"\xc1", b"\x91" * 5000, b"{}", b"\xff" * 9])
async def test_bytes_that_say_nothing_do_no_harm(host, payload):
    claimer = await listening(host)
    before = dict(shunned(claimer))
    host.server.publish(SUBJECT, payload)
    say(host, [(30000, 1)])
    await heard_last_of(claimer, 30000)
    assert set(shunned(claimer)) == {*before, 30000}


# ---- listening ---------------------------------------------------------------------
async def test_whoever_closes_listens_no_more(host):
    claimer = await listening(host)
    await claimer.close(1.0)
    assert listeners(host) == 0
    await claim(claimer, BLOCK)
    assert listeners(host) == 0


async def test_who_claims_lone_ports_neither_speaks_nor_listens(host):
    ear = await listening(host)
    claimer = await host.claimer()
    (block,) = await claim(claimer, Want("", 1, SMALL))
    say(host, [(30000, 1)])
    await heard_last_of(ear, 30000)
    assert listeners(host) == 1
    assert not isinstance(shunned(ear).get(block.start), Intended)


async def test_no_more_hosts_are_listened_to_than_a_process_can_bear(host, monkeypatch):
    monkeypatch.setattr(intents, "HOSTS_MAX", 2)
    claimer = await host.claimer()
    ask = {"owner": owner(), "lease_ttl_s": 30.0, "bind_check": False}
    names = [f"h{n}" for n in range(4)]
    for name in names:
        await claimer.claim([BLOCK], host=name, **ask)
    heard = [listeners(host, Names("default").intent(name)) for name in names]
    assert heard == [1, 1, 0, 0]
    await claimer.close(1.0)


async def test_who_claims_no_more_listens_no_more_until_the_next_claim(
    host, monkeypatch
):
    monkeypatch.setattr(intents, "LISTENS_S", 0.05)
    claimer = await listening(host)
    await eventually(lambda: not listeners(host))
    await claim(claimer, BLOCK)
    await eventually(lambda: listeners(host))
    await eventually(lambda: not listeners(host))


async def test_who_may_not_speak_nor_listen_claims_all_the_same(host):
    claimer = await host.claimer(denied=("cp.default.intent.>",))
    blocks = [await claim(claimer, BLOCK) for _ in range(3)]
    assert len({block.start for (block,) in blocks}) == 3
    assert listeners(host) == 0
