"""What a router counts at each pick; `telemetry` shows it when it is asked."""

from __future__ import annotations

from .labels import LOAD_OUTCOMES, PICK_FAILURES


class PickTally:
    """Picks counted as plain integers: picking must not pay for a lock."""

    __slots__ = ("all_busy", "failed", "heard", "picked", "reporting")

    def __init__(self) -> None:
        """Start at nothing."""
        self.picked = self.all_busy = self.reporting = 0
        self.heard: dict[str, int] = dict.fromkeys(LOAD_OUTCOMES, 0)
        self.failed: dict[str, int] = dict.fromkeys(PICK_FAILURES, 0)

    def fail(self, reason: str) -> None:
        """Count one pick that raised, under one of `PICK_FAILURES`."""
        self.failed[reason] = self.failed.get(reason, 0) + 1

    def hear(self, outcome: str) -> None:
        """Count one load report, under one of `LOAD_OUTCOMES`."""
        self.heard[outcome] += 1
