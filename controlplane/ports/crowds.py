"""Hosts where others claim at the same time, and what to ask before a batch there.

An atomic batch costs the broker as much when it is refused as when it is stored, and it
does one at a time. A question costs a hundredth of that. So where others were met
lately it is first asked whether the log goes on from what is known of the chosen ports.
Met is who was faster, and whoever wrote to the log while one's own claim was under way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final

from controlplane.clock import Clock
from controlplane.errors import LogUnavailableError
from controlplane.eventlog import EventLog
from events import Host, Revision, port_subject

from .choosing import Choice
from .watching import HostWatch

CROWDED_S: Final = 10.0
"""So long after others were met they are expected there."""
DISTANCE: Final = 2
"""So many blocks before one's own should be as they were known: others come from there.

One of them may be under way, which nobody sees; then the one before it stands already.
"""


class Crowds:
    """Where claimants of other processes were met lately."""

    def __init__(self, log: EventLog, clock: Clock) -> None:
        """Nobody was met; questions go to ``log``."""
        self._log, self._clock = log, clock
        self._met: Final[dict[Host, float]] = {}

    def note(self, host: Host) -> None:
        """Others were met there."""
        self._met[host] = self._clock.monotonic()

    async def outdated(self, watch: HostWatch, chosen: Choice) -> bool:
        """Whether a batch for ``chosen`` is bound to be refused, if that is worth it.

        Only the ends of each block are asked for: equal blocks of a grid differ in all
        of their ports. False, too, where nobody was met, and for a lone port, which is
        cheap to lose; and if the question is not answered.
        """
        ends = {p for b in chosen.blocks for p in (b.start, b.start + b.size - 1)}
        expected = {port: chosen.expected[port] for port in ends}
        return len(ends) > 1 and await self._changed(watch.host, expected)

    async def in_the_way(self, watch: HostWatch, chosen: Choice) -> bool:
        """Whether others come towards ``chosen`` from below; asked as `outdated` is.

        Who claims again goes on behind the last block: a place right behind one of
        others' is where they are about to go.
        """
        if len(chosen.expected) == 1:
            return False
        before = {
            block.start - 1 - block.size * place
            for block in chosen.blocks
            for place in range(DISTANCE)
        }
        others = before - watch.certain()
        expected = {port: watch.known.expected(port) for port in others}
        return await self._changed(watch.host, expected)

    async def _changed(self, host: Host, expected: Mapping[int, Revision]) -> bool:
        if not self._is_crowded(host):
            return False
        asked = sorted(expected)
        try:
            found = await asyncio.gather(*(self._last(host, port) for port in asked))
        except LogUnavailableError:
            return False
        # Below what is known nothing was written: records were removed. The refusal of
        # the batch says so, and has the log read anew.
        return any(last > expected[p] for p, last in zip(asked, found, strict=True))

    def _is_crowded(self, host: Host) -> bool:
        met = self._met.get(host)
        return met is not None and self._clock.monotonic() - met < CROWDED_S

    async def _last(self, host: Host, port: int) -> Revision:
        last = await self._log.last(port_subject(host, port))
        return 0 if last is None else last.revision
