"""Whom operators asked to drain: what a leader repeats until the worker does.

An order is a hold that asks for more (`WorkerHeld.drain`). Routers need the hold only,
so orders are no part of the fleet, its digest or its deltas: they stand beside the
lives, in what projectors keep for themselves.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, TypeAlias

import msgspec
from immutables import Map

from events import (
    Namespace,
    Revision,
    SettingEvent,
    Status,
    WorkerHeld,
    WorkerId,
    WorkerResumed,
)

from .entities import Registration, WorkerKey
from .fleet import FleetState


class DrainOrder(msgspec.Struct, frozen=True, kw_only=True):
    """An operator wants this stable id to finish what it has and take no more."""

    namespace: Namespace
    worker_id: WorkerId
    reason: str
    by: str
    revision: Revision
    """Where the decision stands; of the same asked again, the latest."""

    @property
    def key(self) -> WorkerKey:
        """Whom it concerns."""
        return (self.namespace, self.worker_id)


Drains: TypeAlias = "Map[WorkerKey, DrainOrder]"
NO_DRAINS: Final[Drains] = Map()


def decide_drains(drains: Drains, event: SettingEvent, revision: Revision) -> Drains:
    """The orders after an operator's decision. The latest on a stable id counts.

    A hold without ``drain`` takes the order back: the worker stays held.
    """
    if not isinstance(event, WorkerHeld | WorkerResumed):
        return drains
    key = (event.namespace, event.worker_id)
    if isinstance(event, WorkerHeld) and event.drain:
        order = DrainOrder(
            namespace=event.namespace,
            worker_id=event.worker_id,
            reason=event.reason,
            by=event.by,
            revision=revision,
        )
        return drains.set(key, order)
    return drains.delete(key) if key in drains else drains


def drains_unheard(
    drains: Drains, fleet: FleetState
) -> Iterator[tuple[DrainOrder, Registration]]:
    """The orders whose worker is there and neither draining nor drained, by name."""
    for key, order in sorted(drains.items()):
        worker = fleet.workers.get(key)
        if worker is not None and worker.status in (Status.STARTING, Status.READY):
            yield order, worker
