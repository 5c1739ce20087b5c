"""Every history that the log ever had, and what is true at each place of each.

A log that loses its tail goes on with the same revisions and other records: another
lineage, which shares the prefix. One that is deleted and made again is another log. A
place is named as the product names it: log, revision and the fingerprint of the record
there; the states before it follow from it. Lost lineages are kept: processes may stand
on them until they notice.
"""

from bisect import bisect_right

import msgspec

from tests.simulation.comparing import (
    Plainly,
    blockers_of,
    differs_at_a_glance,
    disagreements,
    plain_fleet,
    states_differ,
)
from tests.simulation.dumb import Dumb
from tests.simulation.outcome import Violation
from tests.simulation.pristine import CODEC, PRISTINE
from tests.simulation.rules import Rules

WHOLE_EVERY = 100
"""So many records lie between two comparisons of everything, entity by entity."""


class Folding(msgspec.Struct, frozen=True, kw_only=True):
    """How one software version reads, folds and writes. The default: as it is today."""

    step: object = PRISTINE.step
    encode_view: object = PRISTINE.encode_view
    decode_record: object = None
    """(revision, recorded_at, subject, payload) -> Record; None: as the base version.

    For one that lacks some events: ``private_codec(without={Kind}).decode_record``.
    """
    empty: object = PRISTINE.FoldState()
    is_checked: bool = True
    """Whether the dumb model knows all that it knows."""


VERSIONS = {PRISTINE.FOLD_VERSION: Folding()}


class Folded(msgspec.Struct, frozen=True, gc=False):
    """What one version makes of a moment."""

    state: object
    changes: tuple
    news: int
    """How many records up to here changed the view."""


class Moment(msgspec.Struct, frozen=True, eq=False, gc=False):
    """A history up to a record. Lineages that share the prefix share the object."""

    revision: int
    fingerprint: str
    stored_at: float
    read: dict
    """Fold version: the record as it reads it."""
    folded: dict
    """Fold version: `Folded`."""


class Lineage:
    """One history of a log; its moments by revision, from the empty one on."""

    def __init__(self, log_id, moments, news, born_at):
        self.log_id, self.moments, self.news = log_id, moments, news
        self.born_at, self.lost_at = born_at, None

    @property
    def end(self):
        return len(self.moments) - 1

    def holds(self, moment):
        """Whether ``moment`` is a prefix of this history."""
        revision = moment.revision
        return revision <= self.end and self.moments[revision] is moment

    def next_news(self, moment, version):
        """The next moment after ``moment`` that changed the view; None: none yet."""
        news = self.news[version]
        place = bisect_right(news, moment.revision)
        return self.moments[news[place]] if place < len(news) else None

    def shared(self, last, now):
        """A new lineage that shares this one up to ``last``."""
        news = {v: n[: bisect_right(n, last)] for v, n in self.news.items()}
        return Lineage(self.log_id, self.moments[: last + 1], news, now)


