"""Hosts where others claim at the same time, and what to ask before a batch there.

An atomic batch costs the broker as much when it is refused as when it is stored, and it
does one at a time. A question costs a hundredth of that. So where others were met
lately it is first asked whether the log goes on from what is known of the chosen ports.
Met is who was faster, and whoever wrote to the log while one's own claim was under way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from controlplane.clock import Clock
from controlplane.errors import LogUnavailableError
from controlplane.eventlog import EventLog
from events import Host, port_subject
from projections import PortBlock

from .watching import HostWatch

CROWDED_S: Final = 10.0
"""So long after others were met they are expected there."""


class Crowds:
    """Where claimants of other processes were met lately."""

    def __init__(self, log: EventLog, clock: Clock) -> None:
        """Nobody was met; questions go to ``log``."""
        self._log, self._clock = log, clock
        self._met: Final[dict[Host, float]] = {}

    def note(self, host: Host) -> None:
        """Others were met there."""
        self._met[host] = self._clock.monotonic()

    async def outdated(self, watch: HostWatch, blocks: Sequence[PortBlock]) -> bool:
        """Whether a batch for ``blocks`` is bound to be refused, if that is worth it.

        Only the ends of each block are asked for: equal blocks of a grid differ in all
        of their ports. False, too, where nobody was met, and for a lone port, which is
        cheap to lose; and if the question is not answered.
        """
        ports = {port for b in blocks for port in (b.start, b.start + b.size - 1)}
        if len(ports) < 2 or not self._is_crowded(watch.host):  # noqa: PLR2004 - lone
            return False
        try:
            stands = await asyncio.gather(
                *(self._stands(watch, p) for p in sorted(ports))
            )
        except LogUnavailableError:
            return False
        return not all(stands)

    def _is_crowded(self, host: Host) -> bool:
        met = self._met.get(host)
        return met is not None and self._clock.monotonic() - met < CROWDED_S

    async def _stands(self, watch: HostWatch, port: int) -> bool:
        last = await self._log.last(port_subject(watch.host, port))
        revision = 0 if last is None else last.revision
        return revision == watch.known.expected(port)
