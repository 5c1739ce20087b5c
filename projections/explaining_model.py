"""Why a model is, or is not, served: by namespaces, and since which record."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import datetime
from difflib import get_close_matches
from typing import Any, Literal, TypeAlias

import msgspec

from events import (
    ENTRY_ROLES,
    ModelName,
    Namespace,
    Record,
    Revision,
    check_model,
)

from .circumstances import Causes, circumstances_of
from .entities import KnownGone, WorkerKey
from .explaining import ALIKE
from .explanation import tag_of
from .fleet import FleetState
from .fold import FoldState, Step, step
from .looking import answers_to, serving_namespaces, sets_of
from .readiness import blockers
from .replaying import is_past
from .rippling import ripples
from .rules import any_rule, blocked_by
from .view import Fleet

ModelState: TypeAlias = Literal["serving", "unavailable", "not_found"]


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    """The record with which a model began or ceased to be served."""

    record: Record
    rule: str
    before: Revision
    """The last moment at which it was otherwise."""

    def document(self) -> dict[str, Any]:
        """The turn as plain data."""
        return {
            "revision": self.record.revision,
            "recorded_at": self.record.recorded_at,
            "subject": self.record.subject,
            "type": tag_of(self.record),
            "by": getattr(self.record.event, "by", None),
            "rule": self.rule,
            "last_before": self.before,
        }


class NamespaceOfModel(msgspec.Struct, frozen=True, kw_only=True):
    """What a namespace has for a model."""

    namespace: Namespace
    serving: bool
    workers: int
    """All that answer to the name, in whatever role."""
    routable: int
    """Those of them at which a request can start."""
    blockers: dict[str, int]
    """How many workers each reason keeps away."""
    whys: tuple[str, ...]
    """The reasons that others than the workers themselves are behind."""
    began: Turn | None
    """The last time that it began to serve."""
    ended: Turn | None
    """The last time that it ceased to."""

    def document(self) -> dict[str, Any]:
        """The namespace as plain data."""
        return {
            "namespace": self.namespace,
            "serving": self.serving,
            "workers": self.workers,
            "routable": self.routable,
            "blockers": dict(sorted(self.blockers.items())),
            "whys": list(self.whys),
            "began": None if self.began is None else self.began.document(),
            "ended": None if self.ended is None else self.ended.document(),
        }


class ModelExplanation(msgspec.Struct, frozen=True, kw_only=True):
    """Why requests for a model were answered, or not, at ``revision``."""

    model: ModelName
    revision: Revision
    recorded_at: datetime | None
    state: ModelState
    """Unavailable is an HTTP 503, not found a 404: nobody ever served it, or the name
    was forgotten."""
    began: Turn | None
    ended: Turn | None
    """Of all namespaces together."""
    namespaces: tuple[NamespaceOfModel, ...]
    """All that have workers for it, or served it once, by name."""
    forgotten: Record | None = None
    """Of a name that is not found: the decision to forget it, if it was known."""
    alike: tuple[ModelName, ...] = ()
    """Of a name that is not found: names that are known and look like it."""

    def document(self) -> dict[str, Any]:
        """The explanation as plain data; every key is always there."""
        return {
            "model": self.model,
            "revision": self.revision,
            "recorded_at": self.recorded_at,
            "state": self.state,
            "serving": self.state == "serving",
            "began": None if self.began is None else self.began.document(),
            "ended": None if self.ended is None else self.ended.document(),
            "namespaces": [one.document() for one in self.namespaces],
            "forgotten": None if self.forgotten is None else _decision(self.forgotten),
            "alike": list(self.alike),
        }


def _decision(record: Record) -> dict[str, Any]:
    """An operator's decision as plain data."""
    return {
        "revision": record.revision,
        "recorded_at": record.recorded_at,
        "by": getattr(record.event, "by", None),
        "reason": getattr(record.event, "reason", None),
    }


def explain_model(
    records: Iterable[Record],
    model: ModelName,
    until: Revision | datetime | None = None,
) -> ModelExplanation:
    """Why ``model``, or an adapter of that name, is served after ``records`` or not.

    As `explain`. Raises `InvalidIdentityError` for a name that no model can have.
    """
    explainer = ModelExplainer(model)
    explainer.feed(records, until)
    return explainer.result()


