"""What only the machine knows: whether a port is in use outside the log.

A port is tried as engines bind it: TCP, the wildcard address of IPv4 and of IPv6, with
SO_REUSEADDR. So a port on which anybody listens, on whatever address, is busy, and one
whose last connection still lingers in TIME_WAIT is not. Two claimants may hold one
port so at the same time: between them the log decides.
"""

from __future__ import annotations

import errno
import socket
from collections.abc import Collection, Sequence, Sized
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import msgspec

from controlplane.errors import SettingsError
from controlplane.logs import get_logger
from projections import PortRange

from .turns import files_max

_log = get_logger("ports")

KERNEL: Final = Path("/proc/sys/net/ipv4")
FAMILIES: Final[Sequence[tuple[int, str]]] = (
    (socket.AF_INET, "0.0.0.0"),  # noqa: S104 - engines stand on every address
    (socket.AF_INET6, "::"),
)
_ABSENT: Final = frozenset(
    {errno.EAFNOSUPPORT, errno.EPROTONOSUPPORT, errno.EADDRNOTAVAIL}
)
"""How a machine says that it does not have one of the families."""
_NO_ROOM: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


class BusyPort(msgspec.Struct, frozen=True):
    """A port that cannot be bound here, and the system's words for it."""

    port: int
    reason: str


def hold(
    ports: Collection[int], families: Sequence[tuple[int, str]] = FAMILIES
) -> ExitStack | tuple[BusyPort, ...]:
    """Sockets on all of ``ports`` until the stack is closed; or those that are busy.

    A family that the machine does not have is left out. Raises `SettingsError` if this
    process may not open that many sockets.
    """
    busy: list[BusyPort] = []
    with ExitStack() as opening:
        opened = 0
        for port in ports:
            for family, wildcard in families:
                try:
                    opening.enter_context(_bound(family, wildcard, port))
                except OSError as error:
                    if error.errno in _ABSENT:
                        continue
                    if error.errno not in _NO_ROOM:
                        busy.append(BusyPort(port, error.strerror or str(error)))
                        break
                    if busy:
                        return tuple(busy)
                    raise _too_many(error, opened, ports, families) from error
                opened += 1
        return tuple(busy) or opening.pop_all()


def _bound(family: int, wildcard: str, port: int) -> socket.socket:
    one = socket.socket(family, socket.SOCK_STREAM)
    try:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            # Else the socket would stand on IPv4 as well, in its own way.
            one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        one.bind((wildcard, port))
    except OSError:
        one.close()
        raise
    return one


def _too_many(
    error: OSError, opened: int, ports: Sized, families: Sized
) -> SettingsError:
    """After so many were ``opened`` for them there was no room for another."""
    needed, most = len(ports) * len(families), files_max()
    what = f"a claim of {len(ports)} ports with bind_check holds {needed} sockets"
    if error.errno != errno.EMFILE or most is None:
        rule = (
            f"{what} for a moment, and the system gave no more than {opened} "
            f"({error.strerror}): close what is open on this machine, or claim less "
            "at once"
        )
        return SettingsError(field="open sockets", value=needed, rule=rule)
    at_least = most - opened + needed
    rule = (
        f"{what} for a moment, so at least {at_least} files have to be allowed to this "
        f"process: raise its limit (ulimit -n {at_least}), or claim less at once"
    )
    return SettingsError(field="limit of open files", value=most, rule=rule)


def ephemeral_ports(within: PortRange, kernel: Path = KERNEL) -> int:
    """How many ports of ``within`` the kernel gives to outgoing connections.

    0 where it does not say. Ports that it is told to keep out of that are not counted.
    """
    try:
        text = (kernel / "ip_local_port_range").read_text(encoding="ascii")
        first, last = (int(word) for word in text.split())
        kept = (kernel / "ip_local_reserved_ports").read_text(encoding="ascii")
        parts = [part for part in kept.strip().split(",") if part]
        reserved = {port for part in parts for port in _reserved(part)}
    except (OSError, ValueError):
        return 0
    both = range(max(first, within.first), min(last, within.last) + 1)
    return sum(port not in reserved for port in both)


def _reserved(part: str) -> range:
    first, _, last = part.partition("-")
    return range(int(first), int(last or first) + 1)


def warn_of_ephemeral_ports(within: PortRange, kernel: Path = KERNEL) -> None:
    """Say if an outgoing connection of any program may sit on a claimed port."""
    count = ephemeral_ports(within, kernel)
    if count:
        _log.warning(
            "the port range overlaps the kernel's ephemeral range, so connections of "
            "any program may take ports of it; choose another, or reserve it with "
            "net.ipv4.ip_local_reserved_ports",
            within=str(within),
            overlapping=count,
        )
