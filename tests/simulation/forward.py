"""A router's life goes forward only: in an epoch, and from epoch to epoch.

What it shows after each of its callbacks is compared with what it showed before, from
its first place on, be that of a checkpoint. The next life may begin lower: with the
file that the last one saved.

Only a place that is lost is no place to be loyal to: the view stream lost it, and the
log no longer leads there, so that whoever leads numbers on with other deltas. Of a
view stream that lost its tail over a log that did not, the same deltas come again:
nobody has a reason to step back. Of a log that lost its end a head may have told
what no delta tells: then the revision is lower with the next delta, the place is not.
"""

from __future__ import annotations

from typing import Any

from tests.simulation.history import Histories
from tests.simulation.views import Views

from .outcome import Violation


class Forward:
    """See the module."""

    def __init__(self, histories: Histories, views: Views) -> None:
        self._histories, self._views = histories, views
        self._replicas: dict[str, Any] = {}
        """What each router shows."""
        self._cuts: list[int] = []
        """The view stream lost all after which sequence, each time."""
        self._epochs: list[tuple[int, str]] = []
        """Where each epoch began in the view stream as it is now."""

    def place_of(self, router: str) -> Any:
        """The replica that a router had last; None: none yet."""
        return self._replicas.get(router)

    # ---- told ------------------------------------------------------------------
    def began(self, router: str) -> None:
        """Another life of a router begins."""
        self._replicas.pop(router, None)

    def epoch_began(self, view_seq: int, text: str) -> None:
        """The view stream holds the start of an epoch there."""
        self._epochs.append((view_seq, text))

    def cut(self, last: int) -> None:
        """The view stream lost all after ``last``."""
        self._cuts.append(last)
        self._epochs = [begun for begun in self._epochs if begun[0] <= last]

    def moved(self, router: str, replica: Any) -> None:
        """A router shows another replica: "backwards", if it is an earlier one."""
        old = self._replicas.get(router)
        self._replicas[router] = replica
        if (
            old is not None
            and self._is_back(old, replica)
            and not self._is_lost(old, replica)
        ):
            was, now = old.position, replica.position
            what = f"{router} stepped from {was.epoch}/{was.ordinal}@{old.revision}"
            what += f" to {now.epoch}/{now.ordinal}@{replica.revision}"
            raise Violation("backwards", what)

    # ---- what is back ----------------------------------------------------------
    def _is_back(self, old: Any, new: Any) -> bool:
        was, now = old.position, new.position
        if now.epoch == was.epoch:
            if now.ordinal > was.ordinal:
                return new.revision < old.revision and not self._is_told_in_vain(old)
            return now.ordinal < was.ordinal or new.revision < old.revision
        texts = [text for _, text in self._epochs]
        both = str(was.epoch) in texts and str(now.epoch) in texts
        return both and texts.index(str(now.epoch)) < texts.index(str(was.epoch))

    def _is_lost(self, old: Any, new: Any) -> bool:
        """Whether neither the view stream nor the log leads to where it stood.

        At the same place, to the revision that it showed.
        """
        place = old.position
        if not any(last < place.view_seq for last in self._cuts):
            return False
        same = (new.position.epoch, new.position.ordinal) == (
            place.epoch,
            place.ordinal,
        )
        if same and self._is_told_in_vain(old):
            return True
        current = self._histories.current
        return not any(
            lineage is current and moment.revision == place.delta_revision
            for _, lineage, moment in self._views.state_at(place.epoch, place.ordinal)
        )

    def _is_told_in_vain(self, old: Any) -> bool:
        """Whether the log no longer holds the record whose revision it shows."""
        current = self._histories.current
        if current is None or old.revision > current.end:
            return True
        known = current.moments[old.fingerprint_at].fingerprint
        return bool(old.fingerprint) and old.fingerprint != known
