"""Picking: one router's randomness, turns and short memory of failed connections."""

from __future__ import annotations

from collections.abc import Collection
from random import Random
from typing import Final, Literal, TypeAlias

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
TRIES: Final = 8
"""Picks again so often when the pick is one to leave out, before it looks closely."""
TURNS_MAX: Final = 4096


class Picker:
    """Chooses workers out of a fleet; counts what came of it in ``tally``."""

    def __init__(self, clock: Clock, tally: PickTally) -> None:
        """Ejections are timed by ``clock``."""
        self._clock, self._tally = clock, tally
        self._ejected: dict[WorkerKey, float] = {}
        self._rng = Random()  # noqa: S311 - spreads load, guards nothing
        self._turns: dict[Wanted, int] = {}

    def pick(
        self,
        fleet: Fleet,
        wanted: Wanted,
        policy: PolicyName | Policy,
        rng: RandomNumbers | None,
        exclude: Collection[Worker],
    ) -> Worker:
        """A worker out of ``fleet``. Raises as `RouterView.pick`."""
        kept_out = self._kept_out(exclude) if exclude or self._ejected else ()
        try:
            worker = self._pick(fleet, wanted, policy, rng or self._rng, kept_out)
        except ModelNotFoundError:
            self._tally.fail("model_not_found")
            raise
        except ModelUnavailableError:
            self._tally.fail("model_unavailable")
            raise
        self._tally.picked += 1
        return worker

    def _pick(
        self,
        fleet: Fleet,
        wanted: Wanted,
        policy: PolicyName | Policy,
        rng: RandomNumbers,
        kept_out: Collection[WorkerKey],
    ) -> Worker:
        """Leaving few out is done by picking again: the shares come out the same.

        Only when that does not help, or the policy is the caller's, are candidates
        gathered without them, which costs as much as there are workers.
        """
        found = candidates(fleet, wanted, (), fleet.visible)
        if not callable(policy):
            for _ in range(TRIES):
                worker = self._choose(fleet, wanted, found, policy, rng)
                if not kept_out or (worker.namespace, worker.worker_id) not in kept_out:
                    return worker
        if kept_out:
            found = candidates(fleet, wanted, kept_out, fleet.visible)
        return self._choose(fleet, wanted, found, policy, rng)

    def eject(self, worker: Worker, for_s: float) -> None:
        """Do not pick ``worker`` for ``for_s`` seconds."""
        self._forgive()
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
        wanted: Wanted,
        found: Candidates,
        policy: PolicyName | Policy,
        rng: RandomNumbers,
    ) -> Worker:
        if policy == "weighted_random":
            return pick_weighted(fleet, found, rng)
        if policy == "round_robin":
            return pick_in_turn(fleet, found, self._turn_of(wanted))
        if callable(policy):
            return policy(found.workers(fleet))
        rule = "weighted_random, round_robin or a callable in this version"
        raise SettingsError(field="policy", value=policy, rule=rule)

    def _turn_of(self, wanted: Wanted) -> int:
        """Each wish has turns of its own: others' picks must not skip its workers."""
        if len(self._turns) >= TURNS_MAX:
            self._turns.clear()
        turn = self._turns.get(wanted, 0)
        self._turns[wanted] = turn + 1
        return turn

    def _kept_out(self, exclude: Collection[Worker]) -> Collection[WorkerKey]:
        self._forgive()
        keys = {(worker.namespace, worker.worker_id) for worker in exclude}
        return keys | self._ejected.keys()

    def _forgive(self) -> None:
        now = self._clock.monotonic()
        self._ejected = {k: t for k, t in self._ejected.items() if t > now}
