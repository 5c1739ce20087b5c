"""What a benchmark reports: a figure, its bound, and its ceiling in the same run."""

from __future__ import annotations

import msgspec


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """One measured number."""

    name: str
    value: float
    unit: str
    bound: float | None = None
    """What the project promises at most; None: for information."""
    ceiling: float | None = None
    """The same without the project's own work, measured in the same run."""
    ceiling_is: str = ""

    @property
    def ok(self) -> bool:
        """Whether the promise is kept."""
        return self.bound is None or self.value <= self.bound

    @property
    def ratio(self) -> float | None:
        """How many times the ceiling it takes."""
        if not self.ceiling:
            return None
        return self.value / self.ceiling


def percentile(samples: list[float], share: float) -> float:
    """The value below which that share of the samples lies."""
    ordered = sorted(samples)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
