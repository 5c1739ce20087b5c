"""A router's decisions: which view message is next, when to catch up, how stale it is.

States. No replica yet; a replica from a checkpoint (served, but not confirmed); a
live one. Beside that it is catching up (a task of the shell reads snapshot and view
stream; live messages wait in a buffer) or not.

Inputs: live view messages, the outcome of catching up, heads, contact lost and found,
time. Effects: `CatchUp` (one at a time), `Moved` (the position changed, with what
changed in the fleet), `Diverged`.

Rules. Only the next delta of the current epoch is applied. One already applied is
dropped, but compared. Any gap, other epoch or divergence means: catch up. What waited
meanwhile and stands before the place reached is old news, whatever its epoch. An
epoch is learnt from the view stream or a snapshot, never from a head. A head tells
how far the leader is: level with it (same epoch, ordinal and digest) its revision is
one's own, for nothing in between changed the view; a later head with a lower revision
is ignored. A delta of a revision that a head had passed tells that the log lost what
the head knew: the delta is right, and one's revision is the delta's. Within an epoch
the position never steps back, unless the history that it was reached by turns out to
be another than the view stream's: then it is a divergence.
"""

from __future__ import annotations

import math
from collections import OrderedDict, deque
from typing import Final, Literal, TypeAlias

import msgspec

from controlplane.viewfeed import Head, ViewEntry
from events import Revision
from projections import (
    Delta,
    DivergenceError,
    Epoch,
    EpochStarted,
    FleetChange,
    SequenceGapError,
)

from .replica import Replica, at_beginning, fleet_at, is_other_history

BUFFER_MAX: Final = 8192
DIGESTS_MAX: Final = 1024

Reason: TypeAlias = Literal["start", "epoch", "gap", "dropped", "divergence", "history"]
Source: TypeAlias = Literal["none", "checkpoint", "live"]


class CatchUp(msgspec.Struct, frozen=True):
    """Read what is missing, then `Core.caught_up`. ``anew``: trust no replica."""

    reason: Reason
    anew: bool = False


class Moved(msgspec.Struct, frozen=True):
    """The position changed, and with it these parts of the fleet.

    None for the changes: anything may differ. ``caught_up``: after a catch-up or an
    epoch's start, for this reason.
    """

    changes: tuple[FleetChange, ...] | None
    caught_up: Reason | None = None


class Diverged(msgspec.Struct, frozen=True):
    """One's own fleet is not the one that the view stream or a head says."""

    error: DivergenceError


Effect: TypeAlias = CatchUp | Moved | Diverged


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """What catching up found at the end of the view stream."""

    replica: Replica
    changes: tuple[FleetChange, ...] | None
    """What led there from one's own replica; None: the way did not lead over it."""
    age_s: float = 0.0
    """At most so long ago somebody is known to have had all there was."""
    head: tuple[Head, float] | None = None
    """The last head and its age, if the leader spoke lately."""


