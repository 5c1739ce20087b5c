"""A picker, and what it hears of loads, on a clock that is moved by hand."""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from random import Random
from typing import Any

from controlplane.loads import LoadReport, encode_load
from controlplane.router.loads import Loads
from controlplane.router.picker import Ask, Picker
from controlplane.tally import PickTally
from controlplane.topology import Names
from projections import Fleet, Wanted
from tests.support.fleet_builder import MODEL, Step, fleet_after, registered

NAMES = Names("c")
WANTED = Wanted(model=MODEL)
NAMED = ("weighted_random", "round_robin", "least_loaded", "consistent_hash")


class HandClock:
    """A clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.time = 0.0

    def monotonic(self) -> float:
        return self.time

    def now(self) -> datetime:
        raise AssertionError


class Router:
    """A picker, and what it hears of loads, on a clock that is moved by hand."""

    def __init__(self, fleet: Fleet, seed: int = 1) -> None:
        self.clock, self.tally = HandClock(), PickTally()
        self.loads = Loads(self.clock, self.tally, fresh_s=5.0, forget_s=15.0)
        self.picker = Picker(self.clock, self.tally, self.loads)
        self.fleet, self.rng = fleet, Random(seed)

    def hear(
        self, worker: str, namespace: str = "prod", life: str = "", **said: Any
    ) -> None:
        """A report of the worker comes, of its current life or another."""
        incarnation = life or self.fleet.state.workers[namespace, worker].incarnation
        report = LoadReport(incarnation=incarnation, **said)
        subject = NAMES.relative(NAMES.load(namespace, worker))
        self.loads.hear(subject, encode_load(report), self.fleet)

    def pick(
        self,
        policy: Any = "least_loaded",
        key: Any = "k",
        exclude: Any = (),
        wanted: Wanted = WANTED,
    ) -> str:
        ask = Ask(policy, key, self.rng, exclude)
        return self.picker.pick(self.fleet, wanted, ask).worker_id

    def picks(
        self, count: int, policy: str = "least_loaded", **options: Any
    ) -> Counter[str]:
        keys = (f"k{n}" for n in range(count))
        return Counter(self.pick(policy, key=key, **options) for key in keys)


def three(*steps: Step, **fields: Any) -> Fleet:
    """Three workers, w1 to w3, and what happened then."""
    return fleet_after(*(registered(w, **fields) for w in ("w1", "w2", "w3")), *steps)
