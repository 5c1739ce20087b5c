"""Deliberate faults of ports: what is claimed, by whom, and with what it registers."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec

from controlplane.worker import core as worker_core
from controlplane.worker.claiming import PortHands
from events import WorkerRegistered
from projections import Reclaiming, claiming, reclaim

from .mutating import Everywhere, Mutant, Patch, always

_with = msgspec.structs.replace


def _expecting_nothing(batch: Any) -> Any:
    async def appended(self: Any, job: Any, own: Any) -> Any:
        if isinstance(job.draft, WorkerRegistered):
            return [_with(own, expected=None)]
        return await batch(self, job, own)

    return appended


def _alone(batch: Any) -> Any:
    async def appended(self: Any, job: Any, own: Any) -> Any:
        if isinstance(job.draft, WorkerRegistered):
            return [own]
        return await batch(self, job, own)

    return appended


async def _sure(*_args: Any) -> bool:
    return True


def _never_over_before(judge: Any) -> Any:
    def judged(records: Any, **named: Any) -> Any:
        verdict = judge(records, **named)
        over = isinstance(verdict, worker_core.Over) and named["before"] is None
        return worker_core.Vacant() if over else verdict

    return judged


def _whoever_holds_them(decide: Any) -> Any:
    def reclaimed(known: Any, blocks: Any, **named: Any) -> Reclaiming:
        decided = decide(known, blocks, **named)
        ports = (*decided.taken, *decided.resting)
        more = tuple((port, known.expected(port)) for port in ports)
        claims = (*decided.claims, *more)
        return _with(decided, claims=claims, taken=(), resting=())

    return reclaimed


MUTANTS = (
    Mutant(
        "registered-though-ports-were-taken",
        "a registration does not expect what was there before its ports were claimed",
        (
            Patch(PortHands, "batch", _expecting_nothing),
            Patch(PortHands, "holds", lambda _: _sure),
        ),
        plans=("claim-expire-register",),
    ),
    Mutant(
        "expired-claimant-registers",
        "a life that expired before it registered registers all the same",
        (Patch(worker_core, "judge", _never_over_before),),
        plans=("claim-expire-register",),
    ),
    Mutant(
        "registered-without-its-ports",
        "a worker registers again without claiming its ports again",
        (
            Patch(PortHands, "batch", _alone),
            Patch(PortHands, "holds", lambda _: _sure),
        ),
    ),
    Mutant(
        "ports-taken-back",
        "a worker claims its ports again, whoever holds them by then",
        (Everywhere(reclaim, _whoever_holds_them),),
        plans=("robbed",),
    ),
    Mutant(
        "no-cool-down",
        "what was let go is granted at once",
        (Patch(claiming, "_rested_by", always(datetime.max.replace(tzinfo=UTC))),),
        plans=("robbed",),
    ),
)
