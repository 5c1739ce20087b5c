"""Picking: one router's randomness, turns and short memory of failed connections."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping
from math import inf
from random import Random
from typing import Final, Literal, TypeAlias, get_args

import msgspec

from controlplane.clock import Clock
from controlplane.errors import SettingsError
from controlplane.telemetry import PickTally
from events import Role
from projections import (
    Candidates,
    Fleet,
    ModelNotFoundError,
    ModelUnavailableError,
    Policy,
    RandomNumbers,
    Registration,
    Ring,
    Wanted,
    Worker,
    WorkerKey,
    WorkerSetKey,
    candidates,
    derive_routable,
    draw_in_turn,
    draw_weighted,
    groups,
    only,
)

from .checking import (
    check_chance,
    check_chosen,
    check_seconds,
    check_worker,
    check_workers,
)
from .loads import Loads
from .ranking import Ranking

PolicyName: TypeAlias = Literal[
    "weighted_random", "round_robin", "least_loaded", "consistent_hash"
]
POLICIES: Final[tuple[str, ...]] = get_args(PolicyName)
TRIES: Final = 8
"""Picks again so often when the pick is one to leave out, before it looks closely."""
WORTH: Final = 16
"""…and once more for so many candidates: looking closely costs so much more then…"""
TRIES_MAX: Final = 64
"""…but not more often."""
NEVER: Final = -inf
TURNS_MAX: Final = 4096
RINGS_MAX: Final = 256


class Ask(msgspec.Struct, frozen=True, gc=False):
    """How a caller wants a worker chosen. ``key`` is for consistent_hash."""

    policy: PolicyName | Policy = "weighted_random"
    key: str | None = None
    rng: RandomNumbers | None = None
    exclude: Collection[Worker] = ()


class Picker:
    """Chooses workers out of a fleet; counts what came of it in ``tally``.

    Leaving few out is done by choosing again: the shares come out the same. Only when
    that does not help, or the policy is the caller's, are candidates gathered without
    them, which costs as much as there are workers.
    """

    def __init__(self, clock: Clock, tally: PickTally, loads: Loads) -> None:
        """Ejections are timed by ``clock``; ``loads`` say who is busy."""
        self._clock, self._tally, self._loads = clock, tally, loads
        self._ejected: dict[WorkerKey, float] = {}
        self._rng = Random()  # noqa: S311 - spreads load, guards nothing
        self._turns: dict[Hashable, int] = {}
        self._rings: dict[Hashable, Ring] = {}

    # ---- asking ----------------------------------------------------------------
    def pick(self, fleet: Fleet, wanted: Wanted, ask: Ask) -> Worker:
        """A worker out of ``fleet``. Raises as `RouterView.pick`."""
        _check(ask)
        kept_out = self._kept_out(ask.exclude) if ask.exclude or self._ejected else {}
        try:
            worker = self._pick(fleet, wanted, ask, kept_out)
        except (ModelNotFoundError, ModelUnavailableError) as error:
            self._fail(error)
            raise
        self._tally.picked += 1
        return worker

    def pick_group(self, fleet: Fleet, wanted: Wanted, ask: Ask) -> dict[Role, Worker]:
        """A worker of each role that a request needs. Raises as `pick`."""
        _check(ask)
        kept_out = self._kept_out(ask.exclude)
        try:
            group = self._group(fleet, wanted, ask, kept_out)
        except (ModelNotFoundError, ModelUnavailableError) as error:
            self._fail(error)
            raise
        self._tally.picked += 1
        return group

    def eject(self, worker: Worker, for_s: float) -> None:
        """Do not pick ``worker`` for ``for_s`` seconds.

        Raises `SettingsError` for what is no worker, or no finite time.
        """
        key, for_s = check_worker("worker", worker), check_seconds("for_s", for_s)
        self._forgive()
        self._ejected[key] = self._clock.monotonic() + for_s

    @property
    def ejected(self) -> tuple[WorkerKey, ...]:
        """Who is ejected now."""
        return tuple(key for key, _ in self.ejections)

    @property
    def ejections(self) -> tuple[tuple[WorkerKey, float], ...]:
        """Who is ejected now, and for how many seconds more."""
        self._forgive()
        now = self._clock.monotonic()
        return tuple((key, until - now) for key, until in sorted(self._ejected.items()))

    # ---- choosing --------------------------------------------------------------
    def _pick(
        self, fleet: Fleet, wanted: Wanted, ask: Ask, kept_out: Mapping[WorkerKey, str]
    ) -> Worker:
        found = candidates(fleet, wanted, (), fleet.visible)
        name, chosen = (wanted, fleet.visible), None
        if ask.policy == "consistent_hash":
            left_out = kept_out.__contains__ if kept_out else None
            chosen = self._by_key(name, found, ask, left_out)
        elif not callable(ask.policy):
            chosen = self._quickly(name, found, ask, kept_out)
        if chosen is not None:
            return self._sent(chosen)
        if kept_out:
            found = candidates(fleet, wanted, kept_out, fleet.visible)
        return self._closely(fleet, found, ask)

    def _group(
        self, fleet: Fleet, wanted: Wanted, ask: Ask, kept_out: Mapping[WorkerKey, str]
    ) -> dict[Role, Worker]:
        whole = groups(fleet, wanted, kept_out, fleet.visible)
        name = ("group", wanted, fleet.visible)
        chosen = None
        if ask.policy == "consistent_hash":
            # On the ring of all, so that only the keys of those kept out move.
            entries, left_out = whole.entries, None
            if kept_out:
                entries = groups(fleet, wanted, (), fleet.visible).entries
                left_out = _none_of(whole.entries)
            chosen = self._by_key(name, entries, ask, left_out)
        elif not (kept_out or callable(ask.policy)):
            chosen = self._quickly(name, whole.entries, ask, ())
        entry = (
            self._closely(fleet, whole.entries, ask)
            if chosen is None
            else self._sent(chosen)
        )
        partners = whole.partners[_set_of(fleet, entry)]
        found = {entry.role: entry}
        for role, partner in partners.items():
            found[role] = self._pick(fleet, partner, ask, kept_out)
        return found

    def _quickly(
        self,
        name: Hashable,
        found: Candidates,
        ask: Ask,
        kept_out: Collection[WorkerKey],
    ) -> Registration | None:
        """One of ``found``, if a few tries give one that is not to be left out.

        ``name`` is what the candidates are remembered by.
        """
        ranking, some_busy = None, False
        by_load = ask.policy == "least_loaded"
        if found.limited or by_load:
            ranking = self._loads.ranking(name, found, in_order=by_load)
            some_busy = found.limited and ranking.any_busy
        if not (some_busy or kept_out):
            return self._draw(name, found, ask, ranking, kept_out)
        for _ in range(min(TRIES_MAX, max(TRIES, len(found) // WORTH))):
            worker = self._draw(name, found, ask, ranking, kept_out)
            key = worker.key
            if key in kept_out:
                continue
            if ranking is None or not ranking.is_busy(key):
                return worker
            if not ranking.any_free:
                self._tally.all_busy += 1
                return worker
        return None

    def _by_key(
        self,
        name: Hashable,
        found: Candidates,
        ask: Ask,
        left_out: Callable[[WorkerKey], bool] | None,
    ) -> Registration | None:
        """The owner of the key as if those to leave out were gone; None: all are.

        So it is while some are busy: their keys go where they go when those leave.
        """
        ring, key = self._ring(name, found), ask.key or ""
        if not found.limited:
            return ring.owner(key, left_out)
        ranking = self._loads.ranking(name, found, in_order=False)
        if not ranking.any_busy:
            return ring.owner(key, left_out)
        worker = None
        if ranking.any_free:
            worker = ring.owner(key, _either(left_out, ranking.is_busy))
        if worker is None:
            worker = ring.owner(key, left_out)
            self._tally.all_busy += worker is not None
        return worker

    def _closely(self, fleet: Fleet, found: Candidates, ask: Ask) -> Worker:
        """One of ``found``, of whom nobody is to be left out but the busy."""
        if callable(ask.policy):
            offered = found.workers(fleet)
            return check_chosen(offered, ask.policy(offered))
        ranking = self._loads.ranked(found)
        if ranking.any_busy and ranking.any_free:
            busy = ranking.is_busy
            found = only(found, lambda _, worker: not busy(worker.key))
            ranking = self._loads.ranked(found)
        elif ranking.any_busy:
            self._tally.all_busy += 1
        return self._sent(self._draw(None, found, ask, ranking, ()))

    def _draw(
        self,
        name: Hashable,
        found: Candidates,
        ask: Ask,
        ranking: Ranking | None,
        kept_out: Collection[WorkerKey],
    ) -> Registration:
        """One of ``found`` by a policy of chance, turns or load; maybe one kept out."""
        rng = ask.rng or self._rng
        if ask.policy == "weighted_random":
            return draw_weighted(found, rng)
        if ask.policy == "round_robin":
            return draw_in_turn(found, self._turn_of(name))
        ranking = ranking or self._loads.ranking(name, found, in_order=True)
        return self._least(found, rng, ranking, kept_out)

    def _least(
        self,
        found: Candidates,
        rng: RandomNumbers,
        ranking: Ranking,
        kept_out: Collection[WorkerKey],
    ) -> Registration:
        """The least loaded, as far as reports are believed.

        A worker without a report gets what it would get by weight: it may be idle, and
        it may be full. The rest goes to the least loaded of the others.
        """
        if self._loads.all_fresh and not ranking.silent:
            least = ranking.least(rng, NEVER, kept_out)
            if least is not None:
                return least
        at_random = draw_weighted(found, rng)
        if ranking.silent == len(found):
            return at_random
        since = self._loads.since(rng.random())
        if not ranking.is_known(at_random.key, since):
            return at_random
        return ranking.least(rng, since, kept_out) or at_random

    def _ring(self, name: Hashable, found: Candidates) -> Ring:
        ring: Ring | None = found.tools.get(self)
        if ring is None:
            ring = self._rings.get(name)
            if ring is None:
                if len(self._rings) >= RINGS_MAX:
                    self._rings.clear()
                ring = self._rings[name] = Ring()
            found.tools[self] = ring
        ring.match(found)
        return ring

    def _turn_of(self, name: Hashable) -> int:
        """Each wish has turns of its own: others' picks must not skip its workers."""
        if len(self._turns) >= TURNS_MAX:
            self._turns.clear()
        turn = self._turns.get(name, 0)
        self._turns[name] = turn + 1
        return turn

    def _sent(self, worker: Registration) -> Worker:
        if self._loads.known:
            self._loads.sent(worker)
        return derive_routable(worker)

    # ---- leaving out -----------------------------------------------------------
    def _kept_out(self, exclude: Collection[Worker]) -> Mapping[WorkerKey, str]:
        """Who is not to be picked, and what that is called."""
        self._forgive()
        out = dict.fromkeys(self._ejected, "ejected")
        if exclude:
            out.update(dict.fromkeys(check_workers("exclude", exclude), "excluded"))
        return out

    def _forgive(self) -> None:
        now = self._clock.monotonic()
        self._ejected = {k: t for k, t in self._ejected.items() if t > now}

    def _fail(self, error: ModelNotFoundError | ModelUnavailableError) -> None:
        unknown = isinstance(error, ModelNotFoundError)
        self._tally.fail("model_not_found" if unknown else "model_unavailable")


