"""What the fleet is made of, and how it changes: put an entity, or it is gone.

What a fleet holds thousands of is kept from the garbage collector (``gc=False``): these
are trees of values that cannot form cycles, and walking them all made a pause of tens
of milliseconds out of each full collection, in the middle of reading a snapshot.
"""

from __future__ import annotations

from datetime import datetime
from functools import lru_cache
from typing import TypeAlias

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


class WorkerSetKey(msgspec.Struct, frozen=True, cache_hash=True, gc=False):
    """What the workers of one WorkerSet have in common."""

    namespace: Namespace
    component: str
    endpoint: str
    model: ModelName
    role: Role

    def sort_key(self) -> tuple[str, ...]:
        """The order in which listings and picks take WorkerSets."""
        return (
            self.namespace,
            self.component,
            self.endpoint,
            self.model,
            self.role.value,
        )


@lru_cache(maxsize=4096)
def _one_set_key(
    namespace: Namespace, component: str, endpoint: str, model: ModelName, role: Role
) -> WorkerSetKey:
    """One and the same key for all workers of a set: nothing but time depends on it."""
    return WorkerSetKey(namespace, component, endpoint, model, role)


WorkerKey: TypeAlias = tuple[Namespace, WorkerId]
SettingKey: TypeAlias = tuple[str, ...]


class Registration(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What the log holds of a worker that is registered: its current life."""

    namespace: Namespace
    worker_id: WorkerId
    incarnation: Incarnation
    component: str
    endpoint: str
    model: ModelName
    role: Role
    needs: Needs
    checksum: Checksum
    address: str
    capabilities: tuple[str, ...]
    adapters: tuple[ModelName, ...]
    capacity: Capacity
    labels: dict[str, str]
    lease_ttl_s: float
    status: Status
    registered_at: datetime
    """The broker's time of the registration; kept by import."""

    @property
    def key(self) -> WorkerKey:
        """The stable identity of the worker."""
        return (self.namespace, self.worker_id)

    @property
    def life_key(self) -> tuple[Namespace, WorkerId, Incarnation]:
        """The identity of this life of it."""
        return (self.namespace, self.worker_id, self.incarnation)

    @property
    def set_key(self) -> WorkerSetKey:
        """The WorkerSet it belongs to."""
        return _one_set_key(
            self.namespace, self.component, self.endpoint, self.model, self.role
        )


class Hold(msgspec.Struct, frozen=True, kw_only=True, tag="hold"):
    """An operator keeps traffic away from a worker's stable id."""

    namespace: Namespace
    worker_id: WorkerId
    reason: str
    by: str

    @property
    def key(self) -> SettingKey:
        """Its place among the settings."""
        return ("hold", self.namespace, self.worker_id)


class Weight(msgspec.Struct, frozen=True, kw_only=True, tag="weight"):
    """A namespace's share of a model's traffic."""

    namespace: Namespace
    model: ModelName
    weight: float
    reason: str
    by: str

    @property
    def key(self) -> SettingKey:
        """Its place among the settings."""
        return ("weight", self.namespace, self.model)


class Thresholds(msgspec.Struct, frozen=True, kw_only=True, tag="thresholds"):
    """From where on a worker of a model counts as busy."""

    model: ModelName
    busy_kv_usage: float | None
    busy_running: int | None
    busy_waiting: int | None
    reason: str
    by: str

    @property
    def key(self) -> SettingKey:
        """Its place among the settings."""
        return ("thresholds", self.model)


Setting: TypeAlias = Hold | Weight | Thresholds


class WorkerPut(msgspec.Struct, frozen=True, gc=False, tag="worker_put"):
    """A worker is there, or is now thus."""

    worker: Registration


class WorkerGone(msgspec.Struct, frozen=True, gc=False, tag="worker_gone"):
    """A worker is no longer there."""

    namespace: Namespace
    worker_id: WorkerId


class SetPut(msgspec.Struct, frozen=True, gc=False, tag="set_put"):
    """A WorkerSet's checksums in order of first registration; the first is in force."""

    key: WorkerSetKey
    cohorts: tuple[Checksum, ...]


class SetGone(msgspec.Struct, frozen=True, gc=False, tag="set_gone"):
    """A WorkerSet's last worker left."""

    key: WorkerSetKey


class SettingPut(msgspec.Struct, frozen=True, tag="setting_put"):
    """An operator's decision stands."""

    setting: Setting


class SettingGone(msgspec.Struct, frozen=True, tag="setting_gone"):
    """An operator's decision was lifted."""

    key: SettingKey


class KnownPut(msgspec.Struct, frozen=True, gc=False, tag="known_put"):
    """A model or adapter of this name was served at some time."""

    name: ModelName


class KnownGone(msgspec.Struct, frozen=True, gc=False, tag="known_gone"):
    """The name was forgotten."""

    name: ModelName


Put: TypeAlias = WorkerPut | SetPut | SettingPut | KnownPut
"""The entities; what the digest covers is exactly these."""
Gone: TypeAlias = WorkerGone | SetGone | SettingGone | KnownGone
FleetChange: TypeAlias = Put | Gone
