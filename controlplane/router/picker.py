"""Picking: one router's randomness, turns and short memory of failed connections."""

from __future__ import annotations

from collections.abc import Collection
from random import Random
from typing import Literal, TypeAlias

from controlplane.clock import Clock
from controlplane.errors import SettingsError
from controlplane.telemetry import PickTally
from projections import (
    Candidates,
    Fleet,
    ModelNotFoundError,
    ModelUnavailableError,
    Policy,
    RandomNumbers,
    Wanted,
    Worker,
    WorkerKey,
    candidates,
    pick_in_turn,
    pick_weighted,
)

PolicyName: TypeAlias = Literal["weighted_random", "round_robin"]


class Picker:
    """Chooses workers out of a fleet; counts what came of it in ``tally``."""

    def __init__(self, clock: Clock, tally: PickTally) -> None:
        """Ejections are timed by ``clock``."""
        self._clock, self._tally = clock, tally
        self._ejected: dict[WorkerKey, float] = {}
        self._rng = Random()  # noqa: S311 - spreads load, guards nothing
        self._turn = 0

    def pick(
        self,
        fleet: Fleet,
        wanted: Wanted,
        policy: PolicyName | Policy,
        rng: RandomNumbers | None,
        exclude: Collection[Worker],
    ) -> Worker:
        """A worker out of ``fleet``. Raises as `RouterView.pick`."""
        try:
            kept_out = self._kept_out(exclude) if exclude or self._ejected else ()
            found = candidates(fleet, wanted, kept_out, fleet.visible)
        except ModelNotFoundError:
            self._tally.fail("model_not_found")
            raise
        except ModelUnavailableError:
            self._tally.fail("model_unavailable")
            raise
        worker = self._choose(fleet, found, policy, rng)
        self._tally.picked += 1
        return worker

    def eject(self, worker: Worker, for_s: float) -> None:
        """Do not pick ``worker`` for ``for_s`` seconds."""
        until = self._clock.monotonic() + for_s
        self._ejected[worker.namespace, worker.worker_id] = until

    @property
    def ejected(self) -> tuple[WorkerKey, ...]:
        """Who is ejected now."""
        self._forgive()
        return tuple(sorted(self._ejected))

    def _choose(
        self,
        fleet: Fleet,
        found: Candidates,
        policy: PolicyName | Policy,
        rng: RandomNumbers | None,
    ) -> Worker:
        if policy == "weighted_random":
            return pick_weighted(fleet, found, rng or self._rng)
        if policy == "round_robin":
            self._turn += 1
            return pick_in_turn(fleet, found, self._turn - 1)
        if callable(policy):
            return policy(found.workers(fleet))
        rule = "weighted_random, round_robin or a callable in this version"
        raise SettingsError(field="policy", value=policy, rule=rule)

    def _kept_out(self, exclude: Collection[Worker]) -> Collection[WorkerKey]:
        self._forgive()
        keys = {(worker.namespace, worker.worker_id) for worker in exclude}
        return keys | self._ejected.keys()

    def _forgive(self) -> None:
        now = self._clock.monotonic()
        self._ejected = {k: t for k, t in self._ejected.items() if t > now}
