"""What load reports mean: which worker is fuller than another, and which is busy."""

from __future__ import annotations

from typing import Final

import msgspec

from events import Capacity

from .entities import Thresholds

SLOTS: Final = 256
"""Requests at once of a worker that does not say its ``max_num_seqs``."""


class Load(msgspec.Struct, frozen=True, gc=False):
    """How busy a worker said it is; None: it did not say."""

    kv_usage: float | None = None
    """The share of its KV cache in use, 0 to 1."""
    running: int | None = None
    waiting: int | None = None

    @property
    def says_something(self) -> bool:
        """Whether anything of it is known."""
        return (self.kv_usage, self.running, self.waiting) != (None, None, None)


def slots_of(capacity: Capacity) -> int:
    """How many requests a worker of this capacity works on at once.

    A number that is not above 0 says nothing: old logs have such.
    """
    ranks = max(1, capacity.data_parallel_size or 1)
    seqs = max(0, capacity.max_num_seqs or 0)
    return (seqs or SLOTS) * ranks


def pressure(load: Load, slots: int) -> tuple[float, float]:
    """How often a worker's capacity is asked for, and what one more request adds.

    1: it is full. The scarcer of KV cache and ``slots`` says how full it is, and what
    one of its requests takes up; so much each adds that waits.
    """
    running, kv_usage = load.running or 0, load.kv_usage or 0.0
    full = max(kv_usage, running / slots)
    each = max(kv_usage / running, 1 / slots) if running else 1 / slots
    return full + (load.waiting or 0) * each, each


def is_busy(load: Load, limits: Thresholds) -> bool:
    """Whether the load reaches any of the limits that an operator set."""
    return (
        _reaches(load.kv_usage, limits.busy_kv_usage)
        or _reaches(load.running, limits.busy_running)
        or _reaches(load.waiting, limits.busy_waiting)
    )


def believed_for_s(chance: float, fresh_s: float, forget_s: float) -> float:
    """How old a report may be to be believed, at this ``chance`` in [0, 1).

    Always while fresh, never once forgotten; in between, one that is a third of the
    way from being forgotten is believed in a third of all cases.
    """
    return fresh_s + (1 - chance) * max(0.0, forget_s - fresh_s)


def _reaches(value: float | None, limit: float | None) -> bool:
    return value is not None and limit is not None and value >= limit
