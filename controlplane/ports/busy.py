"""What is said of ports that are in use outside the log.

The log is told, so that nobody tries them for a cool-down. It is not told again and
again: a port that was found so lately, by whomever, is passed over without a word, or
a claim that finds no room would lengthen the log each time that it is tried.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Final

from controlplane.clock import Clock
from controlplane.errors import AppendConflictError
from controlplane.eventlog import EventLog
from controlplane.identifiers import new_uuid7
from controlplane.logs import get_logger
from controlplane.telemetry import PortMetrics
from events import Host, Revision
from projections import Resting

from .drafts import Drafts
from .sockets import BusyPort
from .watching import HostWatch

SAID_AGAIN_S: Final = 600.0
"""So long the log is not told again that a port is in use."""

_log = get_logger("ports")


class BusyPorts:
    """Notes what claims of this process found in use."""

    def __init__(
        self,
        log: EventLog,
        drafts: Drafts,
        clock: Clock,
        metrics: PortMetrics | None,
    ) -> None:
        """Nothing was found yet; tell ``log``."""
        self._log, self._drafts = log, drafts
        self._clock, self._metrics = clock, metrics
        self._warned: Final[dict[tuple[Host, int], None]] = {}

    async def note(
        self,
        watch: HostWatch,
        found: Sequence[BusyPort],
        expected: Mapping[int, Revision],
    ) -> None:
        """Keep claims off what was ``found``, and tell the log what is news there.

        ``expected`` is where the last record of each port stood when it was chosen.
        """
        for busy in found:
            watch.busy(busy.port, self._clock.monotonic())
            self._warn(watch.host, busy)
        if self._metrics is not None:
            self._metrics.busy.inc(len(found))
        news = [busy.port for busy in found if not _was_said(watch, busy.port)]
        unusable = [
            self._drafts.release(
                watch.host,
                port,
                expected[port],
                claim_id=new_uuid7(),
                cause="unusable",
            )
            for port in news
        ]
        if not unusable:
            return
        try:
            await self._log.append_all(unusable)
        except AppendConflictError:
            watch.contest(news, None)  # a look will show what the log has of them

    def _warn(self, host: Host, busy: BusyPort) -> None:
        if (host, busy.port) not in self._warned:
            self._warned[host, busy.port] = None
            _log.warning(
                "port in use outside the log",
                host=host,
                port=busy.port,
                reason=busy.reason,
            )


def _was_said(watch: HostWatch, port: int) -> bool:
    """Whether it is the port's last word that it is in use, and not an old one."""
    match watch.known.ports.get(port):
        case Resting(cause="unusable", since=since) if watch.now is not None:
            return watch.now - since < timedelta(seconds=SAID_AGAIN_S)
    return False
