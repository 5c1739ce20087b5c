"""What this process knows of one host's ports, and what it keeps its claims off.

Nothing is followed: a claim that is refused by the log tells soon enough that somebody
else claimed, and reading what came since costs less than hearing of every claim of
every neighbour.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from datetime import datetime
from itertools import count
from typing import Final

from controlplane.broker import Broker
from controlplane.errors import LogUnavailableError, StreamMissingError
from controlplane.eventlog import EventLog
from controlplane.settings import Settings
from events import Host, Revision
from projections import HostPorts

from .beginning import Beginnings
from .reading import HostReading
from .shunning import Shunning

ATTEMPT_S: Final = 2.0
"""So long a look may take without an answer before it is begun again…"""
AGAIN_S: Final = 0.1
"""…after so long."""
SEARCH_SHARE: Final = 0.25
"""Of the time that the broker has to answer, so much for a snapshot's bytes."""


class HostWatch(Shunning):
    """The ports of ``host`` as far as read, and those that are not to be chosen.

    ``known`` is the fold of all of the host's records up to some revision, and what is
    newer is found out by `look`.
    """

    def __init__(
        self, log: EventLog, broker: Broker, settings: Settings, host: Host
    ) -> None:
        """Begin without knowledge; the first `look` reads everything."""
        super().__init__()
        self._broker, self._settings = broker, settings
        beginnings = Beginnings(log, broker, settings.connect_timeout_s * SEARCH_SHARE)
        self._reading: Final = HostReading(
            log, broker, host, beginnings, forgot=self._forgot
        )
        self.host: Final = host
        self._told: Revision = 0
        self._turn: Final = asyncio.Lock()
        self._looks = 0
        self._seen = 0
        self.contested = 0
        """How often others were faster since the last look."""
        self.beside: int | None = None
        """The port behind the last block that was chosen; None: somebody is there.

        Who claims again goes on there, so that those who do so at once keep apart.
        """
        self._own_end: Revision = 0

    @property
    def known(self) -> HostPorts:
        """What is known of the host, as far as read."""
        return self._reading.known

    @property
    def now(self) -> datetime | None:
        """The broker's time at the last look: its clock is not behind that."""
        return self._reading.now

    @property
    def log_id(self) -> str:
        """The log that was read."""
        return self._reading.log_id

    # ---- looking ---------------------------------------------------------------
    @property
    def looked(self) -> bool:
        """Whether all was ever read, of the log that is there now."""
        return bool(self._seen)

    async def look(self, *, anew: bool = False) -> None:
        """Read what the log has on this host now, by its leader.

        All who ask while a look is under way share the next one. ``anew``: forget what
        is known first, for the case that records were removed from under it; but not
        if the log's beginning is gone. A look that is cut goes on where it was. Raises
        `LogUnavailableError` when nothing more is read for the time of
        ``settings.connect_timeout_s``; `HistoryTruncatedError` when the log's
        beginning is gone, was not read before and is in no usable snapshot: nobody
        can say who holds what.
        """
        asked = self._looks
        async with self._turn:
            if self._seen > asked and not anew:
                return
            self._looks += 1
            number, self.contested = self._looks, 0
            await self._read_patiently(anew=anew)
            self._told = self._reading.end
            self._seen = number
            self._answered(number, self._reading.position)

    async def _read_patiently(self, *, anew: bool) -> None:
        """Read, again and again while the broker is lost or silent, but not for ever.

        An answer may never come: a replica may be gone with what was asked of it.
        """
        loop, patience_s = asyncio.get_running_loop(), self._settings.connect_timeout_s
        deadline, reading = loop.time() + patience_s, self._reading
        for attempt in count():
            # Longer each time: it may be that the broker is slow, and not silent.
            before = reading.position
            attempt_s = min(ATTEMPT_S * 2**attempt, patience_s)
            if not self._broker.connected:
                attempt_s += patience_s  # so long it waits for a connection
            try:
                async with asyncio.timeout(attempt_s):
                    await reading.read(anew=anew)
            except StreamMissingError:
                raise
            except (LogUnavailableError, TimeoutError) as error:
                if reading.position > before:
                    deadline = loop.time() + patience_s
                if loop.time() >= deadline:
                    raise self._unavailable(error) from error
            else:
                return
            anew = False  # that was noted, or done
            await asyncio.sleep(AGAIN_S)

    def _unavailable(self, error: Exception) -> LogUnavailableError:
        doing = f"reading the ports of {self.host}"
        reason = getattr(error, "reason", "no answer in time")
        return LogUnavailableError(url=self._broker.url, doing=doing, reason=reason)

    def _forgot(self, is_another: bool) -> None:  # noqa: FBT001 - what a callback gets
        """Nothing is known any more, in the log that is another now or not."""
        self._seen = self._own_end = 0
        if is_another:
            self._log_replaced()

    # ---- what others do --------------------------------------------------------
    def contest(self, ports: Iterable[int], last: Revision | None) -> None:
        """Somebody was faster at one of ``ports``: stay off until the next look.

        ``last`` is where his record stands, if that was told.
        """
        self._told = max(self._told, last or 0)
        self.contested += 1
        self.beside = None
        self._lost(ports, self._looks)

    def wrote(self, first: Revision, last: Revision) -> bool:
        """Note one's own records there; whether any of others' stand right before.

        Others' are those that came since the last look and one's last own.
        """
        end = max(self._reading.end, self._own_end)
        self._own_end = max(self._own_end, last)
        return first > end + 1

    @property
    def unread(self) -> int:
        """How many records came since the last look, of any host, as far as told."""
        return max(0, self._told - self._reading.end)


class Watches:
    """One `HostWatch` for each host that is asked for."""

    def __init__(self, log: EventLog, broker: Broker, settings: Settings) -> None:
        """Read ``log`` through ``broker``."""
        self._log, self._broker, self._settings = log, broker, settings
        self._by_host: Final[dict[Host, HostWatch]] = {}

    def of(self, host: Host) -> HostWatch:
        """What is known of ``host``."""
        watch = self._by_host.get(host)
        if watch is None:
            watch = HostWatch(self._log, self._broker, self._settings, host)
            self._by_host[host] = watch
        return watch
