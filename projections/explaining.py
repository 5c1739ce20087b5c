"""Why a worker is, or is not, routable: the chain of records that led to it.

Each record goes through the fold, and what is said of it follows from what the fold
did: how the worker stood before and after, and the fold's reasons for changing nothing.
Records of others are in the chain if the worker's standing goes back to them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from difflib import get_close_matches
from typing import Final

from events import (
    InvalidIdentityError,
    ModelName,
    PortEvent,
    Record,
    Revision,
    WorkerEvent,
    WorkerExpired,
    check_namespace,
    check_worker_id,
    setting_subject,
    worker_subject,
)

from .anomaly import Anomaly
from .circumstances import Causes, Circumstances, circumstances_of
from .entities import WorkerKey
from .explanation import Explanation, Link, Reason, State
from .fleet import FleetState
from .fold import FoldState, Step, step
from .port_story import PortStory, ports_of
from .readiness import Blocker
from .replaying import is_past
from .rippling import ripples
from .rules import blocked_by, earlier, other_rule, own_rule, refused
from .view import Fleet

ALIKE: Final = 3
"""How many names are offered to who mistyped one."""
SKEW_MAX: Final = timedelta(seconds=10)
"""A worker whose clock differs by more is told of: between two of its words and their
records that much may pass, and it decides nothing, but other logs have those times."""


def explain(
    records: Iterable[Record], worker: str, until: Revision | datetime | None = None
) -> Explanation:
    """Why ``worker``, as ``namespace/worker_id``, is as it is after ``records``.

    ``until``: up to and with this revision, or this time of recording. The records are
    those of a whole log, from its first. Raises `InvalidIdentityError` for a name that
    no worker can have.
    """
    explainer = Explainer(worker)
    explainer.feed(records, until)
    return explainer.result()


def worker_key(name: str) -> WorkerKey:
    """The worker that ``namespace/worker_id`` names; raises `InvalidIdentityError`."""
    namespace, slash, worker_id = name.partition("/")
    if not slash:
        rule = "NAMESPACE/WORKER, as prod/gpu7"
        raise InvalidIdentityError(field="worker", value=name, rule=rule)
    return check_namespace(namespace), check_worker_id(worker_id)


class Explainer:
    """Follows a log for one worker; `result` says what it came to."""

    def __init__(self, worker: str) -> None:
        """Explain ``worker``. Raises `InvalidIdentityError`."""
        self._key = key = worker_key(worker)
        self._subject = worker_subject(*key)
        self._about = {setting_subject("hold", *key)}
        """Subjects of settings that concern it."""
        self._state = FoldState()
        self._standing: Circumstances | None = None
        self._since: dict[Blocker, Record] = {}
        self._turned: Record | None = None
        self._causes = Causes(key[0])
        self._ports = PortStory(key)
        self._links: dict[Revision, Link] = {}
        self._skew: tuple[Record, timedelta] | None = None

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
            self._take(record, before, folded)
        return True

    def result(self) -> Explanation:
        """What the records so far came to."""
        standing, state = self._standing, self._state
        found = sorted(
            (*self._links.values(), *self._ports.links()),
            key=lambda link: link.revision,
        )
        return Explanation(
            namespace=self._key[0],
            worker_id=self._key[1],
            revision=state.revision,
            recorded_at=state.recorded_at,
            state=self._word,
            since=None if self._turned is None else self._turned.revision,
            worker=Fleet(state.fleet_state).worker(*self._key),
            in_force=None if standing is None else standing.in_force,
            reasons=tuple(() if standing is None else self._reasons(standing)),
            chain=tuple(found),
            ports=ports_of(state.ports, self._key, state.recorded_at),
            warnings=tuple(self._warnings()),
        )

    # ---- records ---------------------------------------------------------------
    def _take(self, record: Record, before: FoldState, folded: Step) -> None:
        after, old = folded.state, self._standing
        fleets = (before.fleet_state, after.fleet_state)
        if folded.changes:
            self._causes.note(*fleets, folded.changes, record)
        anomaly = None
        if after.anomalies is not before.anomalies and after.drains is before.drains:
            anomaly = after.anomalies.latest[-1]  # else an order to drain was new
        if isinstance(record.event, PortEvent):
            self._ports.take(record, anomaly, self._word, self._blockers)
        elif record.subject == self._subject:
            self._stand(record, circumstances_of(Fleet(after.fleet_state), self._key))
            self._link_own(record, anomaly, old)
            self._note_clock(record)
        elif record.subject in self._about or self._touched(*fleets, folded):
            self._stand(record, circumstances_of(Fleet(after.fleet_state), self._key))
            if record.subject in self._about or self._standing != old:
                self._link_other(record, anomaly, old)

    def _touched(self, before: FleetState, after: FleetState, folded: Step) -> bool:
        """Whether a record of somebody else may have changed how it stands."""
        if self._standing is None or not folded.changes:
            return False
        model = self._standing.registration.model
        return model in ripples(before, after, folded.changes)

    def _stand(self, record: Record, new: Circumstances | None) -> None:
        """It stands thus from ``record`` on."""
        was, old = self._word, self._standing
        self._standing = new
        if new is None:
            self._since.clear()
        else:
            gone = set(self._since) - set(new.blockers)
            for blocker in gone:
                del self._since[blocker]
            for blocker in new.blockers:
                self._since.setdefault(blocker, record)
        there = old is not None or new is not None
        if there and (self._turned is None or self._word != was):
            self._turned = record
        model = None if old is None else old.registration.model
        if new is not None and new.registration.model != model:
            self._concern(new.registration.model)

    def _concern(self, model: ModelName) -> None:
        """The settings of this model concern it from now on."""
        namespace, _ = self._key
        self._about = {
            setting_subject("hold", *self._key),
            setting_subject("weight", namespace, model),
            setting_subject("weight", namespace, "*"),
            setting_subject("thresholds", model),
            setting_subject("forget", model),
        }

    def _link_own(
        self, record: Record, anomaly: Anomaly | None, old: Circumstances | None
    ) -> None:
        new = self._standing
        if anomaly is not None:
            self._link(record, refused(anomaly, new), anomaly)
            return
        self._link(record, own_rule(record, old, new, self._causes))
        if new is not None and (
            old is None or old.registration.set_key != new.registration.set_key
        ):
            for cause, rule in earlier(new, self._causes):
                link = Link(record=cause, rule=rule)
                self._links.setdefault(cause.revision, link)

    def _link_other(
        self, record: Record, anomaly: Anomaly | None, old: Circumstances | None
    ) -> None:
        if anomaly is not None:
            self._link(record, refused(anomaly, self._standing), anomaly)
            return
        self._link(record, other_rule(record, old, self._standing, self._causes))

    def _link(self, record: Record, rule: str, anomaly: Anomaly | None = None) -> None:
        self._links[record.revision] = Link(
            record=record,
            rule=rule,
            anomaly=None if anomaly is None else anomaly.kind,
            state=self._word,
            blockers=self._blockers,
        )

    # ---- what it is ------------------------------------------------------------
    @property
    def _blockers(self) -> tuple[Blocker, ...]:
        return () if self._standing is None else self._standing.blockers

    @property
    def _word(self) -> State:
        if self._standing is not None:
            return "routable" if self._standing.routable else "blocked"
        return "never_registered" if self._turned is None else "gone"

    def _reasons(self, standing: Circumstances) -> Iterator[Reason]:
        for blocker in standing.blockers:
            since = self._since[blocker]
            why, cause = blocked_by(blocker, standing, self._causes, since)
            yield Reason(
                blocker=blocker, why=why, since=since.revision, cause=cause or since
            )

    # ---- what is odd -----------------------------------------------------------
    def _note_clock(self, record: Record) -> None:
        event = record.event
        if not isinstance(event, WorkerEvent) or isinstance(event, WorkerExpired):
            return
        if event.at.tzinfo is not None:
            self._skew = (record, event.at - record.recorded_at)

    def _warnings(self) -> Iterator[str]:
        if self._word == "never_registered":
            names = ["/".join(key) for key in self._state.fleet_state.workers]
            alike = get_close_matches("/".join(self._key), names, n=ALIKE)
            if alike:
                yield f"there is {', '.join(alike)}"
        if self._standing is not None:
            address = self._standing.registration.address
            others = sorted(
                "/".join(worker.key)
                for worker in self._state.fleet_state.workers.values()
                if worker.address == address and worker.key != self._key
            )
            if others:
                yield f"address {address} is also that of {', '.join(others[:5])}"
        if self._skew is not None and abs(self._skew[1]) > SKEW_MAX:
            record, skew = self._skew
            side = "ahead of" if skew > timedelta(0) else "behind"
            seconds = abs(skew.total_seconds())
            yield (
                f"at revision {record.revision} its clock was {seconds:.0f} s {side} "
                "the broker's, or the record was long on its way"
            )