class Core:
    """One router's state of mind. See the module."""

    def __init__(self, *, behind_max_s: float, now: float) -> None:
        """Begin with nothing; behind a head for ``behind_max_s``: catch up."""
        self.replica: Replica | None = None
        self.source: Source = "none"
        self.duplicates = self.drops = 0
        self._behind_max_s = behind_max_s
        self._buffer: deque[ViewEntry] = deque()
        self._catching = False
        self._owed: Reason | None = None
        """Something was missed since the catching up began: do it once more."""
        self._digests: OrderedDict[tuple[Epoch, int], str] = OrderedDict()
        self._fresh_at = now
        """When the replica was last known to be all there is."""
        self._ahead: tuple[Head, float] | None = None
        """The head to reach, and the moment that it spoke of."""
        self._behind_since: float | None = None

    # ---- where it stands -------------------------------------------------------
    @property
    def revision(self) -> Revision:
        """How far the log is reflected; 0 before the first sync."""
        return 0 if self.replica is None else self.replica.revision

    def stale_for_s(self, now: float) -> float:
        """Seconds since the replica was last known to be all there is."""
        return max(0.0, now - self._fresh_at)

    # ---- the view stream -------------------------------------------------------
    def live(self, entry: ViewEntry) -> list[Effect]:
        """A stored view message arrived as it was republished."""
        if not self._catching:
            return self._take(entry)
        if len(self._buffer) >= BUFFER_MAX:
            self._buffer.clear()
            self._drop()
        self._buffer.append(entry)
        return []

    def dropped(self) -> list[Effect]:
        """The shell was too slow: live messages were dropped before they got here."""
        self._drop()
        return [] if self._catching else self._catch_up("dropped")

    def _drop(self) -> None:
        self.drops += 1
        if self._catching:
            self._owed = "dropped"

    def _take(self, entry: ViewEntry) -> list[Effect]:
        match entry.message:
            case EpochStarted() as start:
                return self._epoch(start, entry.view_seq)
            case Delta() as delta:
                return self._delta(delta, entry.view_seq)
            case None:
                return []

    def _epoch(self, start: EpochStarted, view_seq: int) -> list[Effect]:
        replica = self.replica
        if replica is None:
            return self._catch_up("epoch")
        own = replica.position.epoch
        if start.epoch == own:
            return []
        is_next = start.epoch.log_id == own.log_id and start.epoch > own
        fleet = fleet_at(start, replica.fleet) if is_next else None
        if fleet is None:
            return self._catch_up("epoch")
        self._stand_at(at_beginning(start, view_seq, fleet))
        return [Moved(() if fleet is replica.fleet else None, "epoch")]

    def _delta(self, delta: Delta, view_seq: int) -> list[Effect]:
        replica = self.replica
        if replica is None:
            return self._catch_up("gap")
        position = replica.position
        if delta.epoch != position.epoch:
            return self._catch_up("epoch")
        if delta.ordinal <= position.ordinal:
            return self._compare(delta)
        try:
            after = replica.after(delta, view_seq)
        except SequenceGapError:
            return self._catch_up("gap")
        except DivergenceError as error:
            return [Diverged(error), *self._catch_up("divergence", anew=True)]
        self._stand_at(after)
        lost = is_other_history(replica, after)
        return [Moved(delta.changes, "history" if lost else None)]

    def _compare(self, delta: Delta) -> list[Effect]:
        """A delta that is applied already: drop it, but look at its digest."""
        self.duplicates += 1
        return self._agree(delta.epoch, delta.ordinal, delta.digest)

    def _agree(self, epoch: Epoch, ordinal: int, digest: str) -> list[Effect]:
        """Compare what somebody says of a place with what was there, if it is known."""
        own = self._digest_at(epoch, ordinal)
        if own is None or own == digest:
            return []
        where = f"epoch {epoch} ordinal {ordinal}"
        error = DivergenceError(where=where, expected=digest, got=own)
        return [Diverged(error), *self._catch_up("divergence", anew=True)]

    def _digest_at(self, epoch: Epoch, ordinal: int) -> str | None:
        replica = self.replica
        if replica is not None:
            position = replica.position
            if (epoch, ordinal) == (position.epoch, position.ordinal):
                return replica.fleet.digest
        return self._digests.get((epoch, ordinal))

    def _stand_at(self, replica: Replica) -> None:
        self.replica = replica
        position = replica.position
        self._digests[position.epoch, position.ordinal] = replica.fleet.digest
        if len(self._digests) > DIGESTS_MAX:
            self._digests.popitem(last=False)
        if self._ahead is not None and self._reached(self._ahead[0]):
            (head, moment), self._ahead = self._ahead, None
            self._behind_since = None
            self._fresh(moment)
            self._adopt(head)

    def _adopt(self, head: Head) -> bool:
        """Take the revision of a head that one is level with; whether it was news."""
        replica = self.replica
        if (
            replica is None
            or head.ordinal != replica.position.ordinal
            or head.digest != replica.digest
            or head.revision < replica.revision
            or (head.revision == replica.revision and not replica.is_lost_to(head))
        ):
            return False
        known = bool(head.fingerprint)
        self.replica = msgspec.structs.replace(
            replica,
            revision=head.revision,
            fingerprint=head.fingerprint if known else replica.fingerprint,
            fingerprint_at=head.revision if known else replica.fingerprint_at,
            anomalies=head.anomalies,
        )
        return True

    def _reached(self, head: Head) -> bool:
        if self.replica is None:
            return False
        position = self.replica.position
        return position.epoch == head.epoch and position.ordinal >= head.ordinal

    def _fresh(self, moment: float) -> None:
        self._fresh_at = max(self._fresh_at, moment)

    # ---- catching up -----------------------------------------------------------
    def begin(
        self, checkpoint: tuple[Replica, float] | None, now: float
    ) -> list[Effect]:
        """Start: serve the ``checkpoint`` (and its age) if any, and catch up."""
        effects: list[Effect] = []
        if checkpoint is not None:
            replica, age_s = checkpoint
            self._fresh_at, self.source = now - age_s, "checkpoint"
            self._stand_at(replica)
            effects.append(Moved(None))
        return [*effects, *self._catch_up("start")]

    def disconnected(self) -> None:
        """Contact is lost: what is republished from now on is missing."""
        if self._catching and self._owed is None:
            self._owed = "gap"

    def reconnected(self) -> list[Effect]:
        """There is contact again: fetch what was republished meanwhile."""
        return self._catch_up("gap")

    def looking(self) -> None:
        """The shell is about to look where the stream ends: whatever is owed, it is."""
        self._owed = None

    def caught_up(self, found: Found, reason: Reason, now: float) -> list[Effect]:
        """The end of the view stream was reached. What waited comes next."""
        self._catching = False
        before, changes = self.replica, found.changes
        if before is None:
            self._fresh_at = now - found.age_s
        self._fresh(now - found.age_s)
        if before is None or not self._is_step_back(found.replica, reason):
            if before is not None and found.replica.fleet is before.fleet:
                changes = ()
            self._stand_at(self._not_below(before, found.replica, reason))
        else:
            changes = ()
        self.source = "live"
        if before is not None and is_other_history(before, found.replica):
            reason = "history"
        effects: list[Effect] = [Moved(changes, reason)]
        if found.head is not None and not self._is_refuted(found.head[0], reason):
            head, age_s = found.head
            effects += self.head(head, now, age_s)
        owed, self._owed = self._owed, None
        if owed is not None:
            effects += self._catch_up(owed)
        return [*effects, *self._drain()]

    def _is_refuted(self, head: Head, reason: Reason) -> bool:
        """Whether what was just read anew denies an old head: its next word decides.

        To read anew for it once more would go on until somebody leads.
        """
        own = self._digest_at(head.epoch, head.ordinal)
        return reason == "divergence" and own not in (None, head.digest)

    def _is_step_back(self, after: Replica, reason: Reason) -> bool:
        """Whether ``after`` is an earlier place of the history that one is in."""
        if self.replica is None:
            return False
        old, new = self.replica.position, after.position
        if old.epoch != new.epoch or new.ordinal >= old.ordinal:
            return False
        known = self._digest_at(new.epoch, new.ordinal)
        forked = reason == "divergence" if known is None else known != after.digest
        if forked:
            self._digests.clear()
        return not forked

    def _not_below(
        self, before: Replica | None, after: Replica, reason: Reason
    ) -> Replica:
        """``after``, at a revision that one's own has already been told to be at."""
        if (
            before is None
            or reason == "divergence"
            or before.position.epoch != after.position.epoch
            or before.position.ordinal != after.position.ordinal
            or before.revision <= after.revision
        ):
            return after
        return msgspec.structs.replace(
            after,
            revision=before.revision,
            fingerprint=before.fingerprint,
            fingerprint_at=before.fingerprint_at,
            anomalies=before.anomalies,
        )

    def _drain(self) -> list[Effect]:
        """Take what waited, until something is missing again."""
        effects: list[Effect] = []
        waiting, self._buffer = self._buffer, deque()
        for entry in waiting:
            if self._catching:
                self._buffer.append(entry)
            elif not self._is_old_news(entry):
                effects += self._take(entry)
        return effects

    def _is_old_news(self, entry: ViewEntry) -> bool:
        if self.replica is None or entry.message is None:
            return False
        position = self.replica.position
        is_other = entry.message.epoch != position.epoch
        return is_other and entry.view_seq <= position.view_seq

    def _catch_up(self, reason: Reason, *, anew: bool = False) -> list[Effect]:
        if self._catching:
            return []
        self._catching = True
        return [CatchUp(reason, anew)]

    # ---- heads and time --------------------------------------------------------
    def head(self, head: Head, now: float, age_s: float = 0.0) -> list[Effect]:
        """The leader said, ``age_s`` ago, where the view stands."""
        replica = self.replica
        if replica is None or self.source != "live":
            return []
        moment = now - age_s - head.unpublished_age_s
        if not self._reached(head):
            self._ahead = (head, moment)
            if self._behind_since is None:
                self._behind_since = now
            return []
        wrong = self._agree(head.epoch, head.ordinal, head.digest)
        if wrong:
            return wrong
        self._fresh(moment)
        ahead = self._ahead
        if ahead is not None and ahead[0].epoch != head.epoch:
            self._ahead = self._behind_since = None
        return [Moved(())] if self._adopt(head) else []

    def next_tick_at(self) -> float:
        """When a `tick` is due next; infinity: time alone changes nothing."""
        since = self._behind_since
        return math.inf if since is None else since + self._behind_max_s

    def tick(self, now: float) -> list[Effect]:
        """Time passed: behind a head for too long means that something was lost."""
        if now < self.next_tick_at():
            return []
        self._ahead = self._behind_since = None
        return self._catch_up("gap")
