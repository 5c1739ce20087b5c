"""Whether the view has all that was acknowledged, of the log as it is now.

A revision alone proves nothing: a log that lost its tail gives the same numbers to
other records, and until its leader notices, the view shows what was lost. So the log is
asked for the record that the replica ends with. Where it holds another one, or ends
before, the replica is of lost history, and only another replica can be level.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from controlplane.errors import SettingsError
from controlplane.eventlog import EventLog, LogState
from events import ControlPlaneError, Revision

from .core import Core
from .movement import Movement
from .replica import Replica

SYNC_PAUSE_S: Final = 0.05

_T = TypeVar("_T")


class Syncing:
    """Answers `synced` for the view that ``core`` stands for at the moment."""

    def __init__(
        self, log: EventLog, movement: Movement, core: Callable[[], Core]
    ) -> None:
        """Ask ``log``; look again when ``movement`` says so."""
        self._log, self._movement, self._core = log, movement, core

    async def synced(self) -> None:
        """Wait until the view includes the log's end as it is now, or later.

        Raises `SettingsError` if the broker refuses to answer, `LogUnavailableError`
        when the view ends.
        """
        lost: tuple[Revision, str] | None = None
        while True:
            end = await _answer(self._log.state)
            replica = await self._candidate(end, lost)
            if replica is None:
                continue
            if await self._is_held(replica):
                return
            lost = _last_record(replica)

    async def _candidate(
        self, end: LogState, lost: tuple[Revision, str] | None
    ) -> Replica | None:
        """The replica that includes ``end``, unless it ends with the ``lost`` record.

        None: another epoch began. It may be one of a log whose end is lower now.
        """
        before = self._epoch

        def includes() -> bool:
            core = self._core()
            replica = core.replica
            return (
                replica is not None
                and core.source == "live"
                and replica.position.epoch.log_id == end.log_id
                and replica.revision >= end.last_revision
                and _last_record(replica) != lost
            )

        await self._movement.until(lambda: includes() or self._epoch != before)
        return self._core().replica if includes() else None

    @property
    def _epoch(self) -> object:
        replica = self._core().replica
        return None if replica is None else replica.position.epoch

    async def _is_held(self, replica: Replica) -> bool:
        """Whether the log holds the record that ``replica`` ends with.

        A record that was purged is no lost one: then the log, asked before, ends later.
        """
        if not replica.fingerprint:
            return True
        revision = replica.fingerprint_at
        if revision > (await _answer(self._log.state)).last_revision:
            return False
        record = await _answer(lambda: self._log.at(revision))
        return record is None or record.fingerprint == replica.fingerprint


def _last_record(replica: Replica) -> tuple[Revision, str]:
    return replica.fingerprint_at, replica.fingerprint


async def _answer(question: Callable[[], Awaitable[_T]]) -> _T:
    """The answer, however long it takes. Raises `SettingsError` when refused."""
    while True:
        try:
            return await question()
        except SettingsError:
            raise
        except ControlPlaneError:
            await asyncio.sleep(SYNC_PAUSE_S)
