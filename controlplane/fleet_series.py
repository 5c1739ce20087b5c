"""The series that a projector has for each model of a namespace, and their bound."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final, NamedTuple, TypeAlias

MODELS_SHOWN_MAX: Final = 1000
"""So many models of a namespace have series of their own."""
FLEET_SERIES: Final = (
    (
        "workers",
        ("namespace", "model", "role", "state"),
        "Workers in the view; state: routable or the first blocker",
    ),
    (
        "model_serving",
        ("namespace", "model"),
        "1 if the namespace can take a request for the model, else 0",
    ),
    (
        "model_worker_sets",
        ("namespace", "model", "role", "state"),
        "WorkerSets; state: ready or not_ready",
    ),
    (
        "model_missing_roles",
        ("namespace", "model", "role"),
        "1 for a role that a live WorkerSet needs and nobody live has",
    ),
    (
        "model_ambiguous_roles",
        ("namespace", "model", "role"),
        "1 for a role, not aggregated, of several live WorkerSets; all serve",
    ),
)
"""Name, labels and meaning of each."""

Series: TypeAlias = Mapping[str, Mapping[tuple[str, ...], float]]


class WorkerGroup(NamedTuple):
    """Workers that one series counts; ``state``: routable, or the first blocker."""

    namespace: str
    model: str
    role: str
    state: str


class ModelState(NamedTuple):
    """How a model stands in one namespace."""

    serving: bool
    sets: Mapping[tuple[str, str], int]
    """WorkerSets by role, and whether they are ``ready`` or ``not_ready``."""
    missing: Collection[str]
    """Roles that its live WorkerSets need and nobody live has."""
    ambiguous: Collection[str]
    """Roles that several live WorkerSets have."""


def fleet_series(
    workers: Mapping[WorkerGroup, int],
    models: Mapping[tuple[str, str], ModelState],
) -> tuple[Series, int]:
    """All series, and for how many of ``models`` (by namespace and name) there is none.

    What is not there has no series, so their number is bounded by the fleet, and by
    `MODELS_SHOWN_MAX`: a namespace of its own for each job must not make the page, and
    whoever scrapes it, grow without end. The first by name have them.
    """
    shown = {place: models[place] for place in sorted(models)[:MODELS_SHOWN_MAX]}
    series: Series = {
        "workers": {tuple(g): float(n) for g, n in workers.items() if g[:2] in shown},
        "model_serving": {at: float(one.serving) for at, one in shown.items()},
        "model_worker_sets": {
            (*at, *which): float(count)
            for at, one in shown.items()
            for which, count in one.sets.items()
        },
        "model_missing_roles": {
            (*at, role): 1.0 for at, one in shown.items() for role in one.missing
        },
        "model_ambiguous_roles": {
            (*at, role): 1.0 for at, one in shown.items() for role in one.ambiguous
        },
    }
    return series, len(models) - len(shown)
