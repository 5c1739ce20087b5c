"""What a caller was told already, so that it is told each thing once."""

from __future__ import annotations

from typing import Final

from controlplane.beats import WireNotice

from .signals import Deliver

TOLD_MAX: Final = 256
"""So many notices are remembered."""


class Told:
    """Notices that were delivered."""

    def __init__(self) -> None:
        """Remember nothing yet."""
        self._told: Final[dict[tuple[str, int], None]] = {}

    def deliver(self, notice: WireNotice) -> tuple[Deliver, ...]:
        """What to deliver of ``notice``: all, or nothing."""
        key = (notice.kind, notice.revision)
        if key in self._told:
            return ()
        self._told[key] = None
        while len(self._told) > TOLD_MAX:
            self._told.pop(next(iter(self._told)))
        return (Deliver(notice.kind, notice.reason, notice.revision),)
