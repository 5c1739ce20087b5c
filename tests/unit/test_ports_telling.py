"""What a caller is told of his blocks: in clear, and what to do next."""

import msgspec
import pytest

import controlplane as cp
from controlplane.ports.telling import what_became
from projections import HostPorts, Want
from tests.support.fleet_builder import HOST as BUILT
from tests.support.fleet_builder import claimed, given, poison, released, uuid7
from tests.support.port_hosts import HOST, Host, claim, owner

TWO = cp.PortRange(20000, 20001)
HASTY = cp.Settings(port_cooldown_s=0, append_timeout_s=0.05, connect_timeout_s=0.3)


@pytest.fixture
async def host():
    made = Host()
    yield made
    for broker in made.brokers:
        broker.lose_sends = 0
        await broker.stop()


async def said(release) -> str:
    with pytest.raises(cp.AppendConflictError) as refused:
        await release
    return str(refused.value)


async def test_who_releases_what_another_holds_is_told_who(host):
    claimer = await host.claimer()
    (block,) = await claim(claimer, Want("", 2, TWO), owner=owner("w2"))
    never = msgspec.structs.replace(block, claim_id="never-there")
    assert await said(claimer.release(never)) == (
        f"ports 20000-20001 of {HOST} not released: claim never-there does not hold "
        f"the block: prod/w2 holds port 20000 by claim {block.claim_id}; "
        "do not use it; claim another block"
    )


async def test_who_releases_what_nobody_claimed_is_told_that(host):
    never = cp.PortBlock(HOST, 20007, 1, "never-there")
    text = await said((await host.claimer()).release(never))
    assert text.startswith(f"port 20007 of {HOST} not released: claim never-there")
    assert "nobody ever claimed a port of it" in text
    assert "somebody" not in text


async def test_who_does_not_know_whether_he_claimed_is_told_to_claim_again(host):
    claimer = await host.claimer(HASTY)
    await claimer.watch(HOST).look()
    host.brokers[0].lose_sends = 1000
    with pytest.raises(cp.AppendOutcomeUnknownError) as unknown:
        await claim(claimer, Want("", 2, TWO))
    text = str(unknown.value)
    assert text.startswith(f"it is not known whether ports 20000-20001 of {HOST} were")
    assert text.endswith("claim again: what landed of this claim is released in time")
    await claimer.close(0)


async def test_who_does_not_know_whether_he_released_is_told_to_release_again(host):
    claimer = await host.claimer(HASTY)
    (block,) = await claim(claimer, Want("", 2, TWO))
    host.brokers[0].lose_sends = 1000
    with pytest.raises(cp.AppendOutcomeUnknownError, match="release again: twice is"):
        await claimer.release(block)
    host.brokers[0].lose_sends = 0
    await claimer.release(block)


@pytest.mark.parametrize(
    ("steps", "became"),
    [
        ([], "nobody ever claimed a port of it"),
        ([released(20001, claim="mine", cause="expired")], "its life expired"),
        ([released(20001, claim="mine")], "it was released"),
        ([claimed("w1", 20000, 2), released(20000, 2)], "other claims held its ports"),
        ([poison(f"log.port.{BUILT.replace('.', '%2E')}.20000", b"{")], "be read"),
        ([released(20000, claim=uuid7("x")), claimed("w2", 20001)], "prod/w2 holds"),
    ],
)
def test_why_a_block_is_not_held_is_told_from_its_ports(steps, became):
    known = HostPorts(host=BUILT)
    for record in given(*steps):
        known = known.after(record)
    assert became in what_became(known, cp.PortBlock(BUILT, 20000, 2, "mine"))
