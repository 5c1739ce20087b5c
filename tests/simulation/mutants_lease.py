"""Deliberate faults of leases: who is overdue, who is held, how a life is ended."""

from __future__ import annotations

from typing import Any

import msgspec

from controlplane.errors import AppendConflictError
from controlplane.projector import hands
from controlplane.projector.caretaker import Caretaker
from controlplane.projector.hands import Hands
from events import WorkerExpired
from projections import LeaseBook

from .mutating import Mutant, Patch, always, constant


def _never_blind(_: Any) -> Any:
    def canary_returned(self: Any, sent_at: float, now: float) -> None:
        self._returned_at, self._proven_at = now, sent_at

    return canary_returned


def _proven_by_the_clock(judge: Any) -> Any:
    def judged(self: Any, lives: Any, now: float, own_server: str = "") -> Any:
        self._proven_at = now
        return judge(self, lives, now, own_server)

    return judged


def _no_first_lease(judge: Any) -> Any:
    """Who was never heard of has been silent for ever."""

    def judged(self: Any, lives: Any, now: float, own_server: str = "") -> Any:
        unheard = [life for key, life in lives.items() if key not in self._pulses]
        for life in unheard:
            self.beat(life.key, now - 2 * life.lease_ttl_s)
        return judge(self, lives, now, own_server)

    return judged


def _server_forgotten(beat: Any) -> Any:
    return lambda self, key, now, _server="": beat(self, key, now, "")


def _guard_begins_anew(brake: Any) -> Any:
    def braked(self: Any, lives: Any, overdue: Any, silent: Any, *rest: Any) -> Any:
        if self._guard_since is not None:
            self._guard_since = rest[0][1]
        return brake(self, lives, overdue, silent, *rest)

    return braked


def _by_worker(beat: Any) -> Any:
    """A beat renews the lease of whoever is registered there."""

    def beaten(
        self: Any, fold: Any, worker: Any, given: Any, *rest: Any, **named: Any
    ) -> Any:
        current = fold.fleet_state.workers.get(worker)
        if current is not None:
            own = current.incarnation
            given = msgspec.structs.replace(given, incarnation=own)
        return beat(self, fold, worker, given, *rest, **named)

    return beaten


def _ports_only(expiry_plan: Any) -> Any:
    async def planned(self: Any, effect: Any) -> Any:
        plan = await expiry_plan(self, effect)
        if effect.life.registered is None:
            plan = [p for p in plan if not isinstance(p.event, WorkerExpired)]
        return plan

    return planned


def _one_by_one(_: Any) -> Any:
    async def append_expiry(self: Any, plan: Any) -> None:
        for pending in plan:
            try:
                await self._tools.log.append_all([pending])
            except AppendConflictError:
                continue

    return append_expiry


MUTANTS = (
    Mutant(
        "expire-without-blind-time",
        "what the judge did not see counts as silence",
        (
            Patch(LeaseBook, "canary_returned", _never_blind),
            Patch(LeaseBook, "sighted", always(None)),
        ),
        plans=("deaf-judge", "deaf-ears"),
    ),
    Mutant(
        "expire-without-canary",
        "a life is overdue by the clock, whether beats could have come or not",
        (
            Patch(LeaseBook, "judge", _proven_by_the_clock),
            Patch(LeaseBook, "is_quiet", constant(property(lambda _: False))),
            Patch(LeaseBook, "_is_blind", always(value=False)),
        ),
        plans=("deaf-ears",),
    ),
    Mutant(
        "no-lease-after-restart",
        "who has not beaten since the projector started is overdue at once",
        (Patch(LeaseBook, "judge", _no_first_lease),),
        plans=("slow-judge",),
    ),
    Mutant(
        "stopped-servers-clients-expired",
        "clients that fell silent with their server are expired like any other",
        (Patch(LeaseBook, "_kept_servers", lambda _: lambda *_args: set()),),
        plans=("stopped-server",),
    ),
    Mutant(
        "server-of-beats-forgotten",
        "nobody remembers by which server a life beat last",
        (Patch(LeaseBook, "beat", _server_forgotten),),
        plans=("stopped-server",),
    ),
    Mutant(
        "guard-never-lets-go",
        "while most are silent nobody is expired, however long",
        (Patch(LeaseBook, "_brake", _guard_begins_anew),),
        plans=("mass-death",),
    ),
    Mutant(
        "old-beats-renew-new-lease",
        "the beats of an old life keep its successor's lease",
        (Patch(Caretaker, "beat", _by_worker),),
        plans=("two-of-one-name",),
    ),
    Mutant(
        "claimant-not-expired",
        "of a life that never registered only the ports are taken",
        (Patch(Hands, "_expiry_plan", _ports_only),),
        plans=("claim-expire-register",),
    ),
    Mutant(
        "expiry-not-atomic",
        "ports are released though their life's expiry was refused",
        (Patch(Hands, "_append_expiry", _one_by_one),),
        plans=("overtaken",),
    ),
    Mutant(
        "old-decisions-carried-out",
        "an expiry that was decided long ago is appended all the same",
        (Patch(hands, "DECISION_S_MAX", constant(1e9)),),
        plans=("too-many-at-once",),
    ),
    Mutant(
        "expired-not-told",
        "nobody tells a life that it expired",
        (Patch(Caretaker, "_tell_unknown", always([])),),
    ),
)
