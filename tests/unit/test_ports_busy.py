"""Ports in use outside the log: counted, told to the log once, tried again."""

import socket
from contextlib import ExitStack

import pytest

import controlplane as cp
from controlplane.ports import busy
from events import PortReleased
from projections import Want
from tests.support.port_hosts import NO_REST, Host, owner
from tests.unit.test_ports_sockets import BLOCKS, is_free

RESTING = cp.Settings(port_cooldown_s=60.0)


@pytest.fixture
async def host():
    made = Host()
    yield made
    for broker in made.brokers:
        await broker.stop()


@pytest.fixture
def programs():
    """Closed: they are gone."""
    with ExitStack() as listening:
        yield listening


@pytest.fixture
def within(programs):
    """Four ports on which programs listen that never ask."""
    block = next(filter(is_free, BLOCKS))
    for port in block:
        programs.enter_context(socket.create_server(("127.0.0.1", port)))
    return cp.PortRange(block[0], block[-1])


async def refused(claimer, size, within):
    with pytest.raises(cp.PortsExhaustedError) as caught:
        await claimer.claim([Want("", size, within)], owner=owner(), lease_ttl_s=30.0)
    return caught.value


async def told(claimer):
    return [
        record.event.port
        async for record in claimer._log.read()
        if isinstance(record.event, PortReleased)
    ]


@pytest.mark.parametrize("settings", [NO_REST, RESTING])
@pytest.mark.parametrize("size", [1, 4])
async def test_a_range_in_use_is_refused_alike_each_time_and_told_once(
    host, within, settings, size
):
    claimer, other = [await host.claimer(settings) for _ in range(2)]
    errors = [await refused(one, size, within) for one in (claimer, claimer, other)]
    assert [(e.free, e.resting, e.busy) for e in errors] == [(0, 0, 4)] * 3
    assert len(set(map(str, errors))) == 1
    assert "4 in use outside the log; end the programs" in str(errors[0])
    assert "release" not in str(errors[0]), "nobody holds anything"
    assert sorted(await told(claimer)) == list(range(within.first, within.last + 1))


async def test_the_log_is_told_again_when_that_is_old(host, within, monkeypatch):
    claimer = await host.claimer()
    await refused(claimer, 4, within)
    monkeypatch.setattr(busy, "SAID_AGAIN_S", 0.0)
    await refused(claimer, 4, within)
    assert len(await told(claimer)) == 8


async def test_what_others_said_meanwhile_is_read_and_not_said_again(host, within):
    """Its append is refused by the log, for theirs came first."""
    slow, other = [await host.claimer() for _ in range(2)]
    await slow.watch(await slow.host(None)).look()
    await refused(other, 4, within)
    error = await refused(slow, 4, within)
    assert error.busy == 4
    assert len(await told(slow)) == 4


async def test_a_port_is_claimed_as_soon_as_the_program_is_gone(host, within, programs):
    """It was told to rest, but nobody has it: without a cool-down it is free."""
    claimer = await host.claimer()
    await refused(claimer, 4, within)
    programs.close()
    claimed = await claimer.claim(
        [Want("", 4, within)], owner=owner(), lease_ttl_s=30.0
    )
    assert list(claimed.blocks[0]) == list(range(within.first, within.last + 1))
