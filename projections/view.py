"""The view as people and routers read it: Model -> WorkerSet -> Worker."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final

import msgspec

from events import (
    UNREADABLE,
    ModelName,
    Namespace,
    Revision,
    WorkerId,
)

from .anomaly import AnomalyCounts
from .document import (
    Model,
    ViewDocument,
    Worker,
    WorkerSet,
    model_document,
    set_document,
    worker_document,
)
from .entities import Registration, WorkerKey, WorkerSetKey
from .fleet import EMPTY, FleetState
from .readiness import Blocker, SetMeaning, ambiguous_roles, blockers, meanings

__all__ = [
    "Fleet",
    "Model",
    "Worker",
    "WorkerSet",
    "derive",
    "derive_routable",
    "model_document",
    "set_document",
    "worker_document",
]

_ENCODER: Final = msgspec.json.Encoder(order="deterministic")
_NO_SETS: Final[Mapping[WorkerSetKey, SetMeaning]] = MappingProxyType({})


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
            document = msgspec.json.decode(text, type=ViewDocument)
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
