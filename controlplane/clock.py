"""Time, as an argument: what reads a clock is handed one."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """Two clocks: one to measure with, one to tell people."""

    def monotonic(self) -> float:
        """Seconds from some start; never steps back. Leases are judged by it."""
        ...

    def now(self) -> datetime:
        """UTC. Information only: nothing is decided by it."""
        ...


class SystemClock:
    """The clocks of the machine it runs on."""

    def monotonic(self) -> float:
        """As `Clock.monotonic`."""
        return time.monotonic()

    def now(self) -> datetime:
        """As `Clock.now`."""
        return datetime.now(UTC)
