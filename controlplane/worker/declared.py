"""What a worker says of itself and may change while it lives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, TypeAlias

import msgspec

from events import (
    AdapterLoaded,
    AdapterUnloaded,
    Capacity,
    Incarnation,
    ModelName,
    Status,
    WorkerDeregistered,
    WorkerEvent,
    WorkerRegistered,
    WorkerStatusChanged,
    WorkerUpdated,
)
from projections import PortBlock, Want

from .addressing import placed
from .spec import ResolvedSpec

UNSEALED: Final = datetime(1970, 1, 1, tzinfo=UTC)
"""Stands in a draft where the producer's clock will be."""

Draft: TypeAlias = (
    WorkerRegistered
    | WorkerStatusChanged
    | WorkerUpdated
    | AdapterLoaded
    | AdapterUnloaded
    | WorkerDeregistered
)
"""An event without event_id, at and by: whoever sends it seals it."""


class Declared(msgspec.Struct, frozen=True, kw_only=True):
    """All of a worker that its later events may change."""

    status: Status
    address: str
    capacity: Capacity
    labels: Mapping[str, str]
    adapters: frozenset[ModelName]

    @classmethod
    def of(cls, said: ResolvedSpec | WorkerRegistered) -> Declared:
        """What a spec wants, or a registration says."""
        return cls(
            status=said.status,
            address=said.address,
            capacity=said.capacity,
            labels=said.labels,
            adapters=frozenset(said.adapters),
        )

    def placed(self, wants: Sequence[Want], blocks: Sequence[PortBlock]) -> Declared:
        """The same at the ports that were claimed; see `addressing`."""
        return self.with_fields(address=placed(self.address, wants, blocks))

    def after(self, event: WorkerEvent) -> Declared:
        """What the log says of the life after one more event of it."""
        match event:
            case WorkerRegistered():
                return Declared.of(event)
            case WorkerStatusChanged():
                return self.with_fields(status=event.status)
            case WorkerUpdated():
                return self.with_fields(
                    address=event.address,
                    capacity=event.capacity,
                    labels=event.labels,
                )
            case AdapterLoaded():
                return self.with_fields(adapters=self.adapters | {event.adapter})
            case AdapterUnloaded():
                return self.with_fields(adapters=self.adapters - {event.adapter})
            case _:
                return self

    def with_fields(self, **fields: object) -> Declared:
        """The same with these fields; None leaves one as it is."""
        given = {k: v for k, v in fields.items() if v is not None}
        return msgspec.structs.replace(self, **given)


class Drafting(msgspec.Struct, frozen=True):
    """Writes the events of one life of a worker."""

    spec: ResolvedSpec
    incarnation: Incarnation

    def registered(self, wanted: Declared) -> WorkerRegistered:
        """All that the worker is."""
        return WorkerRegistered(
            **self._head(),
            component=self.spec.component,
            endpoint=self.spec.endpoint,
            role=self.spec.role,
            model=self.spec.model,
            address=wanted.address,
            lease_ttl_s=self.spec.lease_ttl_s,
            status=wanted.status,
            needs=self.spec.needs,
            card=self.spec.card,
            capabilities=self.spec.capabilities,
            adapters=tuple(sorted(wanted.adapters)),
            capacity=wanted.capacity,
            labels=dict(wanted.labels),
        )

    def deregistered(self, reason: str) -> WorkerDeregistered:
        """The worker leaves."""
        return WorkerDeregistered(**self._head(), reason=reason)

    def toward(self, said: Declared, wanted: Declared, reason: str) -> Draft | None:
        """The next event that brings the log from ``said`` to ``wanted``.

        Out of service first, into service last: nobody routes to a worker whose
        other facts are not told yet.
        """
        status = None
        if said.status is not wanted.status:
            status = WorkerStatusChanged(
                **self._head(), status=wanted.status, reason=reason
            )
        if status is not None and wanted.status is not Status.READY:
            return status
        return self._updated(said, wanted) or self._adapter(said, wanted) or status

    def _updated(self, said: Declared, wanted: Declared) -> WorkerUpdated | None:
        fields = {
            name: getattr(wanted, name)
            for name in ("address", "capacity", "labels")
            if getattr(said, name) != getattr(wanted, name)
        }
        if not fields:
            return None
        return WorkerUpdated(**self._head(), **fields)

    def _adapter(
        self, said: Declared, wanted: Declared
    ) -> AdapterLoaded | AdapterUnloaded | None:
        for adapter in sorted(said.adapters - wanted.adapters):
            return AdapterUnloaded(**self._head(), adapter=adapter)
        for adapter in sorted(wanted.adapters - said.adapters):
            return AdapterLoaded(**self._head(), adapter=adapter)
        return None

    def _head(self) -> dict[str, Any]:
        return {
            "event_id": "",
            "at": UNSEALED,
            "namespace": self.spec.namespace,
            "worker_id": self.spec.worker_id,
            "incarnation": self.incarnation,
        }