class ModelExplainer:
    """Follows a log for one model; `result` says what it came to."""

    def __init__(self, model: ModelName) -> None:
        """Explain ``model``. Raises `InvalidIdentityError`."""
        self._model = check_model(model)
        self._state = FoldState()
        self._causes = Causes()
        self._serving: frozenset[Namespace] = frozenset()
        self._turns: dict[tuple[Namespace | None, bool], Turn] = {}
        """The last of each namespace, and of all (None): began, ended."""
        self._forgotten: Record | None = None

    def feed(
        self, records: Iterable[Record], until: Revision | datetime | None = None
    ) -> bool:
        """Take the next records of the log; False: ``until`` lies behind."""
        for record in records:
            if until is not None and is_past(record, until):
                return False
            before = self._state
            folded = step(before, record)
            self._state = folded.state
            if folded.changes:
                self._take(record, before, folded)
        return True

    def result(self) -> ModelExplanation:
        """What the records so far came to."""
        fleet = Fleet(self._state.fleet_state)
        places = {key.namespace for key, _ in sets_of(fleet, self._model)}
        places.update(name for name, _ in self._turns if name is not None)
        found = [self._namespace(fleet, name) for name in sorted(places)]
        names = sorted(self._state.fleet_state.known)
        known = self._model in names
        alike = () if known else get_close_matches(self._model, names, n=ALIKE)
        return ModelExplanation(
            model=self._model,
            revision=self._state.revision,
            recorded_at=self._state.recorded_at,
            state=(
                "serving" if self._serving else "unavailable" if known else "not_found"
            ),
            began=self._turns.get((None, True)),
            ended=self._turns.get((None, False)),
            namespaces=tuple(one for one in found if one.workers or one.began),
            forgotten=None if known else self._forgotten,
            alike=tuple(alike),
        )

    def _take(self, record: Record, before: FoldState, folded: Step) -> None:
        was, now = before.fleet_state, folded.state.fleet_state
        self._causes.note(was, now, folded.changes, record)
        if KnownGone(self._model) in folded.changes:
            self._forgotten = record
        if not self._touched(was, now, folded):
            return
        serving, old = serving_namespaces(Fleet(now), self._model), self._serving
        self._serving = serving
        if serving == old:
            return
        rule = any_rule(was, now, record, self._causes)
        turn = Turn(record=record, rule=rule, before=before.revision)
        for namespace in serving ^ old:
            self._turns[namespace, namespace in serving] = turn
        if bool(serving) != bool(old):
            self._turns[None, bool(serving)] = turn

    def _touched(self, was: FleetState, now: FleetState, folded: Step) -> bool:
        """Whether the record may have changed where the model is served."""
        name = self._model
        having = now.adapters.get(name)
        if was.adapters.get(name) is not having:
            return True
        models = ripples(was, now, folded.changes)
        if name in models:
            return True
        return bool(models) and having is not None

    def _namespace(self, fleet: Fleet, namespace: Namespace) -> NamespaceOfModel:
        reasons: Counter[str] = Counter()
        whys: dict[str, None] = {}
        workers = routable = 0
        for key, meaning in sets_of(fleet, self._model):
            if key.namespace != namespace:
                continue
            for _, worker in sorted(meaning.members.workers.items()):
                if not answers_to(worker, self._model):
                    continue
                why = tuple(blockers(fleet.state, meaning, worker))
                workers += 1
                routable += not why and key.role in ENTRY_ROLES
                reasons.update(why)
                if why:
                    whys.update(dict.fromkeys(self._whys(fleet, worker.key)))
        return NamespaceOfModel(
            namespace=namespace,
            serving=namespace in self._serving,
            workers=workers,
            routable=routable,
            blockers=dict(reasons),
            whys=tuple(whys),
            began=self._turns.get((namespace, True)),
            ended=self._turns.get((namespace, False)),
        )

    def _whys(self, fleet: Fleet, key: WorkerKey) -> Iterator[str]:
        """What others than the worker itself are behind."""
        standing = circumstances_of(fleet, key)
        assert standing is not None  # noqa: S101 - it is in a WorkerSet
        for blocker in standing.blockers:
            why, cause = blocked_by(blocker, standing, self._causes)
            if cause is not None or blocker == "needs_unmet":
                yield why
