"""The view as people and routers read it: Model -> WorkerSet -> Worker."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from types import MappingProxyType
from typing import Any, Final

import msgspec

from events import (
    UNREADABLE,
    Capacity,
    Checksum,
    Incarnation,
    ModelName,
    Namespace,
    Needs,
    Revision,
    Role,
    Status,
    WorkerId,
)

from .anomaly import AnomalyCounts
from .entities import Registration, WorkerKey, WorkerSetKey
from .fleet import EMPTY, FleetState
from .readiness import Blocker, SetMeaning, ambiguous_roles, blockers, meanings

_ENCODER: Final = msgspec.json.Encoder(order="deterministic")
_BESIDE_LIFE: Final[frozenset[Blocker]] = frozenset({"needs_unmet", "weight_zero"})
"""What may keep a live worker from being routable."""
_NO_SETS: Final[Mapping[WorkerSetKey, SetMeaning]] = MappingProxyType({})


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


class Fleet:
    """The whole fleet of a cell at one position. Immutable; equal fleets are equal.

    Raises nothing: what is not there is None or absent from a mapping.
    """

    __slots__ = (
        "_known",
        "_models",
        "_read",
        "anomalies",
        "cell",
        "digest",
        "epoch",
        "log_id",
        "memo",
        "revision",
        "state",
        "visible",
    )

    def __init__(
        self,
        state: FleetState = EMPTY,
        *,
        revision: Revision = 0,
        cell: str = "default",
        log_id: str | None = None,
        epoch: str | None = None,
        anomalies: AnomalyCounts | None = None,
        visible: Callable[[Namespace], bool] | None = None,
    ) -> None:
        """Show ``state`` as it stands at ``revision``.

        ``visible`` is a lens: workers of other namespaces are not shown. Digest and
        known names are the whole cell's all the same.
        """
        self.state = state
        self.revision, self.cell = revision, cell
        self.log_id, self.epoch = log_id, epoch
        self.digest = state.digest
        self._known: tuple[ModelName, ...] | None = None
        self.anomalies = anomalies or AnomalyCounts()
        self.visible = visible
        self._models: Mapping[ModelName, Model] = _Models(state, visible)
        self._read: Mapping[WorkerKey, Worker] = {}
        self.memo: dict[object, Any] = {}

    @property
    def models(self) -> Mapping[ModelName, Model]:
        """Every model that has a worker, in order of names."""
        return self._models

    @property
    def known_models(self) -> tuple[ModelName, ...]:
        """Every name that was ever served and not forgotten, in order."""
        if self._known is None:
            self._known = tuple(sorted(self.state.known))
        return self._known

    def worker(self, namespace: Namespace, worker_id: WorkerId) -> Worker | None:
        """The worker of this stable id, if it is registered."""
        registration = self.state.workers.get((namespace, worker_id))
        if self.visible is not None and not self.visible(namespace):
            return None
        if registration is not None:
            meaning = self.sets(registration.model)[registration.set_key]
            return derive(self.state, meaning, registration)
        return self._read.get((namespace, worker_id))

    def sets(self, model: ModelName) -> Mapping[WorkerSetKey, SetMeaning]:
        """The model's WorkerSets, whatever the lens, with what they mean."""
        known = self.memo.get(("sets", model))
        if known is None and model not in self.state.models:
            return _NO_SETS  # callers may ask for any name: nothing is kept of it
        if known is None:
            found = {meaning.key: meaning for meaning in meanings(self.state, model)}
            known = self.memo["sets", model] = MappingProxyType(found)
        sets: Mapping[WorkerSetKey, SetMeaning] = known
        return sets

    def document(self) -> dict[str, Any]:
        """The view as plain data, as ``-o json`` shows it; lists sorted by name."""
        return {
            "cell": self.cell,
            "log_id": self.log_id,
            "epoch": self.epoch,
            "revision": self.revision,
            "digest": self.digest,
            "models": [model_document(model) for model in self._models.values()],
            "known_models": list(self.known_models),
            "anomalies": msgspec.structs.asdict(self.anomalies),
        }

    def to_json(self) -> str:
        """The document as JSON text; equal views are equal bytes."""
        return _ENCODER.encode(self.document()).decode()

    @classmethod
    def from_json(cls, text: str | bytes) -> Fleet:
        """The view that `to_json` wrote, to be read; raises ValueError for others."""
        try:
            document = msgspec.json.decode(text, type=_ViewDocument)
        except UNREADABLE as error:
            message = f"not a view document: {error}"
            raise ValueError(message) from error
        fleet = cls(
            revision=document.revision,
            cell=document.cell,
            log_id=document.log_id,
            epoch=document.epoch,
            anomalies=document.anomalies,
        )
        fleet.digest = document.digest
        fleet._known = tuple(document.known_models)
        models = {m.name: m.model() for m in document.models}
        fleet._models = MappingProxyType(models)
        fleet._read = {
            (worker.namespace, worker.worker_id): worker
            for model in models.values()
            for worker_set in model.worker_sets.values()
            for worker in worker_set.workers.values()
        }
        return fleet

    def __eq__(self, other: object) -> bool:
        """Whether both show the same fleet at the same position."""
        if not isinstance(other, Fleet):
            return NotImplemented
        return (self.revision, self.digest) == (other.revision, other.digest)

    def __hash__(self) -> int:
        """By position and digest, as equality."""
        return hash((self.revision, self.digest))

    def __repr__(self) -> str:
        """Say where it stands."""
        return f"Fleet(revision={self.revision}, digest={self.digest!r})"


