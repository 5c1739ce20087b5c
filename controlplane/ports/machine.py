"""The machine of a plane: its name is looked up once, its ranges are warned of once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from controlplane.errors import SettingsError
from controlplane.logs import get_logger
from events import Host, check_host
from projections import Want

from .host import (
    ONE_MACHINE,
    host_name,
    is_address,
    is_loopback,
    is_this_host,
    means_no_machine,
)
from .sockets import warn_of_ephemeral_ports

_log = get_logger("ports")


class Machine:
    """Remembers what it was asked before: neither names nor ranges change."""

    def __init__(self, is_here: Callable[[Host], bool] = is_this_host) -> None:
        """Nothing was asked yet; ``is_here`` says so of a name, and may block."""
        self._is_here = is_here
        self._name: Host | None = None
        self._names: Final[dict[Host, None]] = {}
        """What else means this machine, as far as found out."""
        self._warned: Final[dict[tuple[int, int], None]] = {}

    def host(self, name: Host | None) -> Host:
        """The host meant by ``name``; None: this one.

        ``localhost``, loopback addresses and what `here` found to mean this machine
        are its `host_name`: one machine has one table. Any other name stays as it is.
        Raises `InvalidIdentityError` for what is no name, `SettingsError` for an
        address that is no machine's.
        """
        if name is None:
            return self._own_name()
        check_host(name)
        if means_no_machine(name):
            raise SettingsError(field="host", value=name, rule=ONE_MACHINE)
        if name in self._names:
            return self._own_name()
        return self._learnt(name) if is_loopback(name) else name

    async def here(self, name: Host | None) -> Host:
        """As `host`, for one whose ports are tried here; resolvers block nobody.

        Any name or address of this machine is its `host_name`. Raises `SettingsError`
        for another machine's.
        """
        if self._name is None:
            self._name = await asyncio.to_thread(host_name)
        host = self.host(name)
        if host == self._name:
            return host
        if is_address(host):
            here = self._is_here(host)
        else:
            here = await asyncio.to_thread(self._is_here, host)
        if not here:
            rule = "this host, unless bind_check=False: its ports are tried here"
            raise SettingsError(field="host", value=host, rule=rule)
        return self._own_name() if host in self._names else self._learnt(host)

    def _own_name(self) -> Host:
        if self._name is None:
            self._name = host_name()
        return self._name

    def _learnt(self, name: Host) -> Host:
        """``name`` means this machine; say it once."""
        own = self._own_name()
        self._names[name] = None
        if name != own:
            _log.info("this machine goes by its own name", asked=name, host=own)
        return own

    def warn(self, wants: Sequence[Want]) -> None:
        """Say of each range, once, if the kernel gives its ports to others, too."""
        for want in wants:
            ends = (want.within.first, want.within.last)
            if ends not in self._warned:
                self._warned[ends] = None
                warn_of_ephemeral_ports(want.within)
