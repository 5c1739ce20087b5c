"""Claims in the log, over a broker in memory: granted whole, or not at all."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

import controlplane as cp
from controlplane import topology
from controlplane.broker import Outgoing
from controlplane.ports.claimer import Claimer
from controlplane.ports.turns import SOCKET_TURNS, sockets_max
from events import encode_token
from projections import PORTS_MAX, Want
from tests.support.port_hosts import HOST, NO_REST, SMALL, Host, claim, owner
from tests.support.port_log import check_ports
from tests.support.waiting import eventually


@pytest.fixture
async def host():
    made = Host()
    yield made
    for broker in made.brokers:
        await broker.stop()


async def test_a_claim_is_one_batch_of_its_ports(host):
    claimer = await host.claimer()
    me = owner()
    (one, two) = await claim(
        claimer, Want("kv", 1, SMALL), Want("nixl", 8, SMALL), owner=me
    )
    assert (one.size, two.size) == (1, 8)
    assert not set(one) & set(two)
    log = claimer._log
    records = [record async for record in log.read()]
    assert [r.event.port for r in records] == [*one, *two]
    assert [r.event.reason for r in records] == ["kv"] + ["nixl"] * 8
    assert {r.event.owner for r in records} == {me}
    assert {r.event.claim_id for r in records} == {one.claim_id, two.claim_id}


async def test_equal_claims_of_many_fill_a_range_exactly_and_no_more(host):
    claimers = [await host.claimer(seed=n) for n in range(10)]
    blocks = await asyncio.gather(
        *(claim(c, Want("", 8, SMALL)) for c in claimers for _ in range(5))
    )
    ports = sorted(port for (block,) in blocks for port in block)
    assert ports == list(range(20000, 20400))
    with pytest.raises(cp.PortsExhaustedError) as refused:
        await claim(claimers[0], Want("", 8, SMALL))
    assert (refused.value.wanted, refused.value.free) == (8, 0)


async def test_a_holder_learnt_of_after_the_choice_is_not_claimed_over(host):
    """His record is what is known of the port by then, and it is not to be expected."""
    one, two = await host.claimer(seed=1), await host.claimer(seed=2)
    here = await two.host(None)
    only = Want("", 8, cp.PortRange(20000, 20007))
    async with SOCKET_TURNS.taking(sockets_max()):
        late = asyncio.ensure_future(
            two.claim([only], owner=owner(), lease_ttl_s=30.0, bind_check=True)
        )
        await eventually(lambda: len(two.watch(here).shunned) == 8)
        await one.claim(
            [only], host=here, owner=owner(), lease_ttl_s=30.0, bind_check=False
        )
        await two.watch(here).look()
    with pytest.raises(cp.PortsExhaustedError):
        await late


async def test_who_knows_nothing_of_a_neighbour_learns_from_the_refusal(host):
    one, two = await host.claimer(seed=7), await host.claimer(seed=7)
    await two.watch(HOST).look()
    (first,) = await claim(one, Want("", 8, SMALL))
    (second,) = await claim(two, Want("", 8, SMALL))  # the same chance: the same choice
    assert not set(first) & set(second)


@pytest.mark.parametrize("size", [1, 8])
async def test_a_lost_acknowledgement_is_recognised_and_the_claim_returned(host, size):
    claimer = await host.claimer()
    host.brokers[0].lose_acks = 1
    (block,) = await claim(claimer, Want("", size, SMALL))
    assert await held(claimer) == dict.fromkeys(block, block.claim_id)


async def held(claimer: Claimer) -> dict[int, str]:
    """Who holds what, by the fold of the whole log."""
    records = [record async for record in claimer._log.read()]
    return check_ports(records).get(HOST, {})


IMPATIENT = cp.Settings(port_cooldown_s=0, append_timeout_s=0.05)


@pytest.mark.parametrize("size", [1, 8])
async def test_a_claim_without_any_answer_is_settled_in_the_background(host, size):
    claimer = await host.claimer(IMPATIENT)
    await claim(claimer, Want("", 1, SMALL))
    host.brokers[0].lose_acks = 1
    claiming = asyncio.create_task(claim(claimer, Want("", size, SMALL)))
    await eventually(lambda: count_held(claimer, 1 + size))
    host.brokers[0].lose_sends = 3
    with pytest.raises(cp.AppendOutcomeUnknownError):
        await claiming
    assert len(await held(claimer)) == 1 + size
    await eventually(lambda: count_held(claimer, 1), 5)
    await claimer.close(1)


async def count_held(claimer: Claimer, count: int) -> bool:
    return len(await held(claimer)) == count


async def test_a_claim_that_never_arrived_is_settled_too_and_then_released(host):
    """The same bytes are repeated until they land: only then nothing can land later."""
    claimer = await host.claimer(IMPATIENT)
    await claim(claimer, Want("", 1, SMALL))
    host.brokers[0].lose_sends = 3
    with pytest.raises(cp.AppendOutcomeUnknownError):
        await claim(claimer, Want("", 8, SMALL))
    await eventually(lambda: claimer.watch(HOST).contested, 5)
    assert len(await held(claimer)) == 1
    ports = {r.event.port async for r in claimer._log.read()}
    assert len(ports) == 9
    await claimer.close(1)


async def doubtful(host, settings: cp.Settings) -> tuple[Claimer, Want]:
    """A claimant whose claim on all there is is in doubt, and what it claimed."""
    claimer, want = (
        await host.claimer(settings),
        Want("", 8, cp.PortRange(20000, 20007)),
    )
    await claimer.watch(HOST).look()
    host.brokers[0].lose_sends = 1000
    with pytest.raises(cp.AppendOutcomeUnknownError):
        await claim(claimer, want)
    return claimer, want


async def test_ports_in_doubt_are_waited_for_but_not_for_ever(host):
    """Whether they are taken the log says, and not those who wait for it here."""
    brief = msgspec.structs.replace(IMPATIENT, connect_timeout_s=0.3)
    claimer, want = await doubtful(host, brief)
    with pytest.raises(cp.LogUnavailableError, match="in doubt"):
        await claim(claimer, want)
    await claimer.close(0)


async def test_ports_in_doubt_are_granted_once_it_is_over(host):
    claimer, want = await doubtful(host, IMPATIENT)
    waiting = asyncio.create_task(claim(claimer, want))
    for _ in range(20):
        await asyncio.sleep(0)
    assert not await held(claimer)
    host.brokers[0].lose_sends = 0
    (block,) = await waiting
    assert await held(claimer) == dict.fromkeys(block, block.claim_id)
    await claimer.close(1)


@pytest.mark.parametrize("steps", [1, 2, 3, 5, 8])
async def test_what_a_cancelled_claim_leaves_is_granted_to_who_came_meanwhile(
    host, steps
):
    small = cp.PortRange(20000, 20001)
    claimer = await host.claimer()
    await claimer.watch(HOST).look()
    first, second = (
        asyncio.create_task(claim(claimer, Want("", 2, small))) for _ in range(2)
    )
    for _ in range(steps):
        await asyncio.sleep(0)
    first.cancel()
    await asyncio.wait([first])
    if first.cancelled():
        (block,) = await second
    else:
        (block,) = first.result()
        with pytest.raises(cp.PortsExhaustedError):
            await second
    assert await held(claimer) == dict.fromkeys(block, block.claim_id)
    await claimer.close(1)


async def test_of_many_who_want_the_last_block_one_has_it_and_the_others_are_told(host):
    small = cp.PortRange(20000, 20001)
    claimer = await host.claimer()
    claims = (claim(claimer, Want("", 2, small)) for _ in range(9))
    answers = await asyncio.gather(*claims, return_exceptions=True)
    refused = [one for one in answers if isinstance(one, cp.PortsExhaustedError)]
    assert len(refused) == 8
    assert len(await held(claimer)) == 2


async def test_a_cancelled_claim_leaves_nothing(host):
    claimer = await host.claimer()
    await claimer.watch(HOST).look()
    for steps in range(40):
        claiming = asyncio.create_task(claim(claimer, Want("", 8, SMALL)))
        for _ in range(steps):
            await asyncio.sleep(0)
        claiming.cancel()
        try:
            (block,) = await claiming
        except asyncio.CancelledError:
            continue
        await claimer.release(block)
    await claimer.close(5)
    assert not await held(claimer)


async def test_more_than_an_expiry_can_carry_is_refused_with_the_reason(host):
    claimer, me = await host.claimer(), owner()
    wide = cp.PortRange(20000, 29999)
    (block,) = await claim(claimer, Want("", 893, wide), owner=me)
    with pytest.raises(cp.InvalidIdentityError, match="at most 900 ports"):
        await claim(claimer, Want("", 8, wide), owner=me)
    await claim(claimer, Want("", 8, wide), owner=owner("w2"))
    await claimer.release(block)
    await claim(claimer, Want("", PORTS_MAX, wide), owner=me)


async def test_a_refused_claim_is_not_counted(host):
    claimer, me = await host.claimer(), owner()
    with pytest.raises(cp.PortsExhaustedError):
        await claim(
            claimer,
            *(Want(f"{n}", 8, cp.PortRange(20000, 20007)) for n in (1, 2)),
            owner=me,
        )
    await claim(claimer, Want("", PORTS_MAX, cp.PortRange(20000, 29999)), owner=me)


async def test_sockets_can_be_tried_on_this_host_only(host):
    claimer = await host.claimer()
    with pytest.raises(cp.SettingsError, match="bind_check=False"):
        await claimer.claim(
            [Want("", 1, SMALL)], host="192.0.2.77", owner=owner(), lease_ttl_s=30.0
        )


@pytest.mark.parametrize("payload", [b"{", b'{"type": "port_leased.v9"}'])
async def test_a_port_whose_last_record_says_nothing_is_not_free(host, payload):
    small = cp.PortRange(20000, 20001)
    claimer = await host.claimer()
    names = claimer._log.names
    subject = names.absolute(f"log.port.{encode_token(HOST)}.20000")
    await host.brokers[0].store(
        names.log_stream, Outgoing(subject=subject, payload=payload)
    )
    (block,) = await claim(claimer, Want("", 1, small))
    assert block.start == 20001
    with pytest.raises(cp.PortsExhaustedError):
        await claim(claimer, Want("", 1, small))


async def test_a_claim_under_a_record_that_says_nothing_is_released(host):
    claimer = await host.claimer()
    (block,) = await claim(claimer, Want("", 2, SMALL))
    names = claimer._log.names
    subject = names.absolute(f"log.port.{encode_token(HOST)}.{block.start}")
    await host.brokers[0].store(
        names.log_stream, Outgoing(subject=subject, payload=b"{")
    )
    await claimer.release(block)
    assert not await held(claimer)


async def test_what_another_let_go_is_a_conflict_and_stays_as_it_is(host):
    """S13: a zombie's release changes nothing of those who came after it."""
    zombie, other = await host.claimer(), await host.claimer()
    small = cp.PortRange(20000, 20001)
    (old,) = await claim(zombie, Want("", 2, small))
    expired = [
        msgspec.structs.replace(
            one, event=msgspec.structs.replace(one.event, cause="expired")
        )
        for one in await other.releases([old])
    ]
    await other._log.append_all(expired)
    with pytest.raises(cp.AppendConflictError, match="its life expired"):
        await zombie.release(old)
    (new,) = await claim(other, Want("", 2, small))
    with pytest.raises(cp.AppendConflictError):
        await zombie.release(old)
    assert await held(zombie) == dict.fromkeys(new, new.claim_id)


