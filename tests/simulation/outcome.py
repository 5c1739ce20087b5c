"""What became of a run."""

from __future__ import annotations

import msgspec


class Violation(Exception):  # noqa: N818 - a finding, not an error of ours
    """An invariant does not hold."""

    def __init__(self, invariant: str, what: str) -> None:
        self.invariant, self.what = invariant, what
        super().__init__(f"{invariant}: {what}")


class Broken(msgspec.Struct, frozen=True, kw_only=True):
    """The first violation of a run."""

    invariant: str
    """Its name: one word per promise, as ``prefix`` or ``liveness``."""
    what: str
    """The values: who, where, expected, found."""
    at_s: float


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """A run's result. Equal plans have equal outcomes, byte for byte."""

    seed: int
    broken: Broken | None
    trace_digest: str
    """Of every line of the trace, whether it was kept or not."""
    trace: tuple[str, ...]
    """The readable lines; empty unless they were asked for."""
    callbacks: int
    records: int
    """Stored in the log, over all its histories."""
    virtual_s: float
