"""What an expression may ask a fleet: a model, a worker, how many workers there are.

Who is not there gives an answer, too: false, nothing, or an empty list. The names are
those of the documents; a LoRA adapter's name is a model's name.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final, get_args

from events import ENTRY_ROLES, ModelName, Namespace, Role, Status

from .entities import Registration, WorkerKey, WorkerSetKey
from .fleet import FleetState
from .readiness import Blocker, SetMeaning, blockers
from .view import Fleet, worker_document

BLOCKERS: Final[tuple[str, ...]] = get_args(Blocker)
STATUSES: Final = tuple(status.value for status in Status)
ROLES: Final = tuple(role.value for role in Role)
COUNTABLE: Final = ("workers", "routable", *dict.fromkeys((*STATUSES, *BLOCKERS)))
"""What `Counting` counts: all, those that may be picked, or those of which it is so."""


def serving_namespaces(fleet: Fleet, name: ModelName) -> frozenset[Namespace]:
    """Where a request for ``name`` can start: with a routable worker of an entry role.

    A model is serving when there is one.
    """
    return frozenset(
        key.namespace
        for key, meaning in sets_of(fleet, name)
        if key.role in ENTRY_ROLES
        and any(answers_to(worker, name) for worker in meaning.routable)
    )


def sets_of(fleet: Fleet, name: ModelName) -> Iterator[tuple[WorkerSetKey, SetMeaning]]:
    """The WorkerSets in which somebody may answer to ``name``."""
    having = fleet.state.adapters.get(name, ())
    workers = fleet.state.workers
    for model in sorted({name, *(workers[key].model for key in having)}):
        yield from fleet.sets(model).items()


def answers_to(worker: Registration, name: ModelName) -> bool:
    """Whether the worker serves the model, or has the adapter, of this name."""
    return name == worker.model or name in worker.adapters


def worker_facts(fleet: Fleet, key: WorkerKey) -> dict[str, Any]:
    """The worker's document, ``needs`` as the roles that it names; empty: no worker."""
    worker = fleet.worker(*key)
    if worker is None:
        return {}
    document = worker_document(worker)
    document["needs"] = sorted({role for roles in document["needs"] for role in roles})
    return document


class Counting:
    """Counts workers, again and again: what did not change since is not looked at."""

    def __init__(
        self,
        what: str,
        *,
        model: ModelName | None = None,
        namespace: Namespace | None = None,
        role: Role | None = None,
    ) -> None:
        """Count ``what`` (one of `COUNTABLE`); None: of any model, namespace, role."""
        self.model = model
        self._what, self._namespace, self._role = what, namespace, role
        self._counted: dict[ModelName, tuple[object, object, int]] = {}

    def __call__(self, fleet: Fleet) -> int:
        """How many there are."""
        return sum(self._of(fleet, name) for name in self._models(fleet.state))

    def _models(self, state: FleetState) -> Iterable[ModelName]:
        if self.model is None:
            return state.models
        having = state.adapters.get(self.model, ())
        return {self.model, *(state.workers[key].model for key in having)}

    def _of(self, fleet: Fleet, name: ModelName) -> int:
        sets, settings = fleet.state.models.get(name), fleet.state.settings
        known = self._counted.get(name)
        if known is not None and known[0] is sets and known[1] is settings:
            return known[2]
        number = sum(
            self._in_set(fleet, meaning)
            for key, meaning in fleet.sets(name).items()
            if self._namespace in {None, key.namespace}
            and self._role in {None, key.role}
        )
        self._counted[name] = (sets, settings, number)
        return number

    def _in_set(self, fleet: Fleet, meaning: SetMeaning) -> int:
        workers: Iterable[Registration] = meaning.members.workers.values()
        if self._what == "routable":
            workers = meaning.routable
        if self.model not in {None, meaning.key.model}:
            workers = [w for w in workers if self.model in w.adapters]
        if self._what in {"workers", "routable"}:
            return len(list(workers))
        return sum(
            worker.status.value == self._what
            or self._what in tuple(blockers(fleet.state, meaning, worker))
            for worker in workers
        )
