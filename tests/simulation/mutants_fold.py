"""Deliberate faults of what is pure: the fold, the fleet, snapshots, changes."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import msgspec

from controlplane.router import changes as router_changes
from events import WorkerEvent, WorkerRegistered
from projections import admission, deciding, life, port, readiness, snapshot
from projections.applying import _Draft
from projections.entities import Hold, SettingGone, SettingPut
from projections.fleet import Members

from .mutating import Everywhere, Make, Mutant, Patch, always

fold = import_module("projections.fold")
"""The module: the package has a function of that name."""


def _blind_to_incarnation(decide: Any) -> Any:
    def decide_worker(
        state: Any, event: WorkerEvent, current: Any, recorded_at: Any
    ) -> Any:
        if current is not None and not isinstance(event, WorkerRegistered):
            named = {"incarnation": current.incarnation}
            event = msgspec.structs.replace(event, **named)
        return decide(state, event, current, recorded_at)

    return decide_worker


def _counting_itself(decide: Any) -> Any:
    calls = [0]

    def decide_worker(
        state: Any, event: WorkerEvent, current: Any, recorded_at: Any
    ) -> Any:
        calls[0] += 1
        if isinstance(event, WorkerRegistered):
            labels = {**event.labels, "seen": str(calls[0])}
            event = msgspec.structs.replace(event, labels=labels)
        return decide(state, event, current, recorded_at)

    return decide_worker


def _without_tag(noted: Any) -> Any:
    return lambda anomalies, anomaly, _tag=None: noted(anomalies, anomaly, None)


def _drop_setting(_: Any) -> Any:
    def drop_setting(self: Any, key: Any) -> None:
        if key in self.settings:
            self.settings = self.settings.delete(key)

    return drop_setting


def _cohort_stays(after_leaving: Any) -> Any:
    """An emptied cohort keeps its place before the others."""

    def kept(state: Any, old: Any) -> Any:
        changes = after_leaving(state, old)
        return tuple(change for change in changes if not hasattr(change, "cohorts"))

    return kept


def _hold_ends_with_life(leaving: Any) -> Any:
    def decide_leaving(state: Any, old: Any) -> Any:
        key = ("hold", old.namespace, old.worker_id)
        gone = (SettingGone(key),) if key in state.settings else ()
        return (*leaving(state, old), *gone)

    return decide_leaving


def _restored_without_holds(restore: Any) -> Any:
    def restored(taken: Any, known_tags: Any) -> Any:
        state = restore(taken, known_tags)
        kept = tuple(p for p in taken.fleet if not _is_hold(p))
        return msgspec.structs.replace(state, fleet_state=snapshot.build(kept))

    return restored


def _is_hold(put: Any) -> bool:
    return isinstance(put, SettingPut) and isinstance(put.setting, Hold)


def _any_version(fleet_of: Any) -> Any:
    def fleet_of_any(taken: Any) -> Any:
        now = snapshot.FOLD_VERSION
        return fleet_of(msgspec.structs.replace(taken, fold_version=now))

    return fleet_of_any


def _skips_forgiven(restore: Any) -> Any:
    def restored(taken: Any, known_tags: Any) -> Any:
        if taken.fold_version != snapshot.FOLD_VERSION:
            known_tags = frozenset()
        return restore(taken, known_tags)

    return restored


def _any_claim(decide: Any) -> Any:
    def decide_release(table: Any, event: Any, recorded_at: Any) -> Any:
        match table.ports.get((event.host, event.port)):
            case port.Held(claim_id=claim_id):
                named = {"claim_id": claim_id}
                event = msgspec.structs.replace(event, **named)
        return decide(table, event, recorded_at)

    return decide_release


def _release_leaves_life(_: Any) -> Any:
    return lambda lives, _held: lives


def _in_groups(order: tuple[str, ...]) -> Make:
    def make(worker_changes: Any) -> Any:
        def changes(*args: Any) -> Any:
            found = worker_changes(*args)
            return sorted(found, key=lambda change: order.index(change.kind))

        return changes

    return make


def _same_if_it_looks_so(worker_changes: Any) -> Any:
    """Another life with the same facts counts as no change."""

    def changes(*args: Any) -> Any:
        return [change for change in worker_changes(*args) if not _looks_same(change)]

    return changes


def _looks_same(change: Any) -> bool:
    old, new = change.before, change.worker
    if old is None or new is None or old.incarnation == new.incarnation:
        return False
    return (old.address, old.status, old.blockers, old.adapters, old.labels) == (
        new.address,
        new.status,
        new.blockers,
        new.adapters,
        new.labels,
    )


def _status_only(_: Any) -> Any:
    """Whoever says ready is ready, admitted or not."""

    def ready(self: Any) -> Any:
        found = [w for w in self.workers.values() if w.status.value == "ready"]
        return tuple(sorted(found, key=lambda worker: worker.worker_id))

    return property(ready)


MUTANTS = (
    Mutant(
        "incarnation-not-compared",
        "the fold lets the events of an old life change its successor",
        (Patch(fold, "decide_worker", _blind_to_incarnation),),
        plans=("strangers",),
    ),
    Mutant(
        "delta-from-outside",
        "what a record changes depends on how many this process has folded",
        (Patch(fold, "decide_worker", _counting_itself),),
    ),
    Mutant(
        "skipped-tag-dropped",
        "an unknown event is not noted in the snapshot's list",
        (Patch(fold, "noted", _without_tag),),
        plans=("upgrade",),
    ),
    Mutant(
        "digest-not-updated",
        "a setting that is taken away stays in the digest",
        (Patch(_Draft, "drop_setting", _drop_setting),),
    ),
    Mutant(
        "quarantine-never-ends",
        "a checksum whose workers are all gone stays in force",
        (Patch(admission, "_after_leaving", _cohort_stays),),
    ),
    Mutant(
        "hold-ends-with-the-life",
        "a worker that leaves is no longer held out when it comes back",
        (Patch(deciding, "decide_leaving", _hold_ends_with_life),),
        plans=("held-ones-leave",),
    ),
    Mutant(
        "hold-forgotten-on-restart",
        "a state restored from a snapshot has no holds",
        (Everywhere(snapshot.restore, _restored_without_holds),),
        plans=("restarts",),
    ),
    Mutant(
        "snapshot-of-other-version",
        "a snapshot of another fold version is used as if it were of one's own",
        (
            Everywhere(snapshot.fleet_of, _any_version),
            Everywhere(snapshot.restore, _skips_forgiven),
        ),
        plans=("upgrade",),
    ),
    Mutant(
        "release-by-any-claim",
        "the fold lets any claim_id release a port",
        (Patch(port, "decide_release", _any_claim),),
        plans=("strangers",),
    ),
    Mutant(
        "released-port-kept-by-life",
        "a life still has the ports that were released",
        (Patch(life, "released", _release_leaves_life),),
    ),
    Mutant(
        "resync-adds-first",
        "of one moment, additions are told before removals",
        (
            Patch(
                router_changes,
                "worker_changes",
                _in_groups(("added", "changed", "removed")),
            ),
        ),
    ),
    Mutant(
        "re-registration-unseen",
        "gone and back between two looks counts as no change",
        (Patch(router_changes, "worker_changes", _same_if_it_looks_so),),
    ),
    Mutant(
        "not-admitted-is-ready",
        "a worker of another checksum is picked like any other",
        (Patch(Members, "ready", _status_only),),
    ),
    Mutant(
        "held-is-live",
        "a worker that an operator holds is picked like any other",
        (Everywhere(readiness.is_held, always(value=False)),),
    ),
)
