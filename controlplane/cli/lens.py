"""A lens over a fleet: only some namespaces and models of it are shown. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Final, TypeAlias

import msgspec
from cyclopts import Parameter

from events import ModelName, Namespace, check_model, check_namespace
from projections import (
    Fleet,
    FleetDifference,
    FleetState,
    KnownPut,
    Put,
    SetPut,
    SettingPut,
    Worker,
    WorkerDifference,
    WorkerPut,
    build,
)

Namespaces: TypeAlias = Annotated[
    tuple[str, ...], Parameter(name="--namespace", consume_multiple=False)
]
Models: TypeAlias = Annotated[
    tuple[str, ...], Parameter(name="--model", consume_multiple=False)
]


class Lens(msgspec.Struct, frozen=True):
    """Shows workers of these namespaces and of these models; empty: of all."""

    namespaces: frozenset[Namespace] = frozenset()
    models: frozenset[ModelName] = frozenset()
    """An adapter's name stands for the models whose workers have loaded it."""

    @property
    def is_clear(self) -> bool:
        """Whether everything is seen through it."""
        return not self.namespaces and not self.models

    @property
    def words(self) -> str:
        """What is seen, for people."""
        of = [
            f"{name} {', '.join(sorted(values))}"
            for name, values in (
                ("model", self.models),
                ("namespace", self.namespaces),
            )
            if values
        ]
        return " in ".join(of)

    def over(self, fleet: Fleet) -> Fleet:
        """The fleet seen through it. Position and digest are the whole fleet's.

        What others mean for a worker does not change: it depends on its namespace and
        model only, and both are seen whole or not at all.
        """
        if self.is_clear:
            return fleet
        seen = Fleet(
            build(self._seen(fleet.state)),
            revision=fleet.revision,
            cell=fleet.cell,
            log_id=fleet.log_id,
            epoch=fleet.epoch,
            anomalies=fleet.anomalies,
        )
        seen.digest = fleet.digest
        return seen

    def document(self, fleet: Fleet) -> dict[str, Any]:
        """The document of the fleet seen through it; known names are the cell's."""
        known = list(fleet.known_models)
        return {**self.over(fleet).document(), "known_models": known}

    def shows(self, namespace: Namespace) -> bool:
        """Whether workers of this namespace are seen."""
        return not self.namespaces or namespace in self.namespaces

    def over_difference(self, found: FleetDifference) -> FleetDifference:
        """Of the differences those of what is seen through it."""
        if self.is_clear:
            return found
        others = (one for one in found.others if self._names(one.name))
        return msgspec.structs.replace(
            found,
            removed=tuple(filter(self._shows_either, found.removed)),
            changed=tuple(filter(self._shows_either, found.changed)),
            added=tuple(filter(self._shows_either, found.added)),
            others=tuple(others),
        )

    def shows_worker(self, worker: Worker) -> bool:
        """Whether the worker itself is seen; others of an adapter's model are, too."""
        names = {worker.model, *worker.adapters}
        is_of_model = not self.models or not self.models.isdisjoint(names)
        return self.shows(worker.namespace) and is_of_model

    def _shows_either(self, one: WorkerDifference) -> bool:
        sides = (one.before, one.after)
        return any(side is not None and self.shows_worker(side) for side in sides)

    def _names(self, name: tuple[str, ...]) -> bool:
        """Whether what has this name, which is no worker, is about what is seen."""
        return not (self.namespaces | self.models).isdisjoint(name)

    def _seen(self, state: FleetState) -> Iterator[Put]:
        models = self._models_in(state)
        served = {*state.models, *state.adapters}
        seen = set(self.models)
        for put in state.entities():
            match put:
                case WorkerPut(worker):
                    if self.shows(worker.namespace) and _is_in(worker.model, models):
                        seen.update((worker.model, *worker.adapters))
                        yield put
                case SetPut(key):
                    if self.shows(key.namespace) and _is_in(key.model, models):
                        yield put
                case SettingPut():
                    yield put
        for name in state.known:
            if name in seen or (not self.models and name not in served):
                yield KnownPut(name)

    def _models_in(self, state: FleetState) -> frozenset[ModelName]:
        having = (
            state.workers[key].model
            for name in self.models
            for key in state.adapters.get(name, ())
        )
        return self.models.union(having)


def _is_in(model: ModelName, models: frozenset[ModelName]) -> bool:
    return not models or model in models


def lens_of(namespaces: tuple[str, ...], models: tuple[str, ...]) -> Lens:
    """The lens that options ask for. Raises `InvalidIdentityError`."""
    return Lens(
        frozenset(map(check_namespace, namespaces)), frozenset(map(check_model, models))
    )


CLEAR: Final = Lens()
