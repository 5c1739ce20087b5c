"""Whether a port is in use outside the log, tried with real sockets."""

import os
import socket
import sys
from contextlib import ExitStack, closing
from pathlib import Path
from subprocess import run

import pytest

from controlplane.ports.sockets import (
    FAMILIES,
    BusyPort,
    ephemeral_ports,
    hold,
    warn_of_ephemeral_ports,
)
from projections import PortRange

SIZE = 4
BUSY = "Address already in use"
BOTH = pytest.mark.parametrize(
    ("family", "address"),
    [
        (socket.AF_INET, "127.0.0.1"),
        (socket.AF_INET, ""),
        (socket.AF_INET6, "::1"),
        (socket.AF_INET6, "::"),
    ],
)
TOO_MANY = """
import re, resource
from controlplane.errors import SettingsError
from controlplane.ports.sockets import hold
_, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
most = len(__import__("os").listdir("/proc/self/fd")) + 9
resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
try:
    hold(range({first}, {last}))
except SettingsError as refused:
    print(refused)
    advice = int(re.search("ulimit -n ([0-9]+)", str(refused))[1])
hold(range({first}, {first} + 4)).close()
resource.setrlimit(resource.RLIMIT_NOFILE, (advice, hard))
hold(range({first}, {last})).close()
resource.setrlimit(resource.RLIMIT_NOFILE, (advice - 1, hard))
try:
    hold(range({first}, {last}))
except SettingsError:
    print("as it said")
"""


FIRST = 10000 + os.getpid() * 64 % 20000
"""Below the ports that kernels hand out, and others in each process."""
BLOCKS = (range(first, first + SIZE) for first in range(FIRST, FIRST + 2000, SIZE))


@pytest.fixture
def block():
    """Ports that nobody uses, and no test before this one did."""
    return next(filter(is_free, BLOCKS))


def listener(port, family=socket.AF_INET, address="127.0.0.1"):
    """A socket as engines open one."""
    one = socket.socket(family, socket.SOCK_STREAM)
    one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    one.bind((address, port))
    one.listen()
    return one


def is_free(block):
    held = hold(block)
    if isinstance(held, tuple):
        return False
    held.close()
    return True


@BOTH
def test_a_port_with_a_listener_is_busy_wherever_it_listens(block, family, address):
    with closing(listener(block[2], family, address)):
        assert hold(block) == (BusyPort(block[2], BUSY),)
        assert is_free(block[:2])
    assert is_free(block)


def test_all_that_is_busy_in_a_block_is_found_at_once(block):
    with closing(listener(block[1])), closing(listener(block[3])):
        assert hold(block) == (BusyPort(block[1], BUSY), BusyPort(block[3], BUSY))


def test_a_listener_on_both_families_at_once_is_seen(block):
    with closing(socket.create_server(("", block[1]), family=socket.AF_INET6)):
        assert hold(block) == (BusyPort(block[1], BUSY),)
    both = {"family": socket.AF_INET6, "dualstack_ipv6": True}
    with closing(socket.create_server(("", block[1]), **both)):
        assert hold(block) == (BusyPort(block[1], BUSY),)


def test_a_port_whose_last_connection_lingers_is_free(block):
    with (
        closing(listener(block[0])) as engine,
        closing(socket.create_connection(("127.0.0.1", block[0]))) as client,
    ):
        served, _ = engine.accept()
        served.close()  # who closes first lingers in TIME_WAIT, on its own port
        assert client.recv(1) == b""
        assert hold(block) == (BusyPort(block[0], BUSY),)
    with closing(socket.socket()) as strict, pytest.raises(OSError, match=BUSY):
        strict.bind(("127.0.0.1", block[0]))
    assert is_free(block)


def test_a_port_from_which_somebody_is_connected_is_busy(block):
    with (
        closing(socket.create_server(("127.0.0.1", 0))) as far,
        closing(socket.create_connection(far.getsockname(), None, ("", block[3]))),
    ):
        assert hold(block) == (BusyPort(block[3], BUSY),)


