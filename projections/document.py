"""What a view is made of, for people and routers, and as the documents they read."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from types import MappingProxyType
from typing import Any, Final

import msgspec

from events import (
    Capacity,
    Checksum,
    Incarnation,
    ModelName,
    Namespace,
    Needs,
    Role,
    Status,
    WorkerId,
)

from .anomaly import AnomalyCounts
from .entities import WorkerSetKey
from .readiness import Blocker, ambiguous_roles

_BESIDE_LIFE: Final[frozenset[Blocker]] = frozenset({"needs_unmet", "weight_zero"})
"""What may keep a live worker from being routable."""


class Worker(msgspec.Struct, frozen=True, kw_only=True):
    """A worker, and whether it may get traffic; ``blockers`` says why not."""

    namespace: Namespace
    worker_id: WorkerId
    incarnation: Incarnation
    model: ModelName
    role: Role
    checksum: Checksum
    status: Status
    routable: bool
    blockers: tuple[Blocker, ...]
    needs: Needs
    address: str
    capabilities: tuple[str, ...]
    adapters: tuple[ModelName, ...]
    capacity: Capacity
    labels: dict[str, str]
    registered_at: datetime


class WorkerSet(msgspec.Struct, frozen=True, kw_only=True):
    """All workers with the same namespace, component, endpoint, model and role."""

    key: WorkerSetKey
    workers: Mapping[WorkerId, Worker]
    ready: bool
    """It has live workers and what they need."""
    missing_roles: tuple[Role, ...]
    checksum: Checksum
    """The one in force; workers with another are quarantined."""
    weight: float

    @property
    def namespace(self) -> Namespace:
        """The namespace of all its workers."""
        return self.key.namespace

    @property
    def live(self) -> bool:
        """Whether it has a worker that is ready, admitted and not held."""
        return any(_BESIDE_LIFE.issuperset(w.blockers) for w in self.workers.values())


class Model(msgspec.Struct, frozen=True, kw_only=True):
    """A model and the WorkerSets that serve it."""

    name: ModelName
    serving: bool
    """Whether a request for it can be routed now."""
    worker_sets: Mapping[WorkerSetKey, WorkerSet]
    ambiguous: tuple[tuple[Namespace, Role], ...] = ()
    """Roles that several live WorkerSets of a namespace have; all of them serve."""


def model_document(model: Model) -> dict[str, Any]:
    """A model as plain data."""
    sets = [set_document(worker_set) for worker_set in model.worker_sets.values()]
    return {"name": model.name, "serving": model.serving, "worker_sets": sets}


def set_document(worker_set: WorkerSet) -> dict[str, Any]:
    """A WorkerSet as plain data."""
    key = worker_set.key
    return {
        "namespace": key.namespace,
        "component": key.component,
        "endpoint": key.endpoint,
        "model": key.model,
        "role": key.role.value,
        "checksum": worker_set.checksum,
        "ready": worker_set.ready,
        "missing_roles": [role.value for role in worker_set.missing_roles],
        "weight": worker_set.weight,
        "workers": [worker_document(w) for w in worker_set.workers.values()],
    }


def worker_document(worker: Worker) -> dict[str, Any]:
    """A worker as plain data; capacities that nobody stated are left out."""
    document: dict[str, Any] = msgspec.to_builtins(worker)
    capacity = document["capacity"]
    document["capacity"] = {k: v for k, v in capacity.items() if v is not None}
    return document


class SetDocument(msgspec.Struct, kw_only=True):
    """A WorkerSet as it is read from its JSON."""

    namespace: str
    component: str
    endpoint: str
    model: str
    role: Role
    checksum: str
    ready: bool
    missing_roles: tuple[Role, ...]
    weight: float
    workers: list[Worker]

    def worker_set(self) -> WorkerSet:
        """The WorkerSet that it says."""
        return WorkerSet(
            key=WorkerSetKey(
                self.namespace, self.component, self.endpoint, self.model, self.role
            ),
            workers=MappingProxyType({w.worker_id: w for w in self.workers}),
            ready=self.ready,
            missing_roles=self.missing_roles,
            checksum=self.checksum,
            weight=self.weight,
        )


class ModelDocument(msgspec.Struct, kw_only=True):
    """A model as it is read from its JSON."""

    name: str
    serving: bool
    worker_sets: list[SetDocument]

    def model(self) -> Model:
        """The model that it says."""
        sets = [document.worker_set() for document in self.worker_sets]
        return Model(
            name=self.name,
            serving=self.serving,
            worker_sets=MappingProxyType({s.key: s for s in sets}),
            ambiguous=ambiguous_roles((s.key, s.live) for s in sets),
        )


class ViewDocument(msgspec.Struct, kw_only=True):
    """A view as it is read from its JSON."""

    cell: str
    log_id: str | None
    epoch: str | None
    revision: int
    digest: str
    models: list[ModelDocument]
    known_models: list[str]
    anomalies: AnomalyCounts