def _check(ask: Ask) -> None:
    """Raise `SettingsError` for a wrong ``policy``, ``key`` or ``rng``."""
    if ask.rng is not None:
        check_chance(ask.rng)
    if ask.policy == "consistent_hash":
        if not isinstance(ask.key, str):
            rule = "a string: policy consistent_hash gives equal keys to one worker"
            raise SettingsError(field="key", value=ask.key, rule=rule)
    elif not callable(ask.policy) and ask.policy not in POLICIES:
        rule = f"{', '.join(POLICIES)}, or a callable"
        raise SettingsError(field="policy", value=ask.policy, rule=rule)


def _set_of(fleet: Fleet, worker: Worker) -> WorkerSetKey:
    return fleet.state.workers[worker.namespace, worker.worker_id].set_key


def _none_of(found: Candidates) -> Callable[[WorkerKey], bool]:
    """Whether a worker is not among ``found``."""
    keys = {worker.key for _, workers in found.sets for worker in workers}
    return lambda key: key not in keys


def _either(
    one: Callable[[WorkerKey], bool] | None, other: Callable[[WorkerKey], bool]
) -> Callable[[WorkerKey], bool]:
    """What holds for whom one of two holds; no first one holds for nobody."""
    if one is None:
        return other
    return lambda key: one(key) or other(key)
