"""How many workers of a deployment may be picked, and what keeps the others away."""

from __future__ import annotations

from collections import Counter

import msgspec

from events import ENTRY_ROLES, ModelName, Namespace, Role

from .readiness import blockers
from .view import Fleet


class Census(msgspec.Struct, frozen=True):
    """The workers of a namespace that answer to a name."""

    routable: int
    blockers: dict[str, int]
    """Of those that may not be picked: how many each reason keeps away, by name."""


def traffic_share(fleet: Fleet, namespace: Namespace, model: ModelName) -> float | None:
    """The share of ``model``'s picks that ``namespace`` gets, by workers x weight.

    As requests that name a model and nothing else are spread; None: nobody gets any.
    """
    sets = [
        (key.namespace, len(meaning.routable), meaning.weight)
        for key, meaning in fleet.sets(model).items()
        if meaning.is_entry and meaning.routable
    ]
    if not sets:
        return None
    heaviest = max(weight for *_, weight in sets)  # an old log may hold any above 0
    total = own = 0.0
    for place, workers, weight in sets:
        part = workers * (weight / heaviest)
        total += part
        own += part if place == namespace else 0.0
    return own / total


def take_census(
    fleet: Fleet, namespace: Namespace, model: ModelName, role: Role | None = None
) -> Census:
    """Count who answers to ``model``, a model's or an adapter's name, in ``namespace``.

    ``role``: None counts those at which a request may start, as a pick does.
    """
    roles = ENTRY_ROLES if role is None else {role}
    having = fleet.state.adapters.get(model, ())
    routable, reasons = 0, Counter[str]()
    for name in {model, *(fleet.state.workers[key].model for key in having)}:
        for key, meaning in fleet.sets(name).items():
            if key.namespace != namespace or key.role not in roles:
                continue
            for worker in meaning.members.workers.values():
                if model not in (worker.model, *worker.adapters):
                    continue
                why = tuple(blockers(fleet.state, meaning, worker))
                routable += not why
                reasons.update(why)
    return Census(routable, dict(sorted(reasons.items())))
