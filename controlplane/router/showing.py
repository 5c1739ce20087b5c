"""The fleet as a router shows it: made when somebody looks, keeping what it may."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from events import Cell, ModelName, Namespace
from projections import Fleet, FleetState, Wanted

from .replica import Replica


class Showing:
    """Shows replicas through one lens."""

    def __init__(self, cell: Cell, visible: Callable[[Namespace], bool] | None) -> None:
        """Show the ``visible`` namespaces of ``cell``; None: all."""
        self._cell, self._visible = cell, visible
        self.empty = Fleet(cell=cell, visible=visible)
        self._fleet, self._of = self.empty, None

    _of: Replica | None

    def fleet(self, replica: Replica | None) -> Fleet:
        """The fleet of ``replica``; the same object while that is the same."""
        if replica is self._of:
            return self._fleet
        if replica is None:
            return self.empty
        before = self._fleet
        self._fleet = fleet = Fleet(
            replica.fleet,
            revision=replica.revision,
            cell=self._cell,
            log_id=replica.position.epoch.log_id,
            epoch=str(replica.position.epoch),
            anomalies=replica.anomalies,
            visible=self._visible,
        )
        self._of = replica
        if before.state is fleet.state:
            fleet.memo = before.memo
        elif before.state.settings is fleet.state.settings:
            fleet.memo = dict(_still_true(before.memo, before.state, fleet.state))
        return fleet


def _still_true(
    memo: dict[object, Any], old: FleetState, new: FleetState
) -> Iterator[tuple[object, Any]]:
    """What was worked out for models that did not change since, with equal settings.

    Unchanged parts of two states are the same objects. What answers to an adapter's
    name may be spread over many models, so that is worked out again.
    """
    for key, known in memo.items():
        match key:
            case ("sets", str(model)):
                if _is_same(old, new, model):
                    yield key, known
            case (Wanted(model=name), _):
                is_adapter = name in old.adapters or name in new.adapters
                if not is_adapter and _is_same(old, new, name):
                    yield key, known


def _is_same(old: FleetState, new: FleetState, model: ModelName) -> bool:
    return old.models.get(model) is new.models.get(model)