class Histories:
    """What the broker stored in the log, told as it happens. See the module.

    ``now``: the virtual time. ``is_beating(namespace, worker_id, incarnation)``:
    whether that life beats and is connected. ``versions``: how each fold version reads
    and folds; the first one decoded the records that come in.
    """

    def __init__(self, *, now=lambda: 0.0, is_beating=None, versions=None):
        self._now = now
        self._is_beating = is_beating or (lambda *_: False)
        self.versions = versions or VERSIONS
        self._base = next(iter(self.versions))
        self.current = None
        """The lineage that the log has now; None: there is no log."""
        self._of_log = {}
        self._stored = set()
        self._acknowledged = {}
        self._meanings = {}
        self._plainly = Plainly()
        self._checked = {}
        self.violations = []
        """All that were raised: a process may have swallowed the exception."""
        self._forget()

    def violated(self, invariant, what):
        """Note the violation, and raise it."""
        violation = Violation(invariant, what)
        self.violations.append(violation)
        raise violation

    # ---- told by the broker ----------------------------------------------------
    def log_created(self, log_id):
        """There is a log, with this identity, and nothing in it."""
        empty = {v: Folded(f.empty, (), 0) for v, f in self.versions.items()}
        first = Moment(0, "", self._now(), {}, empty)
        news = {version: [] for version in self.versions}
        self.current = Lineage(log_id, [first], news, self._now())
        self._of_log.setdefault(log_id, []).append(self.current)
        self._forget()

    def log_message(self, revision, recorded_at, subject, payload):
        """As `log_stored`, of a message on a subject relative to the cell."""
        message = (revision, recorded_at, subject, payload)
        self.log_stored(CODEC.decode_record(*message), message)

    def log_stored(self, record, message=None):
        """The log holds ``record``. Raises `Violation` if it must not.

        ``message``: what the record was read from, for versions that read otherwise.
        """
        lineage = self.current
        if lineage is None or record.revision != lineage.end + 1:
            raise AssertionError(record)
        read = dict.fromkeys(self.versions, record)
        for version, folding in self.versions.items():
            if message is not None and folding.decode_record is not None:
                read[version] = folding.decode_record(*message)
        broken = self._rules.look(record, self.dumb)
        before, folded = lineage.moments[-1].folded, {}
        for version, folding in self.versions.items():
            was = before[version]
            taken = folding.step(was.state, read[version])
            is_news = bool(taken.changes)
            folded[version] = Folded(taken.state, taken.changes, was.news + is_news)
            if is_news:
                lineage.news[version].append(record.revision)
        fingerprint = record.fingerprint
        self._stored.add(fingerprint)
        moment = Moment(record.revision, fingerprint, self._now(), read, folded)
        lineage.moments.append(moment)
        self._feed(moment)
        for invariant, what in broken:
            self.violated(invariant, what)
        self._compare(whole=record.revision % WHOLE_EVERY == 0)

    def log_truncated(self, last_revision):
        """The log lost all after ``last_revision``: another history begins there."""
        old = self.current
        if last_revision >= old.end:
            return
        old.lost_at = self._now()
        self.current = old.shared(last_revision, self._now())
        self._of_log[old.log_id].append(self.current)
        self._forget()
        for moment in self.current.moments[1:]:
            self._rules.look(moment.read[self._base], self.dumb)
            self._feed(moment)

    def log_deleted(self):
        """There is no log any more."""
        if self.current is not None:
            self.current.lost_at = self._now()
        self.current = None

    def _forget(self):
        self._rules = Rules(self._is_beating)
        self._dumbs = {version: Dumb() for version in self.versions}
        self.dumb = self._dumbs[self._base]

    def _feed(self, moment):
        for version, dumb in self._dumbs.items():
            dumb.feed(moment.read[version])

    def _compare(self, *, whole):
        """Hold each version's fold to the dumb model."""
        moment = self.current.moments[-1]
        for version, dumb in self._dumbs.items():
            state = moment.folded[version].state
            if not self.versions[version].is_checked:
                continue
            if whole or differs_at_a_glance(dumb, state):
                found = disagreements(dumb, state)
                if found:
                    what = f"after {moment.read[version]}: " + "; ".join(found)
                    self.violated("fold", what)

    # ---- places ----------------------------------------------------------------
    def lineages(self, log_id):
        """The histories of a log, the latest first."""
        return reversed(self._of_log.get(log_id, ()))

    def find(self, log_id, revision, fingerprint):
        """The moment that is named thus; None: it never was."""
        for lineage in self.lineages(log_id):
            if revision <= lineage.end:
                moment = lineage.moments[revision]
                if moment.fingerprint == fingerprint:
                    return moment
        return None

    def was_current(self, moment, log_id, at):
        """Whether ``moment`` was a prefix of what the log held at the time ``at``."""
        return moment.stored_at <= at and any(
            lineage.born_at <= at
            and (lineage.lost_at is None or at < lineage.lost_at)
            and lineage.holds(moment)
            for lineage in self.lineages(log_id)
        )

    def is_current(self, moment):
        """Whether ``moment`` is a prefix of what the log holds."""
        return self.current is not None and self.current.holds(moment)

    # ---- folds of processes ----------------------------------------------------
    def check_fold(self, who, log_id, state, version=None):
        """Hold a process's fold to the truth at its place: "fold".

        ``version``: the process's; the base version without.
        """
        last, times = self._checked.get(who, (None, 0))
        if state is last:
            return
        self._checked[who] = (state, times + 1)
        moment = self.find(log_id, state.revision, state.fingerprint)
        if moment is None:
            where = f"revision {state.revision} {state.fingerprint} of {log_id}"
            self.violated("fold", f"{who} stands at {where}, which never was")
        mine = moment.folded[self._base if version is None else version].state
        found = states_differ(state, mine, whole=times % WHOLE_EVERY == 0)
        if found:
            where = f"{who} at revision {state.revision}"
            self.violated("fold", f"{where}: " + "; ".join(found))

    def blockers(self, fleet):
        """(namespace, worker_id): why it gets no traffic, by the dumb rules.

        ``fleet``: a `FleetState` whose digest is known to be that of its entities.
        """
        known = self._meanings.get(fleet.digest)
        if known is None:
            known = blockers_of(*plain_fleet(fleet, self._plainly))
            self._meanings[fleet.digest] = known
        return known

    # ---- acknowledgements ------------------------------------------------------
    def acknowledged(self, client, event_id):
        """A client was told that its event is stored: it must have been."""
        if event_id not in self._stored:
            what = f"{client} was told that {event_id} is stored; it never was"
            self.violated("acknowledged", what)
        self._acknowledged[event_id] = client

    def check_acknowledged(self, announced, *, known_to_somebody=lambda _: True):
        """At the end: what was acknowledged is there, or its loss was announced.

        ``announced``: the times at which some process said that history was lost, or
        began an epoch for that reason. ``known_to_somebody(lineage)``: whether anybody
        who lived on knew of the lost part; nobody can announce what nobody knows.
        """
        here = {m.fingerprint for m in self.current.moments} if self.current else set()
        for event_id, client in self._acknowledged.items():
            if event_id in here:
                continue
            lineage = self._last_with(event_id)
            told = any(at >= lineage.lost_at for at in announced)
            if not told and known_to_somebody(lineage):
                what = f"{event_id} of {client} is gone since {lineage.lost_at}"
                self.violated("acknowledged", f"{what}, and nobody says so")

    def _last_with(self, event_id):
        lost = [
            lineage
            for lineages in self._of_log.values()
            for lineage in lineages
            if any(m.fingerprint == event_id for m in lineage.moments)
        ]
        return max(lost, key=lambda lineage: lineage.lost_at)

    def check_end(self):
        """Compare fold and dumb model once more, whole."""
        if self.current is not None and self.current.end:
            self._compare(whole=True)
