"""What a projector says of itself over HTTP: metrics, health, the view."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Final

import msgspec

from controlplane.fleet_series import ModelState, WorkerGroup
from controlplane.http import JSON, Handler, Response
from events import Namespace
from projections import (
    Fleet,
    FleetState,
    SetMeaning,
    ambiguous_roles,
    blockers,
    meanings,
)

BEHIND_STUCK_S: Final = 5.0
FILL_WARNING: Final = 0.9


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """How a projector is; ``reasons`` say why it is not simply ok."""

    status: str
    """``ok``; ``degraded``: it works, but look; ``stuck``: it does not."""
    role: str
    revision: int
    log_last_revision: int
    epoch: str | None
    ordinal: int
    reasons: tuple[str, ...] = ()


class Signs(msgspec.Struct, frozen=True, kw_only=True):
    """What health is judged by."""

    leading: bool
    revision: int
    log_last_revision: int
    behind_s: float
    """For how long the fold has been below the log's end."""
    unpublished_s: float
    """Age of the oldest delta that waits for the view stream."""
    epoch: str | None
    ordinal: int
    caught_up: bool
    connected: bool
    log_fill: float
    workers: int
    unreadable: int
    """Records of the log that could not be read."""
    quarantined: int
    held: int
    guard_engaged: bool
    trouble: str | None
    """Why there is no working core now."""


def judge_health(signs: Signs) -> Health:
    """Whether the projector works, and what an operator should look at."""
    stuck = list(_stuck(signs))
    degraded = list(_degraded(signs))
    status = "stuck" if stuck else "degraded" if degraded else "ok"
    return Health(
        status=status,
        role="leader" if signs.leading else "follower",
        revision=signs.revision,
        log_last_revision=signs.log_last_revision,
        epoch=signs.epoch,
        ordinal=signs.ordinal,
        reasons=(*stuck, *degraded),
    )


def _stuck(signs: Signs) -> list[str]:
    reasons = []
    if signs.trouble is not None:
        reasons.append(signs.trouble)
    if not signs.connected:
        reasons.append("the broker is not connected")
    if not signs.caught_up:
        reasons.append(
            f"folding: at revision {signs.revision} of {signs.log_last_revision}"
        )
    elif signs.behind_s > BEHIND_STUCK_S:
        reasons.append(
            f"stuck at revision {signs.revision}; the log ends at "
            f"{signs.log_last_revision} for {signs.behind_s:.0f} s"
        )
    if signs.leading and signs.unpublished_s > BEHIND_STUCK_S:
        waited = f"{signs.unpublished_s:.0f} s"
        reasons.append(f"a delta has waited {waited} to be published")
    return reasons


def _degraded(signs: Signs) -> list[str]:
    reasons = []
    if signs.workers == 0 and signs.unreadable:
        reasons.append(
            f"the view is empty and {signs.unreadable} records could not be read"
        )
    if signs.workers and signs.workers == signs.quarantined:
        reasons.append("every worker is quarantined")
    if signs.guard_engaged:
        reasons.append(f"the mass-expiry guard holds {signs.held} lives")
    if signs.log_fill > FILL_WARNING:
        reasons.append(f"the log is {signs.log_fill:.0%} full")
    return reasons


class Grouped(msgspec.Struct, frozen=True):
    """A fleet in numbers, for series; the groups are in order of their names."""

    workers: Mapping[WorkerGroup, int]
    """By namespace, model, role and state."""
    models: Mapping[tuple[str, str], ModelState]
    """By namespace and model."""
    sets: int
    ready: int


def group_workers(state: FleetState) -> Grouped:
    """The fleet in numbers."""
    counts: Counter[WorkerGroup] = Counter()
    models: dict[tuple[str, str], ModelState] = {}
    sets = ready = 0
    for model in state.models:
        found: dict[Namespace, list[SetMeaning]] = {}
        for meaning in meanings(state, model):
            sets += 1
            ready += meaning.ready
            key = meaning.key
            found.setdefault(key.namespace, []).append(meaning)
            for worker in meaning.members.workers.values():
                first = next(blockers(state, meaning, worker), "routable")
                group = WorkerGroup(key.namespace, key.model, key.role.value, first)
                counts[group] += 1
        models.update(
            ((namespace, model), _stand(own)) for namespace, own in found.items()
        )
    by_name = dict(sorted(models.items()))
    return Grouped(dict(sorted(counts.items())), by_name, sets, ready)


def _stand(sets: list[SetMeaning]) -> ModelState:
    """How a model stands in the namespace that has these WorkerSets."""
    states = Counter(
        (meaning.key.role.value, "ready" if meaning.ready else "not_ready")
        for meaning in sets
    )
    live = [meaning for meaning in sets if meaning.live]
    missing = {role.value for meaning in live for role in meaning.missing_roles}
    ambiguous = ambiguous_roles((meaning.key, True) for meaning in live)
    return ModelState(
        serving=any(meaning.is_entry and meaning.routable for meaning in live),
        sets=states,
        missing=sorted(missing),
        ambiguous=[role.value for _, role in ambiguous],
    )


def routes(
    metrics: Handler, view: Callable[[], Fleet], health: Callable[[], Health]
) -> dict[str, Handler]:
    """The pages by their paths."""

    async def healthz() -> Response:
        return HTTPStatus.OK, JSON, b'{"status":"ok"}'

    async def readyz() -> Response:
        found = health()
        status = HTTPStatus.OK
        if found.status == "stuck":
            status = HTTPStatus.SERVICE_UNAVAILABLE
        return status, JSON, msgspec.json.encode(found)

    async def the_view() -> Response:
        fleet = view()
        return HTTPStatus.OK, JSON, fleet.to_json().encode()

    return {
        "/metrics": metrics,
        "/healthz": healthz,
        "/readyz": readyz,
        "/view": the_view,
    }
