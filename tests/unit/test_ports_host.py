"""The machine's name in the log, and whether a name is this machine's."""

import ipaddress
import socket

import pytest

from controlplane.ports.host import LOOPBACK, host_name, is_this_host, own_addresses
from events import InvalidIdentityError
from tests.support.odd_addresses import NOBODY


def named(*addresses):
    return host_name(environ={}, addresses=lambda: addresses)


def test_the_primary_address_is_the_name():
    assert named("10.0.0.5", "fd00::2") == "10.0.0.5"
    assert named("fd00::2") == "fd00::2"


@pytest.mark.parametrize(
    "useless", ["127.0.1.1", "::1", "fe80::1%eth0", "169.254.7.7", "::", "x"]
)
def test_an_address_that_others_cannot_use_is_no_name(useless):
    assert named(useless, "10.0.0.5") == "10.0.0.5"


def test_a_machine_that_nobody_reaches_is_its_loopback_and_says_so(caplog):
    assert named("127.0.1.1") == LOOPBACK
    assert "set CP_HOST" in caplog.text
    assert [line.levelname for line in caplog.records] == ["WARNING"]


def test_what_one_is_told_goes_before_what_one_finds(caplog):
    environ = {"CP_HOST": "node-7"}
    assert host_name(environ=environ, addresses=list) == "node-7"
    assert host_name("node-8", environ=environ) == "node-8"
    assert host_name(environ={"CP_HOST": ""}, addresses=lambda: ["10.0.0.5"]) == (
        "10.0.0.5"
    )
    assert not caplog.records


def test_one_machine_is_told_its_name_in_any_spelling():
    for told in ("fd00::2", "FD00:0::2", "[fd00::2]"):
        assert host_name(environ={"CP_HOST": told}) == "fd00::2"
        assert is_this_host("fd00::2", environ={"CP_HOST": told})
    assert host_name(environ={"CP_HOST": "Node7"}) == "node7"
    assert named("::ffff:10.0.0.5") == "10.0.0.5"


def test_a_name_that_cannot_be_makes_no_other_name_this_machine_s():
    assert not is_this_host("nonesuch.invalid", environ={"CP_HOST": "a b"})


def test_what_is_no_host_s_name_is_refused():
    for told in ("x" * 254, "\ud800", " node7", "192.0.2.2 ", *NOBODY):
        with pytest.raises(InvalidIdentityError) as refused:
            host_name(told)
        assert refused.value.field == "host"


def test_this_machine_s_own_addresses_are_addresses_and_ours():
    addresses = list(own_addresses())
    for address in addresses:
        ipaddress.ip_address(address.partition("%")[0])
        assert is_this_host(address)
    versions = [ipaddress.ip_address(a.partition("%")[0]).version for a in addresses]
    assert versions[:2] != [6, 4], "IPv4 comes first"


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "localhost", "::1", "node-7", socket.gethostname()]
)
def test_this_host_is_known_by_its_addresses_and_by_what_it_is_told(host):
    assert is_this_host(host, environ={"CP_HOST": "node-7"})


@pytest.mark.parametrize(
    "host",
    [
        "203.0.113.7",
        "2001:db8::7",
        "nonesuch.invalid",
        "a" * 64,
        "node-7",
        *NOBODY,
        "0",
    ],
)
def test_another_host_is_not_this_one(host):
    assert not is_this_host(host, environ={})


def test_the_name_that_this_machine_finds_is_its_own():
    assert is_this_host(host_name(environ={}), environ={})
