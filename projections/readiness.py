"""What the fleet's facts mean: live, ready, routable, and every reason why not.

- live: status ready, admitted, not held;
- a WorkerSet's needs are met: none, or one alternative whose every role is live in
  the namespace for that model; only live sets count as live roles;
- routable: live, the set's needs are met, the weight is above 0.

All of it is derived where it is read; nothing of it is stored or sent.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final, Literal, TypeAlias

import msgspec

from events import ENTRY_ROLES, ModelName, Namespace, Needs, Role, Status

from .entities import Hold, Registration, Thresholds, Weight, WorkerSetKey
from .fleet import FleetState, Members

Blocker: TypeAlias = Literal[
    "starting",
    "draining",
    "drained",
    "held",
    "checksum_mismatch",
    "needs_unmet",
    "weight_zero",
]
_STATUS_BLOCKERS: Final[dict[Status, Blocker]] = {
    Status.STARTING: "starting",
    Status.DRAINING: "draining",
    Status.DRAINED: "drained",
}
FULL_WEIGHT: Final = 1.0


class SetMeaning(msgspec.Struct, frozen=True):
    """A WorkerSet with what its namespace and the settings make of it."""

    key: WorkerSetKey
    members: Members
    live: tuple[Registration, ...]
    """In order of worker ids."""
    missing_roles: tuple[Role, ...]
    """Of the alternative that lacks least; empty: the needs are met."""
    weight: float

    @property
    def ready(self) -> bool:
        """Whether it has live workers and what they need."""
        return bool(self.live) and not self.missing_roles

    @property
    def routable(self) -> tuple[Registration, ...]:
        """The workers that may be picked."""
        return self.live if self.weight > 0 and not self.missing_roles else ()

    @property
    def is_entry(self) -> bool:
        """Whether a request may start here."""
        return self.key.role in ENTRY_ROLES


def meanings(state: FleetState, model: ModelName) -> tuple[SetMeaning, ...]:
    """The WorkerSets of a model, in their order, with what they mean."""
    sets = state.models.get(model)
    if sets is None:
        return ()
    live = {key: _live(state, members) for key, members in sets.items()}
    roles: dict[Namespace, set[Role]] = {}
    for key, workers in live.items():
        if workers:
            roles.setdefault(key.namespace, set()).add(key.role)
    return tuple(
        SetMeaning(
            key,
            sets[key],
            live[key],
            missing_roles(sets[key].needs, roles.get(key.namespace, set())),
            weight_of(state, key.namespace, model),
        )
        for key in sorted(sets, key=WorkerSetKey.sort_key)
    )


def missing_roles(needs: Needs, live: set[Role]) -> tuple[Role, ...]:
    """The roles that the least lacking alternative lacks, in order of their names.

    Ties go to the alternative that comes first by its missing roles' names.
    """
    if not needs:
        return ()
    lacking = [
        sorted({role.value for role in roles if role not in live}) for roles in needs
    ]
    return tuple(Role(name) for name in min(lacking, key=lambda a: (len(a), a)))


def ambiguous_roles(
    sets: Iterable[tuple[WorkerSetKey, bool]],
) -> tuple[tuple[Namespace, Role], ...]:
    """The roles that more than one live WorkerSet of a namespace has, in order.

    ``sets`` are those of one model, each with whether it is live. A request needs one
    worker of a role, and nothing says which of two prefill sets belongs to a decode
    set: they keep serving, but somebody should look. Aggregated sets need no partner.
    """
    counts = Counter(
        (key.namespace, key.role)
        for key, live in sets
        if live and key.role is not Role.AGGREGATED
    )
    several = [place for place, count in counts.items() if count > 1]
    return tuple(sorted(several, key=lambda place: (place[0], place[1].value)))


def weight_of(state: FleetState, namespace: Namespace, model: ModelName) -> float:
    """The weight an operator gave: the model's own, else the namespace's, else 1."""
    for name in (model, "*"):
        setting = state.settings.get(("weight", namespace, name))
        if isinstance(setting, Weight):
            return setting.weight
    return FULL_WEIGHT


def limits_of(state: FleetState, model: ModelName) -> Thresholds | None:
    """From where on a worker of the model is busy, if an operator said so."""
    setting = state.settings.get(("thresholds", model))
    return setting if isinstance(setting, Thresholds) else None


def is_held(state: FleetState, worker: Registration) -> bool:
    """Whether an operator keeps traffic away from this worker."""
    key = ("hold", worker.namespace, worker.worker_id)
    return isinstance(state.settings.get(key), Hold)


def blockers(
    state: FleetState, meaning: SetMeaning, worker: Registration
) -> Iterator[Blocker]:
    """Every reason why ``worker`` gets no traffic, in the order of `Blocker`."""
    if worker.status is not Status.READY:
        yield _STATUS_BLOCKERS[worker.status]
    if is_held(state, worker):
        yield "held"
    if worker.checksum != meaning.members.checksum:
        yield "checksum_mismatch"
    if meaning.missing_roles:
        yield "needs_unmet"
    if meaning.weight <= 0:
        yield "weight_zero"


def _live(state: FleetState, members: Members) -> tuple[Registration, ...]:
    ready = members.ready
    if not state.settings:
        return ready
    return tuple(worker for worker in ready if not is_held(state, worker))
