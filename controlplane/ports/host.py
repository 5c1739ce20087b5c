"""The name of this machine in the log: the address by which others reach it.

All claims on one machine must name it alike: one physical port has one holder only as
far as everybody calls its host the same. ``CP_HOST`` settles it where the machine has
several addresses or names.
"""

from __future__ import annotations

import ipaddress
import os
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from controlplane.logs import get_logger
from events import Host, check_host

_log = get_logger("ports")

LOOPBACK: Final = "127.0.0.1"
_FAR: Final = (
    (socket.AF_INET, "8.8.8.8"),
    (socket.AF_INET6, "2001:4860:4860::8888"),
)
"""Where a route is asked for. Nothing is sent there: no datagram is written."""


def own_addresses() -> Iterator[str]:
    """What this machine may be reached by: as routes say first, IPv4 before IPv6."""
    for family, far in _FAR:
        try:
            with socket.socket(family, socket.SOCK_DGRAM) as asking:
                asking.connect((far, 9))
                yield str(asking.getsockname()[0])
        except OSError:
            continue  # no such family here, or no route: the next may do
    # No way out of this network, but perhaps into it: what our own name stands for.
    try:
        found = socket.getaddrinfo(socket.gethostname(), None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return
    for _, _, _, _, sockaddr in sorted(found, key=lambda one: one[0] != socket.AF_INET):
        yield str(sockaddr[0])


def host_name(
    override: str | None = None,
    *,
    environ: Mapping[str, str] = os.environ,
    addresses: Callable[[], Iterable[str]] = own_addresses,
) -> Host:
    """The name of this machine: ``override``, else ``CP_HOST``, else its address.

    That is the primary IPv4 address, else the IPv6 one, else the loopback address,
    with a warning. Raises `InvalidIdentityError` for what is no host's name.
    """
    told = override or environ.get("CP_HOST")
    if told:
        return check_host(told)
    for address in addresses():
        if _is_reachable(address):
            return address
    _log.warning(
        "no address by which others reach this machine, so its ports are named after "
        "the loopback address; set CP_HOST",
        host=LOOPBACK,
    )
    return LOOPBACK


def is_this_host(host: Host, *, environ: Mapping[str, str] = os.environ) -> bool:
    """Whether ``host`` is this machine, so that its ports can be tried here.

    It is if it was told so (``CP_HOST``), or if one of its addresses is ours. A name
    that is no address is looked up, which may take as long as the resolver does.
    """
    if host in {environ.get("CP_HOST"), "localhost", socket.gethostname()}:
        return True
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return False
    return any(_is_ours(family, sockaddr) for family, _, _, _, sockaddr in found)


def _is_reachable(address: str) -> bool:
    """Whether others could mean this machine by ``address``."""
    try:
        known = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    return not (known.is_loopback or known.is_link_local or known.is_unspecified)


def _is_ours(family: int, sockaddr: tuple[object, ...]) -> bool:
    """Whether a socket can be bound to the address: only the machine's own allow it."""
    try:
        with socket.socket(family, socket.SOCK_STREAM) as trying:
            trying.bind((sockaddr[0], 0, *sockaddr[2:]))
    except OSError:
        return False
    return True
