"""What operators decide. Decisions are events too: they are replayed like the rest."""

from __future__ import annotations

from .event import Event
from .identity import ModelName, Namespace, Whole, WorkerId


class SettingEvent(Event, frozen=True, kw_only=True):
    """A decision; ``by`` is its author."""

    reason: str = ""


class WorkerHeld(
    SettingEvent,
    frozen=True,
    kw_only=True,
    omit_defaults=True,  # what is stored without ``drain`` keeps its bytes
    tag="worker_held.v1",
):
    """No traffic for this stable id until it is resumed; outlives incarnations."""

    namespace: Namespace
    worker_id: WorkerId
    drain: bool = False
    """The worker is asked to finish what it has, too. The latest decision counts."""


class WorkerResumed(SettingEvent, frozen=True, kw_only=True, tag="worker_resumed.v1"):
    """The hold on this stable id is lifted."""

    namespace: Namespace
    worker_id: WorkerId


class TrafficWeightSet(
    SettingEvent, frozen=True, kw_only=True, tag="traffic_weight_set.v1"
):
    """The share of a namespace in a model's traffic; 0 cordons it."""

    namespace: Namespace
    model: ModelName
    """``*``: every model of the namespace that has no weight of its own."""
    weight: float


class LoadThresholdsSet(
    SettingEvent, frozen=True, kw_only=True, tag="load_thresholds_set.v1"
):
    """From where on a worker of this model counts as busy; None: no limit."""

    model: ModelName
    busy_kv_usage: float | None = None
    busy_running: Whole | None = None
    busy_waiting: Whole | None = None


class ModelForgotten(SettingEvent, frozen=True, kw_only=True, tag="model_forgotten.v1"):
    """A name that nobody serves any more is known no longer."""

    model: ModelName
