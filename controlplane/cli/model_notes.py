"""What to look at below the table of models: a line for each thing, in plain words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final

from rich.text import Text

from events import Namespace, Role
from projections import Fleet, Model, WorkerSet

from .columns import cut, shown

NOTES_MAX: Final = 20
"""So many lines below a table; then how many more there are."""
NAME_WIDTH: Final = 14
"""Of names, so that what is said of them fits 80 columns."""
CHECKSUM_SHORT: Final = 8
FULL_WEIGHT: Final = 1.0
ODD: Final = "yellow"


def model_notes(fleet: Fleet, width: int) -> list[Text]:
    """The notes on a fleet, in the order of its models; none if all is usual."""
    notes = [note for model in fleet.models.values() for note in _of_model(model)]
    if len(notes) > NOTES_MAX:
        more = len(notes) - NOTES_MAX + 1
        notes[NOTES_MAX - 1 :] = [f"… and {more} more: controlplane models -o json"]
    return [Text(cut(shown(note), width), style=ODD) for note in notes]


def _of_model(model: Model) -> Iterator[str]:
    weights: dict[Namespace, float] = {}
    for worker_set in model.worker_sets.values():
        who = _who(worker_set.namespace, model, worker_set.key.role)
        if worker_set.missing_roles and worker_set.live:
            lacking = ", ".join(role.value for role in worker_set.missing_roles)
            yield f"{who} waits for live {lacking}"
        yield from (f"{who} quarantines {said}" for said in _quarantines(worker_set))
        weights[worker_set.namespace] = worker_set.weight
    for namespace, role in model.ambiguous:
        yield f"{_who(namespace, model, role)} has several sets: ambiguous, all serve"
    for namespace, weight in weights.items():
        if weight != FULL_WEIGHT:
            yield f"{_who(namespace, model)} has weight {weight:g}"


def _quarantines(worker_set: WorkerSet) -> Iterator[str]:
    """Who waits for the checksum in force to go, with both checksums."""
    others = Counter(
        worker.checksum
        for worker in worker_set.workers.values()
        if "checksum_mismatch" in worker.blockers
    )
    ours = worker_set.checksum[:CHECKSUM_SHORT]
    for checksum, count in sorted(others.items()):
        yield f"{count}: {checksum[:CHECKSUM_SHORT]}, not {ours}"


def _who(namespace: Namespace, model: Model, role: Role | None = None) -> str:
    where = f"{_name(namespace)}/{_name(model.name)}"
    return where if role is None else f"{where} {role.value}"


def _name(text: str) -> str:
    return cut(text, NAME_WIDTH, middle=True)
