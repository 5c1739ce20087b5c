"""What differs between two moments of the fleet, and which record made it so."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, Literal, TypeAlias

import msgspec

from events import Revision, Status

from .delta import diff as entity_diff
from .delta import entity_key
from .entities import (
    FleetChange,
    KnownPut,
    Put,
    SetPut,
    SettingPut,
    WorkerKey,
    WorkerPut,
)
from .fleet import FleetState
from .view import Fleet, Worker, worker_document

_NAMES: Final = ("namespace", "worker_id")
_STATUSES: Final = frozenset(status.value for status in Status)
What: TypeAlias = Literal["setting", "worker_set", "known_model"]
_WHATS: Final[dict[str, What]] = {
    "setting": "setting",
    "set": "worker_set",
    "known": "known_model",
}


class WorkerDifference(msgspec.Struct, frozen=True, kw_only=True):
    """A worker that came, went, or looks different."""

    before: Worker | None
    """None: it came."""
    after: Worker | None
    """None: it went."""
    fields: dict[str, tuple[Any, Any]] = {}
    """What changed, as plain data: before and after. Only of one that stayed."""
    revision: Revision | None = None
    """The record that made it so; None: the records between were not looked at."""

    @property
    def key(self) -> WorkerKey:
        """The worker's stable identity."""
        worker = self.after or self.before
        assert worker is not None  # noqa: S101 - a difference is of somebody
        return (worker.namespace, worker.worker_id)

    @property
    def name(self) -> str:
        """The worker as commands name it: ``namespace/worker_id``."""
        return "/".join(self.key)


class OtherDifference(msgspec.Struct, frozen=True, kw_only=True):
    """What is not a worker: a setting, the checksums of a WorkerSet, a known name."""

    what: What
    name: tuple[str, ...]
    before: Any
    """Plain data; None: it was not there."""
    after: Any
    """Plain data; None: it is not there."""
    revision: Revision | None = None

    @property
    def key(self) -> tuple[str, ...]:
        """What it is found by, among all entities."""
        kinds = {what: kind for kind, what in _WHATS.items()}
        return (kinds[self.what], *self.name)


class FleetDifference(msgspec.Struct, frozen=True, kw_only=True):
    """How one fleet differs from another; false when it does not."""

    from_revision: Revision
    to_revision: Revision
    removed: tuple[WorkerDifference, ...]
    changed: tuple[WorkerDifference, ...]
    added: tuple[WorkerDifference, ...]
    """Each in the order of namespaces and ids."""
    others: tuple[OtherDifference, ...]
    """Only what the workers above do not tell by themselves."""
    changes: tuple[FleetChange, ...]
    """What leads from one to the other, whole: `apply` them to the first's ``state``
    and it is the second's. Empty between fleets that were read from documents."""

    def __bool__(self) -> bool:
        """Whether there is any difference."""
        return bool(self.removed or self.changed or self.added or self.others)

    def document(self) -> dict[str, Any]:
        """The difference as plain data; ``others`` only if there are any."""
        document: dict[str, Any] = {
            "from": self.from_revision,
            "to": self.to_revision,
            "removed": [_whole(one) for one in self.removed],
            "changed": [
                {
                    "worker": one.name,
                    "fields": {name: list(pair) for name, pair in one.fields.items()},
                    "revision": one.revision,
                }
                for one in self.changed
            ],
            "added": [_whole(one) for one in self.added],
        }
        if self.others:
            document["others"] = msgspec.to_builtins(self.others)
        return document


def differences(before: Fleet, after: Fleet) -> FleetDifference:
    """How ``after`` differs from ``before``: removed, changed field by field, added.

    Of what is routable only what more than the worker's own status decides is listed:
    that a draining worker is not routable goes without saying. The revisions are for
    a `Trail` to find.
    """
    old, new = _by_key(before), _by_key(after)
    whole = _has_state(before) and _has_state(after)
    changes = entity_diff(before.state, after.state) if whole else ()
    return FleetDifference(
        from_revision=before.revision,
        to_revision=after.revision,
        removed=tuple(
            WorkerDifference(before=old[key], after=None)
            for key in sorted(old.keys() - new.keys())
        ),
        changed=tuple(
            WorkerDifference(
                before=old[key], after=new[key], fields=_fields(old[key], new[key])
            )
            for key in sorted(old.keys() & new.keys())
            if old[key] != new[key]
        ),
        added=tuple(
            WorkerDifference(before=None, after=new[key])
            for key in sorted(new.keys() - old.keys())
        ),
        others=tuple(_others(before, after)) if whole else (),
        changes=changes,
    )


def _by_key(fleet: Fleet) -> dict[WorkerKey, Worker]:
    return {
        (worker.namespace, worker.worker_id): worker
        for model in fleet.models.values()
        for worker_set in model.worker_sets.values()
        for worker in worker_set.workers.values()
    }


def _has_state(fleet: Fleet) -> bool:
    """Whether the fleet has its entities; one that was read shows what it shows."""
    return fleet.state.digest == fleet.digest


def _fields(old: Worker, new: Worker) -> dict[str, tuple[Any, Any]]:
    was, now = worker_document(old), worker_document(new)
    names = [n for n in was if n not in _NAMES and was[n] != now[n]]
    if "status" in names and _beyond_status(old) == _beyond_status(new):
        names = [name for name in names if name not in {"routable", "blockers"}]
    return {name: (was[name], now[name]) for name in names}


def _beyond_status(worker: Worker) -> list[str]:
    return [reason for reason in worker.blockers if reason not in _STATUSES]


def _whole(one: WorkerDifference) -> dict[str, Any]:
    worker = one.after or one.before
    assert worker is not None  # noqa: S101 - a difference is of somebody
    return {"worker": one.name, "revision": one.revision, **worker_document(worker)}


# ---- what is no worker ---------------------------------------------------------
def _others(before: Fleet, after: Fleet) -> Iterator[OtherDifference]:
    old, new = _entities(before.state), _entities(after.state)
    back = before.revision > after.revision
    early, late = (new, old) if back else (old, new)
    late_state = (before if back else after).state
    for key in sorted(old.keys() | new.keys()):
        was, now = old.get(key), new.get(key)
        if was == now or _goes_without_saying(
            early.get(key), late.get(key), late_state
        ):
            continue
        yield OtherDifference(
            what=_WHATS[key[0]], name=key[1:], before=_plain(was), after=_plain(now)
        )


def _entities(state: FleetState) -> dict[tuple[str, ...], Put]:
    puts = (put for put in state.entities() if not isinstance(put, WorkerPut))
    return {entity_key(put): put for put in puts}


def _goes_without_saying(
    early: Put | None, late: Put | None, after: FleetState
) -> bool:
    """Whether workers that came or went tell it: their WorkerSet, their names.

    ``after``: the later fleet. A name comes with a worker, but none takes it away: it
    was forgotten, and somebody did that.
    """
    if early is not None and late is not None:
        return False
    match early or late:
        case SetPut():
            return True
        case KnownPut(name):
            return early is None and (name in after.models or name in after.adapters)
        case _:
            return False


def _plain(put: Put | None) -> Any:  # noqa: ANN401 - plain data
    match put:
        case SettingPut(setting):
            return msgspec.to_builtins(setting)
        case SetPut(cohorts=cohorts):
            return list(cohorts)
        case _:
            return None if put is None else True