class _Models(Mapping[ModelName, Model]):
    """Models derived when they are looked at, and kept."""

    def __init__(
        self, state: FleetState, visible: Callable[[Namespace], bool] | None
    ) -> None:
        self._state, self._visible = state, visible
        self._derived: dict[ModelName, Model] = {}

    def __getitem__(self, name: ModelName) -> Model:
        model = self._derived.get(name)
        if model is None:
            if not self._shows(name):
                raise KeyError(name)
            model = self._derived[name] = _model(self._state, name, self._visible)
        return model

    def __iter__(self) -> Iterator[ModelName]:
        return iter(sorted(name for name in self._state.models if self._shows(name)))

    def __len__(self) -> int:
        return sum(1 for name in self._state.models if self._shows(name))

    def __repr__(self) -> str:
        return f"{{{', '.join(repr(name) for name in self)}}}"

    def _shows(self, name: object) -> bool:
        sets = self._state.models.get(name) if isinstance(name, str) else None
        if sets is None:
            return False
        visible = self._visible
        return visible is None or any(visible(key.namespace) for key in sets)


def _model(
    state: FleetState, name: ModelName, visible: Callable[[Namespace], bool] | None
) -> Model:
    sets = [
        meaning
        for meaning in meanings(state, name)
        if visible is None or visible(meaning.key.namespace)
    ]
    return Model(
        name=name,
        serving=any(meaning.is_entry and meaning.routable for meaning in sets),
        worker_sets=MappingProxyType({m.key: _worker_set(state, m) for m in sets}),
        ambiguous=ambiguous_roles((m.key, bool(m.live)) for m in sets),
    )


def _worker_set(state: FleetState, meaning: SetMeaning) -> WorkerSet:
    members = sorted(meaning.members.workers.items())
    workers = {worker_id: derive(state, meaning, w) for worker_id, w in members}
    return WorkerSet(
        key=meaning.key,
        workers=MappingProxyType(workers),
        ready=meaning.ready,
        missing_roles=meaning.missing_roles,
        checksum=meaning.members.checksum or "",
        weight=meaning.weight,
    )


def derive(state: FleetState, meaning: SetMeaning, worker: Registration) -> Worker:
    """The worker with what its facts mean."""
    return _shown(worker, tuple(blockers(state, meaning, worker)))


def derive_routable(worker: Registration) -> Worker:
    """The same of a worker that is known to be routable, sooner."""
    return _shown(worker, ())


def _shown(worker: Registration, reasons: tuple[Blocker, ...]) -> Worker:
    return Worker(
        namespace=worker.namespace,
        worker_id=worker.worker_id,
        incarnation=worker.incarnation,
        model=worker.model,
        role=worker.role,
        checksum=worker.checksum,
        status=worker.status,
        routable=not reasons,
        blockers=reasons,
        needs=worker.needs,
        address=worker.address,
        capabilities=worker.capabilities,
        adapters=worker.adapters,
        capacity=worker.capacity,
        labels=dict(worker.labels),  # a caller's own: it may write into it
        registered_at=worker.registered_at,
    )


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


class _SetDocument(msgspec.Struct, kw_only=True):
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


class _ModelDocument(msgspec.Struct, kw_only=True):
    name: str
    serving: bool
    worker_sets: list[_SetDocument]

    def model(self) -> Model:
        sets = [document.worker_set() for document in self.worker_sets]
        return Model(
            name=self.name,
            serving=self.serving,
            worker_sets=MappingProxyType({s.key: s for s in sets}),
            ambiguous=ambiguous_roles((s.key, s.live) for s in sets),
        )


class _ViewDocument(msgspec.Struct, kw_only=True):
    cell: str
    log_id: str | None
    epoch: str | None
    revision: int
    digest: str
    models: list[_ModelDocument]
    known_models: list[str]
    anomalies: AnomalyCounts
