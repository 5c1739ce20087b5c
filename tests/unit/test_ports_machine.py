"""One machine has one name, whatever it is called."""

import asyncio
import logging
import socket
import threading

import pytest

from controlplane.errors import SettingsError
from controlplane.ports.host import host_name, is_this_host, own_addresses
from controlplane.ports.machine import Machine
from events import InvalidIdentityError
from tests.support.odd_addresses import NOBODY

OWN = [
    "localhost",
    "LocalHost",
    "127.0.0.1",
    "127.0.0.2",
    "::1",
    socket.gethostname(),
    *own_addresses(),
]


@pytest.mark.parametrize("name", OWN)
async def test_every_name_of_this_machine_is_its_own_whoever_asks(name):
    assert await Machine().host(name) == host_name()
    assert await Machine().here(name) == host_name()


@pytest.mark.parametrize("name", ["203.0.113.7", "2001:db8::7", "nonesuch.invalid"])
async def test_another_machine_s_name_stays_as_it_is_where_nothing_is_tried(name):
    assert await Machine().host(name) == name
    assert await Machine().host(None) == host_name()


@pytest.mark.parametrize(
    ("spelled", "name"),
    [
        ("2001:0DB8:0::1", "2001:db8::1"),
        ("::ffff:203.0.113.7", "203.0.113.7"),
        ("Nonesuch.Invalid.", "nonesuch.invalid"),
    ],
)
async def test_another_machine_is_one_however_it_is_spelled(spelled, name):
    machine = Machine()
    assert await machine.host(spelled) == await machine.host(name) == name


@pytest.mark.parametrize("name", [" node7", "192.0.2.2 ", "a\nb", "", 7])
async def test_what_no_machine_is_called_is_refused(name):
    for ask in (Machine().host, Machine().here):
        with pytest.raises(InvalidIdentityError, match="host"):
            await ask(name)


async def test_what_was_found_out_once_is_known_to_all():
    machine = Machine()
    for name in (None, *OWN):
        assert await machine.here(name) == host_name()
        assert await machine.host(name) == host_name()


async def test_a_name_is_looked_up_once():
    asked = []

    def is_here(name: str) -> bool:
        asked.append(name)
        return name == "mine.invalid"

    machine = Machine(is_here)
    for _ in range(3):
        looking = (machine.host(f"{n}.invalid") for n in ("mine", "yours", "mine"))
        assert await asyncio.gather(*looking) == [
            host_name(),
            "yours.invalid",
            host_name(),
        ]
    assert sorted(asked) == ["mine.invalid", "yours.invalid"]
    with pytest.raises(SettingsError):
        await machine.here("yours.invalid")
    with pytest.raises(SettingsError):
        await machine.here("yours.invalid")
    assert asked.count("yours.invalid") == 2, "a refusal is not for ever"


async def test_a_resolver_that_hangs_is_waited_for_once_and_believed_later():
    answering = threading.Event()
    machine = Machine(lambda _: answering.wait(5), lookup_s=0.05)
    loop = asyncio.get_running_loop()
    began = loop.time()
    assert await machine.host("slow.invalid") == "slow.invalid"
    waited = loop.time() - began
    assert 0.04 < waited < 2
    began = loop.time()
    for _ in range(20):
        assert await machine.host("slow.invalid") == "slow.invalid"
    assert loop.time() - began < 0.5, "nobody waits again"
    answering.set()
    assert await machine.here("slow.invalid") == host_name()
    assert await machine.host("slow.invalid") == host_name()


async def test_a_name_that_the_resolver_takes_for_a_loopback_address_is_this_machine():
    """As Debian's line for 127.0.1.1 does with the machine's own name."""

    def hosts_file(name, *_, **__):
        address = {"debian.invalid": "127.0.1.1", "far.invalid": "203.0.113.7"}[name]
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, 0))]

    machine = Machine(lambda name: is_this_host(name, resolve=hosts_file))
    own = host_name()
    assert await machine.host("debian.invalid") == own
    assert await machine.here("debian.invalid") == own
    assert await machine.host("far.invalid") == "far.invalid"


async def test_what_one_is_told_is_the_name_for_all_others(monkeypatch, caplog):
    monkeypatch.setenv("CP_HOST", "node-7")
    caplog.set_level(logging.INFO)
    machine = Machine()
    for _ in range(3):
        hosts = {await machine.here(n) for n in (None, "node-7", "127.0.0.1")}
        assert hosts == {"node-7"}
    (line,) = [one for one in caplog.records if "127.0.0.1" in one.getMessage()]
    assert "node-7" in line.getMessage()


@pytest.mark.parametrize("name", NOBODY)
async def test_an_address_of_no_machine_is_refused_with_the_rule(name):
    with pytest.raises(SettingsError, match="wildcard, multicast or broadcast"):
        await Machine().host(name)
    with pytest.raises(SettingsError, match="wildcard, multicast or broadcast"):
        await Machine().here(name)


@pytest.mark.parametrize("name", ["203.0.113.7", "2001:db8::7", "nonesuch.invalid"])
async def test_another_machine_is_refused_where_ports_are_tried(name):
    with pytest.raises(SettingsError, match="bind_check=False"):
        await Machine().here(name)


async def test_a_slow_resolver_keeps_nobody_waiting():
    """The loop runs on while a name is looked up, in a thread of its own."""
    found = threading.Event()

    def slow(_: str) -> bool:
        return found.wait(5)

    asking = asyncio.create_task(Machine(is_here=slow).here("a-name.invalid"))
    for _ in range(10):
        await asyncio.sleep(0)
    assert not asking.done()
    found.set()
    assert await asking == host_name()
