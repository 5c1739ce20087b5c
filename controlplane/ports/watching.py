"""What this process knows of one host's ports, and what it keeps its claims off.

Nothing is followed: a claim that is refused by the log tells soon enough that somebody
else claimed, and reading what came since costs less than hearing of every claim of
every neighbour. What was read is folded from the beginning, for only the fold knows
who holds a port: a release that is not its holder's changes nothing, though it may be
the last record there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime
from itertools import count
from typing import Final, TypeAlias

import msgspec
from immutables import Map
from msgspec.structs import replace

from controlplane.broker import Broker
from controlplane.errors import (
    HistoryTruncatedError,
    LogUnavailableError,
    StreamMissingError,
)
from controlplane.eventlog import EventLog, LogState
from controlplane.settings import Settings
from events import Host, Record, Revision, encode_token
from projections import HostPorts, PortBlock

ATTEMPT_S: Final = 2.0
"""So long a look may take without an answer before it is begun again…"""
AGAIN_S: Final = 0.1
"""…after so long."""
LAG_S: Final = 0.01
"""A replica that lags behind the leader is asked again after so long."""

LONG: Final = 1000
"""After a reading of more it is asked whether the log's beginning is still there."""


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


class HostWatch:
    """The ports of ``host`` as far as read, and those that are not to be chosen.

    ``known`` is the fold of all of the host's records up to some revision, and what is
    newer is found out by `look`. No port is in two states of ``shunned``: while a
    claim is under way nobody else in this process chooses its ports.
    """

    def __init__(
        self, log: EventLog, broker: Broker, settings: Settings, host: Host
    ) -> None:
        """Begin without knowledge; the first `look` reads everything."""
        self._log, self._broker, self._settings = log, broker, settings
        self._subject: Final = f"log.port.{encode_token(host)}.>"
        self.host: Final = host
        self.known = HostPorts(host=host)
        self.now: datetime | None = None
        """The broker's time at the last look: its clock is not behind that."""
        self.log_id = ""
        self.shunned: Final[dict[int, Shunned]] = {}
        self._position: Revision = 0
        self._fingerprint = ""
        self._end: Revision = 0
        self._certain: Revision = 0
        self._told: Revision = 0
        self._anew = False
        self._turn: Final = asyncio.Lock()
        self._looks = 0
        self._seen = 0
        self._decided = asyncio.Event()
        self.contested = 0
        """How often others were faster since the last look."""

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
        beginning is gone and was not read before: nobody can say who holds what.
        """
        asked = self._looks
        async with self._turn:
            if self._seen > asked and not anew:
                return
            self._looks += 1
            number, self.contested = self._looks, 0
            self._anew = self._anew or anew
            await self._read_patiently()
            self._seen = number
            self._forget_shunned(number)

    async def _read_patiently(self) -> None:
        """Read, again and again while the broker is lost or silent, but not for ever.

        An answer may never come: a replica may be gone with what was asked of it.
        """
        loop, patience_s = asyncio.get_running_loop(), self._settings.connect_timeout_s
        deadline = loop.time() + patience_s
        for attempt in count():
            # Longer each time: it may be that the broker is slow, and not silent.
            before, attempt_s = self._position, min(ATTEMPT_S * 2**attempt, patience_s)
            if not self._broker.connected:
                attempt_s += patience_s  # so long it waits for a connection
            try:
                async with asyncio.timeout(attempt_s):
                    await self._read()
            except StreamMissingError:
                raise
            except (LogUnavailableError, TimeoutError) as error:
                if self._position > before:
                    deadline = loop.time() + patience_s
                if loop.time() >= deadline:
                    raise self._unavailable(error) from error
            else:
                return
            await asyncio.sleep(AGAIN_S)

    def _unavailable(self, error: Exception) -> LogUnavailableError:
        doing = f"reading the ports of {self.host}"
        reason = getattr(error, "reason", "no answer in time")
        return LogUnavailableError(url=self._broker.url, doing=doing, reason=reason)

    async def _read(self) -> None:
        state, head, own = await asyncio.gather(
            self._log.state(), self._log.last(self._subject), self._own_last()
        )
        if self._is_replaced(state, head, own):
            self._begin_anew(is_another=self.log_id not in {"", state.log_id})
            # At once: an attempt that is cut is no reason to read from the beginning.
            self.log_id = state.log_id
        elif self._anew and state.first_revision == 1:
            self._begin_anew(is_another=False)
        self._anew = False
        self._check_beginning(state.first_revision)
        self._certain = before = max(self._certain, self._position)
        if head is not None:
            await self._read_up_to(head.revision)
        if self._position - before > LONG:
            self._check_beginning((await self._log.state()).first_revision)
        self._certain = max(state.last_revision, self._position)
        self.now = state.now
        self._end = self._told = state.last_revision

    async def _own_last(self) -> Record | None:
        return await self._log.at(self._position) if self._position else None

    def _is_replaced(
        self, state: LogState, head: Record | None, own: Record | None
    ) -> bool:
        """Whether the log is not the one that was read, or lost what was read last."""
        end = 0 if head is None else head.revision
        purged = self._position < state.first_revision
        return (
            state.log_id != self.log_id
            or (end < self._position and not purged)
            or (own is not None and own.fingerprint != self._fingerprint)
        )

    def _check_beginning(self, first: Revision) -> None:
        """Whether all that was before ``first`` is known: it cannot be read again.

        It is as far as was certain before the last reading: what is purged during a
        reading is passed over by it like any other hole.
        """
        if first <= 1:
            return
        if self._certain < first - 1:
            self._begin_anew(is_another=False)
            raise HistoryTruncatedError(first=first)
        # What a purged record said stands, but on its subject there is none any more.
        kept = {port: at for port, at in self.known.revisions.items() if at >= first}
        if len(kept) < len(self.known.revisions):
            self.known = replace(self.known, revisions=Map(kept))

    def _begin_anew(self, *, is_another: bool) -> None:
        self.known = HostPorts(host=self.host)
        self._position = self._certain = self._end = self._seen = 0
        for port, why in list(self.shunned.items()):
            if is_another and isinstance(why, Landed):
                del self.shunned[port]  # if it stands there, too, it will be read

    async def _read_up_to(self, end: Revision) -> None:
        """Fold on to ``end``, which the leader says is there.

        A replica may lag behind it: what it gives is a beginning all the same.
        """
        while self._position < end:
            await self._read_some(end)
            if self._position < end:
                await asyncio.sleep(LAG_S)

    async def _read_some(self, end: Revision) -> None:
        names, known, record = self._log.names, self.known, None
        batches = self._broker.read(
            names.log_stream,
            after=self._position,
            until=end,
            subject=names.absolute(self._subject),
        )
        async for batch in batches:
            for message in batch:
                record = self._log.record(message)
                known = known.after(record)
            if record is not None:
                self.known, self._position = known, record.revision
                self._fingerprint = record.fingerprint

    def _forget_shunned(self, look: int) -> None:
        """Let go of what the look has answered."""
        for port, why in list(self.shunned.items()):
            match why:
                case Contested(begun) if begun < look:
                    del self.shunned[port]
                case Landed(revision) if revision <= self._position:
                    del self.shunned[port]

    # ---- what this process does ------------------------------------------------
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

    def contest(self, ports: Iterable[int], last: Revision | None) -> None:
        """Somebody was faster at one of ``ports``: stay off until the next look.

        ``last`` is where his record stands, if that was told.
        """
        self._told = max(self._told, last or 0)
        self.shunned.update(dict.fromkeys(ports, Contested(self._looks)))
        self.contested += 1
        self._tell_decided()

    def _tell_decided(self) -> None:
        self._decided.set()
        self._decided = asyncio.Event()

    def certain(self) -> set[int]:
        """The ports that are shunned whatever becomes of claims that are under way."""
        return {
            port for port, why in self.shunned.items() if isinstance(why, Landed | Busy)
        }

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

    @property
    def unread(self) -> int:
        """How many records came since the last look, of any host, as far as told."""
        return max(0, self._told - self._end)

    def busy(self, port: int, at: float) -> None:
        """Something uses ``port`` outside the log; seen ``at``."""
        self.shunned[port] = Busy(at)

    def try_busy(self, before: float) -> None:
        """Forgive the ports that were found busy ``before``: they are tried again."""
        for port, why in list(self.shunned.items()):
            if isinstance(why, Busy) and why.found_at < before:
                del self.shunned[port]


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
