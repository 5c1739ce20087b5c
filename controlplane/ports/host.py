"""The name of this machine in the log: the address by which others reach it.

All claims on one machine must name it alike: one physical port has one holder only as
far as everybody calls its host the same. So what else means this machine (its loopback
and other addresses, names that stand for them) is taken as `host_name` where that can
be found out. ``CP_HOST`` settles it where the machine has several addresses or names;
then all processes of the machine need the same one.
"""

from __future__ import annotations

import ipaddress
import os
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, TypeAlias

from controlplane.logs import get_logger
from events import Host, InvalidIdentityError, canonical_host

_log = get_logger("ports")

LOOPBACK: Final = "127.0.0.1"
EVERYBODY: Final = frozenset({"255.255.255.255", "127.255.255.255"})
ONE_MACHINE: Final = (
    "the name or address of one machine: no wildcard, multicast or broadcast address"
)
Resolved: TypeAlias = tuple[int, int, int, str, tuple[Any, ...]]
"""What a resolver says of a name, as ``socket.getaddrinfo`` does."""
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
    with a warning; as `canonical_host` spells it. Raises `InvalidIdentityError` for
    what is no host's name.
    """
    told = override or environ.get("CP_HOST")
    if told:
        name = canonical_host(told)
        if means_no_machine(name):
            raise InvalidIdentityError(field="host", value=told, rule=ONE_MACHINE)
        return name
    for address in addresses():
        if _is_reachable(address):
            return canonical_host(address)
    _log.warning(
        "no address by which others reach this machine, so its ports are named after "
        "the loopback address; set CP_HOST",
        host=LOOPBACK,
    )
    return LOOPBACK


def is_this_host(
    host: Host,
    *,
    environ: Mapping[str, str] = os.environ,
    resolve: Callable[..., Sequence[Resolved]] = socket.getaddrinfo,
) -> bool:
    """Whether ``host`` is this machine, so that its ports can be tried here.

    It is if it was told so (``CP_HOST``), or if one of its addresses is ours; the
    wildcard, multicast and broadcast addresses are no machine's. A name that is no
    address is looked up, which may block as long as the resolver does. ``host`` is
    spelled as `canonical_host` does it.
    """
    if host in {_told(environ), "localhost", socket.gethostname().lower()}:
        return True
    try:
        found = resolve(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return False
    return any(_is_ours(family, sockaddr) for family, _, _, _, sockaddr in found)


def _told(environ: Mapping[str, str]) -> Host | None:
    """What ``CP_HOST`` says; None: nothing, or no host's name."""
    with suppress(InvalidIdentityError):
        return canonical_host(environ.get("CP_HOST", ""))
    return None


def _is_reachable(address: str) -> bool:
    """Whether others could mean this machine by ``address``."""
    known = _address(address)
    if known is None:
        return False
    return not (known.is_loopback or known.is_link_local or known.is_unspecified)


def is_loopback(host: Host) -> bool:
    """Whether everybody means his own machine by ``host``."""
    if host.lower() == "localhost":
        return True
    address = _address(host)
    return address is not None and address.is_loopback


def means_no_machine(host: Host) -> bool:
    """Whether ``host`` is an address of no machine, whatever the network."""
    address = _address(host)
    if address is None:
        return False
    nobody = address.is_unspecified or address.is_multicast
    return nobody or str(address) in EVERYBODY


def is_address(host: Host) -> bool:
    """Whether ``host`` is an address, so that nobody needs to look it up."""
    return _address(host) is not None


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None
    mapped = getattr(address, "ipv4_mapped", None)
    return address if mapped is None else ipaddress.ip_address(str(mapped))


def _is_broadcast(address: object) -> bool:
    """Whether datagrams to it go to a whole network: that one has to ask for."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
            asking.connect((address, 9))
    except PermissionError:
        return True
    except OSError:
        return False
    return False


def _is_ours(family: int, sockaddr: tuple[object, ...]) -> bool:
    """Whether a socket can be bound to the address: only the machine's own allow it.

    Those that are no machine's do, too.
    """
    address = sockaddr[0]
    if means_no_machine(str(address)):
        return False
    if family == socket.AF_INET and _is_broadcast(address):
        return False
    try:
        with socket.socket(family, socket.SOCK_STREAM) as trying:
            trying.bind((address, 0, *sockaddr[2:]))
    except OSError:
        return False
    return True
