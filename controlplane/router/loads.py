"""What a router knows of how busy workers are: their reports, and its own picks since.

It lives in this process only: it is no part of the view, its digest or its checkpoint,
and after a while without news nothing of it is left.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Hashable
from math import inf
from typing import Final

from controlplane.clock import Clock
from controlplane.loads import decode_load, reporting_worker
from controlplane.telemetry import PickTally
from projections import Candidates, Fleet, Load, Registration, WorkerKey, believed_for_s

from .ranking import Ranking, Seen

RANKINGS_MAX: Final = 1024
"""So many wishes are kept ranked; a caller may ask for any."""
SENT_MAX: Final = 4096
"""So many picks wait to be counted; where none is by load, more do not matter."""
KEPT_MIN: Final = 1 / 16
"""What a pick adds to a worker's load at least, until its next report."""


class Loads:
    """The load of each worker, as far as it is known here."""

    def __init__(
        self, clock: Clock, tally: PickTally, *, fresh_s: float, forget_s: float
    ) -> None:
        """Believe a report for ``fresh_s``, then less, not after ``forget_s``."""
        self._clock, self._tally = clock, tally
        self._fresh_s, self._forget_s = fresh_s, forget_s
        self._seen = self.known = OrderedDict[WorkerKey, Seen]()
        """In order of their reports, the oldest first."""
        self._rankings: dict[Hashable, Ranking] = {}
        self._sent = deque[Registration](maxlen=SENT_MAX)
        self.sent = self._sent.append
        """Called with a worker: a request goes there. Counted when that matters."""
        self._old: list[WorkerKey] = []
        self._due_at = -inf
        """Before that, all reports are fresh, whatever comes."""
        self.all_fresh = False
        """Whether all reports are believed, as of the last `forget`."""

    def hear(self, subject: str, payload: bytes, fleet: Fleet) -> None:
        """Take the report that came on a relative ``subject``, if it counts.

        It does if it is of the worker's current life; whoever registers in this moment
        reports again soon.
        """
        key, report = reporting_worker(subject), decode_load(payload)
        if key is None or report is None:
            self._tally.hear("unreadable")
            return
        worker = fleet.state.workers.get(key)
        if worker is None or worker.incarnation != report.incarnation:
            self._tally.hear("other_life")
            return
        self._tally.hear("taken")
        load = Load(report.kv_usage, report.running, report.waiting)
        self._take(key, report.incarnation, load)

    def ranking(self, wish: Hashable, found: Candidates, *, in_order: bool) -> Ranking:
        """The candidates of ``wish`` by their loads as they are now.

        Unless ``in_order``, only who is busy is sure to be up to date.
        """
        if self._seen:
            self.forget()
        if in_order and self._sent:
            self._note()
        ranking: Ranking | None = found.tools.get(self)
        if ranking is None or ranking.dropped:
            ranking = self._rankings.get(wish) or self._new_ranking(wish)
            found.tools[self] = ranking
        ranking.match(found)
        return ranking

    def _new_ranking(self, wish: Hashable) -> Ranking:
        if len(self._rankings) >= RANKINGS_MAX:
            for ranking in self._rankings.values():
                ranking.dropped = True
            self._rankings.clear()
            for seen in self._seen.values():
                seen.watchers.clear()
        ranking = self._rankings[wish] = Ranking(self._seen)
        return ranking

    def ranked(self, found: Candidates) -> Ranking:
        """The same of candidates that are asked for once."""
        ranking = Ranking(self._seen)
        ranking.match(found)
        for key in self._seen:
            self._seen[key].watchers.pop(ranking, None)
        return ranking

    def _note(self) -> None:
        """Count what was sent, and have those looked at again who got it."""
        sent, seen = self._sent, self._seen
        while sent:
            key = sent.popleft().key
            to = seen.get(key)
            if to is not None:
                to.sent += 1
                for ranking in to.watchers:
                    ranking.moved[key] = None

    def since(self, chance: float) -> float:
        """Since when a report must be to be believed, at this ``chance`` in [0, 1)."""
        believed_s = believed_for_s(chance, self._fresh_s, self._forget_s)
        return self._clock.monotonic() - believed_s

    def forget(self) -> None:
        """Forget what is too old to count."""
        now = self._clock.monotonic()
        if now < self._due_at or not self._seen:
            return
        for key in self._seen:
            age_s = now - self._seen[key].at
            if age_s < self._forget_s:
                self.all_fresh = age_s <= self._fresh_s
                if self.all_fresh:
                    self._due_at = self._seen[key].at + self._fresh_s
                break
            self._old.append(key)
        while self._old:
            self._drop(self._old.pop())

    # ---- keeping ---------------------------------------------------------------
    def _take(self, key: WorkerKey, incarnation: str, load: Load) -> None:
        self._note()
        if not load.says_something:
            if key in self._seen:
                self._drop(key)
            return
        seen = self._seen.get(key)
        if seen is None:
            seen = self._seen[key] = Seen()
            watchers = [r for r in self._rankings.values() if key in r]
        else:
            self._seen.move_to_end(key)
            watchers = list(seen.watchers)
            seen.kept = _kept(load, seen.sent) if seen.sent else seen.kept
        seen.incarnation, seen.load = incarnation, load
        seen.at, seen.sent = self._clock.monotonic(), 0
        for ranking in watchers:
            ranking.pending[key] = None
        self._tally.reporting = len(self._seen)

    def _drop(self, key: WorkerKey) -> None:
        for ranking in self._seen.pop(key).watchers:
            ranking.pending[key] = None
        self._tally.reporting = len(self._seen)


def _kept(load: Load, sent: int) -> float:
    """How much of what was sent before this report it can include at most.

    Of a hundred short requests sent since the last report few are there at the next;
    counting all of them until then would drive the traffic to and fro.
    """
    if load.running is None:
        return 1.0
    there = load.running + (load.waiting or 0)
    return min(1.0, max(KEPT_MIN, there / sent))
