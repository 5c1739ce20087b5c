"""One machine has one name, whatever it is called."""

import asyncio
import logging
import socket
import threading

import pytest

from controlplane.errors import SettingsError
from controlplane.ports.host import host_name, own_addresses
from controlplane.ports.machine import Machine
from tests.support.odd_addresses import NOBODY


@pytest.mark.parametrize("name", ["localhost", "LocalHost", "127.0.0.1", "::1"])
def test_what_everybody_calls_his_own_machine_is_its_name(name):
    assert Machine().host(name) == host_name()


def test_other_names_stay_as_they_are_where_nothing_is_tried():
    assert Machine().host("10.0.0.9") == "10.0.0.9"
    assert Machine().host(None) == host_name()


async def test_every_name_of_this_machine_is_its_own_where_ports_are_tried():
    names = ["localhost", "127.0.0.2", "::1", socket.gethostname(), *own_addresses()]
    machine = Machine()
    for name in (None, *names):
        assert await machine.here(name) == host_name()
        assert machine.host(name) == host_name(), "and so in a table asked for later"


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
        Machine().host(name)
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
