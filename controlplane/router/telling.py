"""What a router tells others of itself: presence, and reports for looking back.

Both are best effort: they never hold up following or picking, and what cannot be
sent waits in a short line, of which the oldest regular ones are dropped first.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from controlplane.broker import Broker
from controlplane.clock import Clock
from controlplane.errors import (
    AppendConflictError,
    AppendOutcomeUnknownError,
    LogUnavailableError,
)
from controlplane.logs import get_logger
from controlplane.presence import (
    Presence,
    RouterReport,
    say_goodbye,
    say_presence,
    say_report,
)
from controlplane.topology import Names
from events import ControlPlaneError
from projections import WorkerKey

_log = get_logger("router")
REPORT_EVERY_S: Final = 10.0
REPORT_PAUSE_S: Final = 0.1
REPORTS_WAITING_MAX: Final = 16
EXPENDABLE: Final = frozenset({"regular", "ejected"})
"""Reasons of reports whose successors say nearly the same."""
PRESENCE_PAUSE_S: Final = 0.25
GOODBYE_S_MAX: Final = 1.0


class Teller:
    """Speaks for one router."""

    def __init__(
        self,
        broker: Broker,
        names: Names,
        clock: Clock,
        presence: Callable[[], Presence],
        ejections: Callable[[], tuple[tuple[WorkerKey, float], ...]],
        *,
        silent: bool = False,
    ) -> None:
        """Say what ``presence`` and ``ejections`` answer at that moment.

        ``silent``: say nothing at all.
        """
        self._silent = silent
        self._broker, self._names, self._clock = broker, names, clock
        self._presence, self._ejections = presence, ejections
        self._waiting: deque[RouterReport] = deque()
        self._report_due = asyncio.Event()
        self._said: int | None = None
        """Where one's last presence is stored; None: none is, as far as is known."""
        self._presenting: asyncio.Task[None] | None = None
        self._is_saying = self._is_leaving = False

    def start(
        self,
        tasks: asyncio.TaskGroup,
        every_s: float,
        moved: Callable[[], asyncio.Event],
    ) -> None:
        """Speak for as long as ``tasks`` run; see `_keep_present`."""
        if not self._silent:
            tasks.create_task(self._keep_present(every_s, moved))
            tasks.create_task(self._keep_reporting())

    # ---- presence --------------------------------------------------------------
    async def _keep_present(
        self, every_s: float, moved: Callable[[], asyncio.Event]
    ) -> None:
        """Say where the router stands, in a task that ends between two words."""
        self._is_leaving = False
        self._presenting = asyncio.create_task(self._present(every_s, moved))
        try:
            await asyncio.shield(self._presenting)
        finally:
            self._is_leaving = True
            if not self._is_saying:
                self._presenting.cancel()

    async def _present(
        self, every_s: float, moved: Callable[[], asyncio.Event]
    ) -> None:
        """Say where the router stands: when it ``moved``, and every ``every_s``.

        Moves in quick succession are told together, `PRESENCE_PAUSE_S` apart.
        """
        while not self._is_leaving:
            movement = moved()
            self._is_saying = True
            await self._say()
            self._is_saying = False
            if self._is_leaving:
                return
            may_at = self._clock.monotonic() + PRESENCE_PAUSE_S
            try:
                async with asyncio.timeout(every_s):
                    await movement.wait()
            except TimeoutError:
                continue
            pause_s = may_at - self._clock.monotonic()
            if pause_s > 0.0:
                await asyncio.sleep(pause_s)

    async def _say(self) -> None:
        """Once begun it is finished: a goodbye must know where it was stored."""
        try:
            presence = self._presence()
            self._said = await say_presence(self._broker, self._names, presence)
        except ControlPlaneError as error:
            _log.debug("presence not stored", reason=str(error))

    # ---- reports ---------------------------------------------------------------
    def report(self, reason: str) -> None:
        """Report as it is now; sent soon, or when there is contact again."""
        if self._silent:
            return
        ejections = self._ejections()
        report = RouterReport(
            presence=self._presence(),
            at=self._clock.now(),
            ejected=tuple("/".join(key) for key, _ in ejections),
            reason=reason,
            ejected_for_s=tuple(round(left_s, 3) for _, left_s in ejections),
        )
        if len(self._waiting) >= REPORTS_WAITING_MAX:
            self._drop_one()
        self._waiting.append(report)
        self._report_due.set()

    def _drop_one(self) -> None:
        """Of what says least, the oldest: that contact was lost must come through."""
        for place, report in enumerate(self._waiting):
            if report.reason in EXPENDABLE:
                del self._waiting[place]
                return
        self._waiting.popleft()

    async def _keep_reporting(self) -> None:
        """Send reports as they come, and a regular one when none came for long."""
        while True:
            try:
                async with asyncio.timeout(REPORT_EVERY_S):
                    await self._report_due.wait()
            except TimeoutError:
                self.report("regular")
            self._report_due.clear()
            await self._send()
            await asyncio.sleep(REPORT_PAUSE_S)

    async def _send(self) -> None:
        while self._waiting:
            report = self._waiting[0]
            try:
                await say_report(self._broker, self._names, report)
            except (LogUnavailableError, AppendOutcomeUnknownError):
                self._report_due.set()
                return
            except ControlPlaneError as error:
                _log.debug("report not stored", reason=str(error))
            if self._waiting and self._waiting[0] is report:
                self._waiting.popleft()

    async def goodbye(self) -> None:
        """The router leaves by itself: say so, if that is possible at once."""
        if self._silent:
            return
        try:
            async with asyncio.timeout(GOODBYE_S_MAX):
                await self._leave()
                self.report("stopped")
                await self._send()
        except (ControlPlaneError, TimeoutError):
            return

    async def _leave(self) -> None:
        """Empty one's entry, unless another router of the same name spoke since."""
        if self._presenting is not None:
            await asyncio.wait({self._presenting})
        said, self._said = self._said, None
        if said is None:
            return
        with suppress(AppendConflictError):
            await say_goodbye(self._broker, self._names, self._presence().name, said)
