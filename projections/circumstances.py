"""How one worker stands at a moment, and which records are behind it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from events import Checksum, ModelName, Namespace, Record, Role

from .entities import (
    FleetChange,
    Hold,
    Registration,
    SetGone,
    SetPut,
    SettingGone,
    SettingKey,
    SettingPut,
    WorkerGone,
    WorkerKey,
    WorkerPut,
    WorkerSetKey,
)
from .fleet import FleetState
from .readiness import Blocker, blockers
from .rippling import is_live
from .view import Fleet


class Circumstances(msgspec.Struct, frozen=True, kw_only=True):
    """A registered worker with all that decides whether it may be picked."""

    registration: Registration
    in_force: Checksum | None
    """The checksum of the incumbents of its WorkerSet."""
    missing_roles: tuple[Role, ...]
    weight: float
    hold: Hold | None
    blockers: tuple[Blocker, ...]

    @property
    def routable(self) -> bool:
        """Whether it may be picked."""
        return not self.blockers


def circumstances_of(fleet: Fleet, key: WorkerKey) -> Circumstances | None:
    """How the worker stands; None: it is not registered."""
    state = fleet.state
    registration = state.workers.get(key)
    if registration is None:
        return None
    meaning = fleet.sets(registration.model)[registration.set_key]
    hold = state.settings.get(("hold", *key))
    return Circumstances(
        registration=registration,
        in_force=meaning.members.checksum,
        missing_roles=meaning.missing_roles,
        weight=meaning.weight,
        hold=hold if isinstance(hold, Hold) else None,
        blockers=tuple(blockers(state, meaning, registration)),
    )


class Causes:
    """The records that what stands now goes back to, for the workers of a namespace.

    Of settings: the record of each that stands. Of a WorkerSet: the record that put
    its checksum in force. Of a role: the record by which a live worker of it was last
    live; if the role is missing now, that is the one which took the last away.
    """

    def __init__(self, namespace: Namespace | None = None) -> None:
        """Nothing yet; None: of every namespace."""
        self._namespace: Final = namespace
        self.settings: dict[SettingKey, Record] = {}
        self.in_force: dict[WorkerSetKey, Record] = {}
        self.departures: dict[tuple[Namespace, ModelName, Role], Record] = {}

    def note(
        self,
        before: FleetState,
        after: FleetState,
        changes: Iterable[FleetChange],
        record: Record,
    ) -> None:
        """Take in what ``record`` changed."""
        for change in changes:
            match change:
                case WorkerPut(worker):
                    self._move(before, after, worker.key, record)
                case WorkerGone(namespace, worker_id):
                    self._move(before, after, (namespace, worker_id), record)
                case SetPut(key, cohorts):
                    members = before.members(key)
                    if members is None or members.checksum != cohorts[0]:
                        self.in_force[key] = record
                case SetGone(key):
                    self.in_force.pop(key, None)
                case SettingPut(setting):
                    self._set(before, after, setting.key, record)
                    self.settings[setting.key] = record
                case SettingGone(setting_key):
                    self._set(before, after, setting_key, record)
                    self.settings.pop(setting_key, None)
                case _:
                    continue

    def _set(
        self, before: FleetState, after: FleetState, key: SettingKey, record: Record
    ) -> None:
        match key:
            case ("hold", namespace, worker_id):
                self._move(before, after, (namespace, worker_id), record)

    def _move(
        self, before: FleetState, after: FleetState, key: WorkerKey, record: Record
    ) -> None:
        """Note a departure, if the worker was live and is no longer, in that role."""
        if self._namespace not in {None, key[0]}:
            return
        old, new = before.workers.get(key), after.workers.get(key)
        if old is None or not is_live(before, old):
            return
        stays = (
            new is not None
            and (new.model, new.role) == (old.model, old.role)
            and is_live(after, new)
        )
        if not stays:
            self.departures[old.namespace, old.model, old.role] = record