def test_an_engine_may_open_its_ports_while_they_are_held_and_after(block):
    with hold(block):
        listener(block[0]).close()
        with closing(socket.socket()) as strict, pytest.raises(OSError, match=BUSY):
            strict.bind(("", block[0]))
    with closing(socket.socket()) as strict:
        strict.bind(("", block[0]))


def test_two_claimants_may_try_one_block_at_once_and_the_log_decides(block):
    with hold(block), hold(block):
        assert is_free(block)


def test_both_families_stand_on_the_whole_block(block):
    for family, address in FAMILIES:
        with hold(block), closing(socket.socket(family)) as strict:
            if family == socket.AF_INET6:
                strict.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            for port in block:
                with pytest.raises(OSError, match=BUSY):
                    strict.bind((address, port))


def test_nothing_is_left_open_by_a_busy_port(block):
    before = open_files()
    with closing(listener(block[3])):
        for _ in range(5):
            assert isinstance(hold(block), tuple)
    assert open_files() == before


@pytest.mark.parametrize(
    "absent",
    [
        pytest.param((socket.AF_UNSPEC, "::"), id="no such family"),
        pytest.param((socket.AF_INET, "203.0.113.7"), id="no such address"),
    ],
)
def test_a_family_that_the_machine_lacks_is_no_error(block, absent):
    families = (FAMILIES[0], absent)
    held = hold(block, families)
    assert isinstance(held, ExitStack)
    held.close()
    with closing(listener(block[1])):
        assert hold(block, families) == (BusyPort(block[1], BUSY),)


def test_too_few_open_files_are_told_from_a_busy_port(block):
    code = TOO_MANY.format(first=block[0], last=block[0] + 40)
    told = run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    refused, proven = told.stdout.splitlines()
    assert refused.startswith("limit of open files ")
    assert "a claim of 40 ports with bind_check holds 80 sockets" in refused
    assert proven == "as it said", "what was advised is enough, and no more than that"


def open_files():
    return len(list(Path("/proc/self/fd").iterdir()))


# ---- ports that the kernel gives out -----------------------------------------------
def kernel(folder, ports="32768\t60999\n", reserved="\n"):
    (folder / "ip_local_port_range").write_text(ports, encoding="ascii")
    (folder / "ip_local_reserved_ports").write_text(reserved, encoding="ascii")
    return folder


def test_ports_that_the_kernel_gives_out_are_counted(tmp_path):
    there = kernel(tmp_path)
    assert ephemeral_ports(PortRange(20000, 30000), there) == 0
    assert ephemeral_ports(PortRange(20000, 32767), there) == 0
    assert ephemeral_ports(PortRange(20000, 32768), there) == 1
    assert ephemeral_ports(PortRange(32767, 33000), there) == 233
    assert ephemeral_ports(PortRange(20000, 20010), kernel(tmp_path, "1024 20001")) == 2


def test_ports_that_the_kernel_was_told_to_keep_are_not_given_out(tmp_path):
    there = kernel(tmp_path, "20000 30000", "8080,20000-20002,20005\n")
    assert ephemeral_ports(PortRange(20000, 20009), there) == 6


@pytest.mark.parametrize("text", ["", "garbage here", "1 2 3"])
def test_a_kernel_that_does_not_say_gives_out_nothing(tmp_path, text):
    assert ephemeral_ports(PortRange(20000, 30000), tmp_path) == 0
    assert ephemeral_ports(PortRange(20000, 30000), kernel(tmp_path, text)) == 0


def test_this_machine_s_kernel_says(tmp_path):
    assert ephemeral_ports(PortRange(1024, 49151)) > 0


def test_a_range_that_the_kernel_uses_too_is_warned_of(tmp_path, caplog):
    warn_of_ephemeral_ports(PortRange(20000, 30000), kernel(tmp_path))
    assert not caplog.records
    warn_of_ephemeral_ports(PortRange(32000, 32769), kernel(tmp_path))
    assert "within='32000-32769' overlapping=2" in caplog.text
    assert "ip_local_reserved_ports" in caplog.text
