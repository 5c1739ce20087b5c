"""The machine of a plane: what means it is found out once, its ranges warned of once.

One physical port has one holder only as far as everybody calls its host the same. So
of every name and address that is asked for it is found out whether it means this
machine: of an address by binding to it, of a name by what this machine's resolver says.
A name that it takes for a loopback address, as Debian's line for 127.0.1.1 does, means
this machine too: whoever connects to it from here arrives here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from threading import Thread
from typing import Final

import msgspec

from controlplane.errors import SettingsError
from controlplane.logs import get_logger
from events import Host, canonical_host
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

LOOKUP_S: Final = 1.0
"""So long the resolver may take; then a name is another machine's until it answers."""

_log = get_logger("ports")


class _Lookup(msgspec.Struct, frozen=True):
    """A question to the resolver, asked once for each name."""

    answer: asyncio.Future[bool]
    """Whether the name means this machine."""
    until: float
    """When those who do not need the answer stop to wait for it."""


class Machine:
    """Remembers what it was asked before: neither names nor ranges change."""

    def __init__(
        self,
        is_here: Callable[[Host], bool] = is_this_host,
        *,
        lookup_s: float = LOOKUP_S,
    ) -> None:
        """Nothing was asked yet; ``is_here`` says so of a name, and may block."""
        self._is_here, self._lookup_s = is_here, lookup_s
        self._name: Host | None = None
        self._names: Final[dict[Host, None]] = {}
        """What else means this machine, as far as found out."""
        self._lookups: Final[dict[Host, _Lookup]] = {}
        self._warned: Final[dict[tuple[int, int], None]] = {}

    async def host(self, name: Host | None) -> Host:
        """The host meant by ``name``; None: this one.

        Any name or address of this machine is its `host_name`: one machine has one
        table, and of every name one spelling is used. A name of which the resolver
        says nothing in time stays as it is until it does. Raises
        `InvalidIdentityError` for what is no name, `SettingsError` for an address that
        is no machine's.
        """
        name = None if name is None else _checked(name)
        if name is None or name in self._names:
            return await self._own_name()
        if is_address(name) or is_loopback(name):
            here = is_loopback(name) or self._is_here(name)
        else:
            lookup = self._looked_up(name)
            left_s = lookup.until - asyncio.get_running_loop().time()
            await asyncio.wait((lookup.answer,), timeout=max(0.0, left_s))
            here = lookup.answer.done() and lookup.answer.result()
        return await self._learnt(name) if here else name

    async def here(self, name: Host | None) -> Host:
        """As `host`, for one whose ports are tried here: waits for the resolver.

        Raises `SettingsError` for another machine's.
        """
        own = await self._own_name()
        name = None if name is None else _checked(name)
        if name is None or name in self._names or name == own:
            return own
        if is_address(name) or is_loopback(name):
            here = is_loopback(name) or self._is_here(name)
        else:
            here = await asyncio.shield(self._looked_up(name).answer)
        if not here:
            self._lookups.pop(name, None)  # whoever mends that is heard next time
            rule = "this host, unless bind_check=False: its ports are tried here"
            raise SettingsError(field="host", value=name, rule=rule)
        return await self._learnt(name)

    async def _own_name(self) -> Host:
        if self._name is None:
            self._name = await asyncio.to_thread(host_name)
        return self._name

    def _looked_up(self, name: Host) -> _Lookup:
        lookup = self._lookups.get(name)
        if lookup is None:
            until = asyncio.get_running_loop().time() + self._lookup_s
            lookup = _Lookup(_answered(self._is_here, name), until)
            self._lookups[name] = lookup
        return lookup

    async def _learnt(self, name: Host) -> Host:
        """``name`` means this machine; say it once."""
        own = await self._own_name()
        if name not in self._names:
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


def _checked(name: Host) -> Host:
    """``name`` in its one spelling if a machine could have it, else raise."""
    host = canonical_host(name)
    if means_no_machine(host):
        raise SettingsError(field="host", value=name, rule=ONE_MACHINE)
    return host


def _answered(ask: Callable[[Host], bool], name: Host) -> asyncio.Future[bool]:
    """What ``ask`` says, from a thread that nobody waits for when the process ends."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[bool] = loop.create_future()

    def work() -> None:
        here = False
        try:
            here = ask(name)
        finally:
            with suppress(RuntimeError):  # the loop was closed meanwhile
                loop.call_soon_threadsafe(tell, here)

    def tell(here: bool) -> None:  # noqa: FBT001 - what a callback gets
        if not answer.done():
            answer.set_result(here)

    Thread(target=work, name="resolver", daemon=True).start()
    return answer