async def test_letting_go_twice_is_letting_go(host):
    claimer = await host.claimer()
    (block,) = await claim(claimer, Want("", 2, SMALL))
    await claimer.release(block)
    await claimer.release(block)


@pytest.mark.parametrize("odd", ["foo", {}, owner("x" * 129)])
async def test_an_odd_owner_is_refused_before_anything_is_sent(host, odd):
    claimer = await host.claimer()
    with pytest.raises(cp.InvalidIdentityError):
        await claim(claimer, Want("", 1, SMALL), owner=odd)
    assert not [record async for record in claimer._log.read()]


# ---- a next life -------------------------------------------------------------------
async def test_a_next_life_claims_what_its_expiry_let_go_at_once(host):
    claimer = await host.claimer(cp.Settings(port_cooldown_s=3600))
    first = owner()
    (block,) = await claim(claimer, Want("kv", 2, SMALL), owner=first)
    second = owner()
    ask = {"lease_ttl_s": 30.0, "reasons": ["kv"]}
    assert await claimer.reclaims([block], owner=first, **ask) == []
    assert await claimer.reclaims([block], owner=second, **ask) is None
    await claimer._log.append_all(await claimer.releases([block]))
    again = await claimer.reclaims([block], owner=second, **ask)
    assert [one.event.port for one in again] == list(block)
    assert {one.event.claim_id for one in again} == {block.claim_id}
    assert {one.event.reason for one in again} == {"kv"}
    await claimer._log.append_all(again)
    assert await claimer.reclaims([block], owner=second, **ask) == []


