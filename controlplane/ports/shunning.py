"""The ports of a host that this process keeps its claims off, and why.

The log says who holds what. This is what it does not say yet, or never will: claims
of this process that are under way, races that were lost, programs that never ask.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Final, TypeAlias

import msgspec

from events import Revision
from projections import PortBlock


class Reserved(msgspec.Struct, frozen=True):
    """A claim of this process on the port is under way."""


class Doubted(msgspec.Struct, frozen=True):
    """A claim of this process may have landed here, or may yet; it is being settled."""


class Landed(msgspec.Struct, frozen=True):
    """A claim of this process stands on the port, though it is not read back yet."""

    revision: Revision
    claim_id: str


class Contested(msgspec.Struct, frozen=True):
    """Somebody was faster here, or on a port beside; a look begun later shows it."""

    look: int


class Busy(msgspec.Struct, frozen=True):
    """Something uses the port outside the log; it is tried again later."""

    found_at: float


Shunned: TypeAlias = Reserved | Doubted | Landed | Contested | Busy
_RESERVED: Final = Reserved()


class Shunning:
    """No port is in two states of ``shunned``.

    While a claim is under way nobody else in this process chooses its ports.
    """

    def __init__(self) -> None:
        """Nothing is shunned yet."""
        self.shunned: Final[dict[int, Shunned]] = {}
        self._decided = asyncio.Event()

    @contextmanager
    def reserving(self, ports: Iterable[int]) -> Iterator[None]:
        """Keep others in this process off ``ports`` meanwhile.

        A port of which more is said meanwhile stays as that says.
        """
        ports = tuple(ports)
        self.shunned.update(dict.fromkeys(ports, _RESERVED))
        try:
            yield
        finally:
            for port in ports:
                if self.shunned.get(port) is _RESERVED:
                    del self.shunned[port]
            self._tell_decided()

    def landed(self, block: PortBlock, first: Revision) -> None:
        """A claim stands: of its ports the first at ``first``, the others behind."""
        for place, port in enumerate(block):
            self.shunned[port] = Landed(first + place, block.claim_id)

    def doubt(self, ports: Iterable[int]) -> None:
        """A claim on ``ports`` is in doubt: stay off until it is settled."""
        self.shunned.update(dict.fromkeys(ports, Doubted()))

    def _lost(self, ports: Iterable[int], look: int) -> None:
        """Somebody was faster at one of ``ports``, after ``look`` had begun."""
        self.shunned.update(dict.fromkeys(ports, Contested(look)))
        self._tell_decided()

    def _tell_decided(self) -> None:
        self._decided.set()
        self._decided = asyncio.Event()

    def _answered(self, look: int, read_to: Revision) -> None:
        """Let go of what ``look`` has answered, which read up to ``read_to``."""
        for port, why in list(self.shunned.items()):
            match why:
                case Contested(begun) if begun < look:
                    del self.shunned[port]
                case Landed(revision) if revision <= read_to:
                    del self.shunned[port]

    def _log_replaced(self) -> None:
        """What stands in the log that is there now is still to be read."""
        for port, why in list(self.shunned.items()):
            if isinstance(why, Landed):
                del self.shunned[port]

    def certain(self) -> set[int]:
        """The ports that are shunned whatever becomes of claims that are under way."""
        return {
            port for port, why in self.shunned.items() if isinstance(why, Landed | Busy)
        }

    def in_use(self) -> set[int]:
        """The ports that something was found to use outside the log."""
        return {port for port, why in self.shunned.items() if isinstance(why, Busy)}

    async def settled(self, within_s: float) -> bool:
        """Wait until a claim under way here ends, at most so long; whether one did.

        At once if none is.
        """
        if not any(isinstance(w, Reserved | Doubted) for w in self.shunned.values()):
            return True
        decided = self._decided
        try:
            async with asyncio.timeout(within_s):
                await decided.wait()
        except TimeoutError:
            return False
        return True

    def busy(self, port: int, at: float) -> None:
        """Something uses ``port`` outside the log; seen ``at``."""
        self.shunned[port] = Busy(at)

    def try_busy(self, before: float) -> None:
        """Forgive the ports that were found busy ``before``: they are tried again."""
        for port, why in list(self.shunned.items()):
            if isinstance(why, Busy) and why.found_at < before:
                del self.shunned[port]
