"""The machine of a plane: its name is looked up once, its ranges are warned of once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from controlplane.errors import SettingsError
from events import Host, check_host
from projections import Want

from .host import host_name, is_this_host
from .sockets import warn_of_ephemeral_ports


class Machine:
    """Remembers what it was asked before: neither names nor ranges change."""

    def __init__(self) -> None:
        """Nothing was asked yet."""
        self._name: Host | None = None
        self._names: Final[dict[Host, None]] = {}
        self._warned: Final[dict[tuple[int, int], None]] = {}

    def host(self, name: Host | None, *, bind_check: bool) -> Host:
        """The host meant by ``name``; None: this one.

        Raises `SettingsError` for another one whose ports are to be tried here.
        """
        if name is None:
            if self._name is None:
                self._name = host_name()
            return self._name
        check_host(name)
        if bind_check and name not in self._names:
            if not is_this_host(name):
                rule = "this host, unless bind_check=False: its ports are tried here"
                raise SettingsError(field="host", value=name, rule=rule)
            self._names[name] = None
        return name

    def warn(self, wants: Sequence[Want]) -> None:
        """Say of each range, once, if the kernel gives its ports to others, too."""
        for want in wants:
            ends = (want.within.first, want.within.last)
            if ends not in self._warned:
                self._warned[ends] = None
                warn_of_ephemeral_ports(want.within)