async def test_a_next_life_loses_to_whoever_took_its_ports(host):
    claimer = await host.claimer()
    small = cp.PortRange(20000, 20001)
    (block,) = await claim(claimer, Want("kv", 2, small))
    await claimer._log.append_all(await claimer.releases([block]))
    await claim(claimer, Want("other", 2, small), owner=owner("w2"))
    with pytest.raises(cp.LeaseLostError, match="prod/w2 holds it"):
        await claimer.reclaims([block], owner=owner(), lease_ttl_s=30, reasons=["kv"])


# ---- many at once --------------------------------------------------------------------
async def test_what_comes_while_a_batch_is_under_way_goes_together(host):
    claimer = await host.claimer()
    await claimer.watch(HOST).look()
    before = host.brokers[0].stores
    blocks = await asyncio.gather(
        *(claim(claimer, Want("", 4, SMALL)) for _ in range(20))
    )
    assert host.brokers[0].stores - before <= 2
    assert await held(claimer) == {p: b.claim_id for (b,) in blocks for p in b}


async def test_one_lost_race_of_many_that_go_together_costs_the_others_nothing(host):
    claimer, other = await host.claimer(seed=1), await host.claimer(seed=2)
    await claimer.watch(HOST).look()
    taken = [(await claim(other, Want("", 4, SMALL)))[0] for _ in range(30)]
    blocks = [
        block
        for (block,) in await asyncio.gather(
            *(claim(claimer, Want("", 4, SMALL)) for _ in range(70))
        )
    ]
    ports = [port for block in (*taken, *blocks) for port in block]
    assert sorted(ports) == list(range(20000, 20400))
    assert sorted(await held(claimer)) == sorted(ports)


# ---- another log behind the same numbers ---------------------------------------------
async def test_a_claim_on_top_of_anothers_in_a_log_made_anew_is_not_granted(host):
    """Its numbers fit, and nothing told this process that the log is another."""
    one, two = await host.claimer(seed=1), await host.claimer(seed=2)
    only = Want("", 2, cp.PortRange(20000, 20001))
    (block,) = await claim(one, only)
    await one.release(block)
    await one.watch(HOST).look()
    broker, names = host.brokers[0], one._log.names
    await broker.delete_stream(names.log_stream)
    await topology.init(broker, "default", NO_REST)
    await claim(two, Want("", 2, cp.PortRange(20002, 20003)))
    (theirs,) = await claim(two, only)
    await two.watch(HOST).look()
    numbers = [
        watch.known.expected(20001) for watch in (one.watch(HOST), two.watch(HOST))
    ]
    assert numbers == [4, 4]
    with pytest.raises(cp.PortsExhaustedError):
        await claim(one, only)
    await two.release(theirs)  # it still is
    (block,) = await claim(one, only)
    assert block.start == 20000
