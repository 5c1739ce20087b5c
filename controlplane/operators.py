"""What operators decide. A decision is an event: whoever has a log may append one."""

from __future__ import annotations

import math
from typing import Any, Final

from events import (
    AnyEvent,
    LoadThresholdsSet,
    ModelForgotten,
    ModelName,
    Namespace,
    TrafficWeightSet,
    WorkerHeld,
    WorkerId,
    WorkerResumed,
    check_model,
    check_name,
    check_namespace,
    check_reason,
    check_worker_id,
)
from projections import Fleet, ModelNotFoundError

from .clock import Clock
from .errors import ModelInUseError, SettingsError
from .eventlog import Appended
from .identifiers import new_uuid7
from .runtime import Lifetime

WEIGHT_MIN: Final = 1e-6
WEIGHT_MAX: Final = 1e6
"""Shares are sums of workers x weight, loads are divided by it: far from where floats
end."""
COUNT_MAX: Final = 2**31


class Operators(Lifetime):
    """Operators' decisions, for what has a log: `Plane`.

    Each returns where the decision stands; routers go by it as soon as they have that
    revision, see `Plane.wait`. ``by`` is the author, else the plane's name. What is
    refused is refused before anything is sent: `InvalidIdentityError` for a name,
    `SettingsError` for a number. Otherwise they raise as `EventLog.append` does.
    """

    name: str
    _clock: Clock

    async def _decide(self, event: AnyEvent) -> Appended:
        """Append ``event``."""
        raise NotImplementedError

    async def _fleet_now(self) -> Fleet:
        """The whole fleet, with everything acknowledged before this call."""
        raise NotImplementedError

    # ---- one worker ------------------------------------------------------------
    async def hold(
        self,
        namespace: Namespace,
        worker_id: WorkerId,
        reason: str = "",
        *,
        by: str | None = None,
    ) -> Appended:
        """Keep traffic away from this stable id until `resume`.

        It outlives restarts of the worker and rebuilds of the view, and may come
        before the worker does. It takes back a `request_drain`: the hold stays.
        """
        return await self._hold(namespace, worker_id, reason, by, drain=False)

    async def request_drain(
        self,
        namespace: Namespace,
        worker_id: WorkerId,
        reason: str = "",
        *,
        by: str | None = None,
    ) -> Appended:
        """As `hold`, and ask the worker to finish what it has: `wait_drained`.

        A projector tells it, again and again until it drains, and tells its next life
        too, until `resume`.
        """
        return await self._hold(namespace, worker_id, reason, by, drain=True)

    async def _hold(
        self,
        namespace: Namespace,
        worker_id: WorkerId,
        reason: str,
        by: str | None,
        *,
        drain: bool,
    ) -> Appended:
        event = WorkerHeld(
            **self._head(reason, by),
            namespace=check_namespace(namespace),
            worker_id=check_worker_id(worker_id),
            drain=drain,
        )
        return await self._decide(event)

    async def resume(
        self,
        namespace: Namespace,
        worker_id: WorkerId,
        reason: str = "",
        *,
        by: str | None = None,
    ) -> Appended:
        """Lift the hold, and the request to drain, from this stable id."""
        event = WorkerResumed(
            **self._head(reason, by),
            namespace=check_namespace(namespace),
            worker_id=check_worker_id(worker_id),
        )
        return await self._decide(event)

    # ---- a model ---------------------------------------------------------------
    async def weight(
        self,
        namespace: Namespace,
        model: ModelName,
        weight: float,
        reason: str = "",
        *,
        by: str | None = None,
    ) -> Appended:
        """Give a namespace its share of a model's traffic, for each of its workers.

        Without a decision it is 1; 0 cordons the namespace. ``model`` may be ``*``:
        every model that has no weight of its own there. An adapter goes by its model's
        weight: one on the adapter's name changes nothing.
        """
        event = TrafficWeightSet(
            **self._head(reason, by),
            namespace=check_namespace(namespace),
            model=model if model == "*" else check_model(model),
            weight=check_weight(weight),
        )
        return await self._decide(event)

    async def thresholds(
        self,
        model: ModelName,
        *,
        busy_kv_usage: float | None = None,
        busy_running: int | None = None,
        busy_waiting: int | None = None,
        reason: str = "",
        by: str | None = None,
    ) -> Appended:
        """Say from where on a worker of ``model`` counts as busy.

        The KV cache's usage is a share, up to 1; the others count requests. They take
        the place of all that were set before; None: no limit. An adapter goes by its
        model's limits: those on the adapter's name change nothing.
        """
        event = LoadThresholdsSet(
            **self._head(reason, by),
            model=check_model(model),
            busy_kv_usage=check_share("busy_kv_usage", busy_kv_usage),
            busy_running=check_count("busy_running", busy_running),
            busy_waiting=check_count("busy_waiting", busy_waiting),
        )
        return await self._decide(event)

    async def forget(
        self, model: ModelName, reason: str = "", *, by: str | None = None
    ) -> Appended:
        """Let a name that nobody serves any more be as one never seen.

        Raises `ModelNotFoundError` when it is that already, `ModelInUseError` when
        workers serve it. One that registers it meanwhile wins: it stays known.
        """
        event = ModelForgotten(**self._head(reason, by), model=check_model(model))
        fleet = await self._fleet_now()
        serving = [
            f"{worker.namespace}/{worker.worker_id}"
            for worker in fleet.state.workers.values()
            if model in (worker.model, *worker.adapters)
        ]
        if serving:
            raise ModelInUseError(model=model, workers=sorted(serving))
        if model not in fleet.state.known:
            raise ModelNotFoundError(model=model)
        return await self._decide(event)

    def _head(self, reason: str, by: str | None) -> dict[str, Any]:
        """The fields that every decision has."""
        return {
            "event_id": new_uuid7(),
            "at": self._clock.now(),
            "by": self.name if by is None else check_name("by", by),
            "reason": check_reason(reason),
        }


def check_weight(value: float) -> float:
    """Return ``value`` if it may be a weight, else raise `SettingsError`."""
    some = _is_number(value) and WEIGHT_MIN <= value <= WEIGHT_MAX
    if not some and not (_is_number(value) and value == 0):
        rule = f"0 (no traffic), or from {WEIGHT_MIN:g} to {WEIGHT_MAX:g}; usual is 1"
        raise SettingsError(field="weight", value=value, rule=rule)
    return float(value) + 0.0  # of -0.0 too that is 0


def check_share(field: str, value: float | None) -> float | None:
    """Return ``value`` if it may be a limit of a share, else raise `SettingsError`."""
    if value is None:
        return None
    if not _is_number(value) or not 0 < value <= 1:
        rule = "a share, above 0 and at most 1"
        raise SettingsError(field=field, value=value, rule=rule)
    return float(value)


def check_count(field: str, value: int | None) -> int | None:
    """Return ``value`` if it may be a limit of a count, else raise `SettingsError`."""
    if value is None:
        return None
    if type(value) is not int or not 1 <= value < COUNT_MAX:
        rule = f"a whole number from 1 to {COUNT_MAX - 1}"
        raise SettingsError(field=field, value=value, rule=rule)
    return value


def _is_number(value: object) -> bool:
    """Whether it is a finite number."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return isinstance(value, int) or math.isfinite(value)
