"""Keeping a router's checkpoint up to date, and reading it at the start."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Final

from controlplane.clock import Clock
from controlplane.logs import get_logger
from events import Cell
from projections import SnapshotUnusableError

from .checkpoint import CheckpointFile
from .replica import Replica

_log = get_logger("router")
REFRESH_S: Final = 60.0
"""An unchanged replica is written again after so long, for it is still fresh."""


class Keeper:
    """Saves what ``confirmed`` answers: the replica and how stale it is, or None."""

    def __init__(
        self,
        path: Path,
        cell: Cell,
        clock: Clock,
        confirmed: Callable[[], tuple[Replica, float] | None],
        saved: Callable[[], None],
    ) -> None:
        """Keep the checkpoint at ``path``; ``saved`` is called after each write.

        Raises `SettingsError` if that can be no file.
        """
        self._file, self._clock = CheckpointFile(path, cell), clock
        self._confirmed, self._told = confirmed, saved
        self._last: tuple[Replica, float] | None = None

    def load(self) -> tuple[Replica, float] | None:
        """What is there to begin with, and its age; None: nothing that can be used.

        Raises `SettingsError` if there is something else than a file.
        """
        self._file.check()
        try:
            replica, fresh_at = self._file.read()
        except SnapshotUnusableError as error:
            if not isinstance(error.__cause__, FileNotFoundError):
                _log.warning("checkpoint not used", reason=error.reason)
            return None
        return replica, max(0.0, (self._clock.now() - fresh_at).total_seconds())

    async def keep(self, every_s: float) -> None:
        """Save what is new, each ``every_s``."""
        while True:
            await asyncio.sleep(every_s)
            if self._has_news():
                await self.save()

    def _has_news(self) -> bool:
        found, last = self._confirmed(), self._last
        if found is None or last is None:
            return found is not None
        old = self._clock.monotonic() - last[1] >= REFRESH_S
        return found[0] is not last[0] or old

    async def save(self) -> None:
        """Save now, if there is anything confirmed."""
        found, now = self._confirmed(), self._clock.monotonic()
        if found is None:
            return
        replica, stale_for_s = found
        fresh_at = self._clock.now() - timedelta(seconds=stale_for_s)
        try:
            await asyncio.to_thread(self._file.write, replica, fresh_at)
        except OSError as error:
            path = str(self._file.path)
            _log.warning("checkpoint not written", path=path, reason=str(error))
            return
        self._last = (replica, now)
        self._told()
