"""What the view stream holds, message by message, and what each place of it means.

**Within an epoch** the stream holds, from its start on, exactly the deltas that a
replay of the log derives after the start's revision, byte for byte, in order, each
once: the delta of ordinal k at the sequence ``base + k``. An epoch is folded by the
software version that its ``fold_version`` names.

**Between epochs.** A start must be greater than the epoch before it in the stream, and
stand at a place of a history that exists or existed, with the digest and the counts of
that place. Once a start is stored, nothing of another epoch may follow: a leader that
lost the race is refused by the fence (its expectation names a sequence that the start
took), reads the start, and numbers from there.

**When the log forks.** An epoch does not belong to a lineage; each delta is a place in
one. The next delta must follow, in *some* lineage that holds the place of the last one.
So the deltas of records that are lost may still be published, as long as nothing of
the new history stands in the epoch: a leader that folded them cannot know yet. It may
even start an epoch on them. But once an epoch holds a delta of a lost record (or
starts on one), no record of the new history can follow in it: no lineage has both.
That takes a new epoch. And an epoch that holds nothing lost may go on with the new
history, whose replay it is. So whoever follows the stream stands, at each place, on a
prefix of one history that existed.

**When the stream loses its tail**, what is left decides again: the numbers of the lost
messages are given anew, to the same bytes, or to those of the history of then, or to a
new epoch. Processes may still stand on places that were lost with it, so every epoch
and place that ever was stored stays known.

**A foreign message** takes a place and breaks the numbering: only a start may follow.
Unless it was trimmed before anybody could read it: then a projector has to believe
that its own delta stood there, says so, and goes on with the next.
"""

from tests.simulation.history import Histories
from tests.simulation.places import Places, Track, derived
from tests.simulation.pristine import PRISTINE

Delta, EpochStarted = PRISTINE.Delta, PRISTINE.EpochStarted


class Cursor:
    """Where the stream stands after a message. Never changed."""

    __slots__ = ("foreign_at", "moment", "track")

    def __init__(self, track=None, moment=None, foreign_at=None):
        self.track, self.moment, self.foreign_at = track, moment, foreign_at


class Views(Places):
    """The view stream, told as it happens. See the module; raises `Violation`."""

    def __init__(self, histories: Histories, first_sequence=lambda: 0):
        """``first_sequence``: tells where the stream begins; else `view_trimmed`."""
        super().__init__(histories)
        self._first_sequence = first_sequence
        self._cursors = [Cursor()]
        """After each sequence of the stream; the first: before it has any."""
        self._trimmed_to = 0

    @property
    def last(self):
        """The last sequence of the stream."""
        return len(self._cursors) - 1

    # ---- told by the broker ----------------------------------------------------
    def view_stored(self, view_seq, payload):
        """A process stored ``payload``: it must be what comes next."""
        if view_seq != self.last + 1:
            self._violated(view_seq, f"stored after {self.last}")
        cursor = self._cursors[-1]
        if cursor.track is not None and cursor.foreign_at is None:
            for moment, expected in self._next(cursor):
                if payload == expected:
                    self._put(cursor.track, moment)
                    return
        match PRISTINE.decode_view(payload):
            case EpochStarted() as start:
                self._begin(view_seq, start, payload)
            case Delta() as delta:
                self._explain(view_seq, cursor, delta, payload)
            case _:
                self._violated(view_seq, f"no view message: {payload[:80]!r}")

    def view_planted(self, view_seq):
        """The test itself stored something there that is nobody's."""
        if view_seq != self.last + 1:
            raise AssertionError(view_seq)
        before = self._cursors[-1]
        foreign_at = before.foreign_at or view_seq
        self._cursors.append(Cursor(before.track, before.moment, foreign_at))

    def view_truncated(self, last):
        """The stream lost all after ``last``; 0: it is another stream now."""
        del self._cursors[last + 1 :]
        self._trimmed_to = min(self._trimmed_to, last)

    def view_trimmed(self, first):
        """The stream forgot all before ``first``."""
        self._trimmed_to = max(self._trimmed_to, first - 1)

    # ---- what may come next ----------------------------------------------------
    def _next(self, cursor):
        """The next moment and its bytes, by each lineage that holds the last one."""
        track, seen = cursor.track, None
        ordinal = len(self._cursors) - track.base
        for lineage in self.lineages_after(cursor.moment, track):
            moment = lineage.next_news(cursor.moment, track.version)
            if moment is not None and moment is not seen:
                seen = moment
                yield moment, self._bytes(track, ordinal, cursor.moment, moment)

    def _bytes(self, track, ordinal, before, moment):
        folded = moment.folded[track.version]
        folding = self._histories.versions[track.version]
        return folding.encode_view(
            Delta(
                epoch=track.epoch,
                ordinal=ordinal,
                revision=moment.revision,
                fingerprint=moment.fingerprint,
                previous_revision=before.revision,
                changes=folded.changes,
                anomalies=folded.state.anomalies.counts,
                digest=folded.state.fleet_state.digest,
            )
        )

    def _begin(self, view_seq, start, payload):
        """The start of an epoch: after all others, at a true place."""
        epoch, before = start.epoch, self._cursors[-1].track
        if epoch.fold_version not in self._histories.versions:
            self._violated(view_seq, f"{epoch} is of no version that runs")
        if before is not None and not epoch > before.epoch:
            self._violated(view_seq, f"{epoch} starts after {before.epoch}")
        moment = self._histories.find(epoch.log_id, epoch.revision, start.fingerprint)
        if moment is None:
            self._violated(view_seq, f"{start} stands where no history was")
        state = moment.folded[epoch.fold_version].state
        expected = PRISTINE.encode_view(
            EpochStarted(
                epoch=epoch,
                fingerprint=moment.fingerprint,
                anomalies=state.anomalies.counts,
                digest=state.fleet_state.digest,
                reason=start.reason,
            )
        )
        if payload != expected:
            self._violated(view_seq, f"{payload!r}, not {expected!r}")
        self._put(self.begun(Track(epoch, view_seq, moment)), moment)

    def _explain(self, view_seq, cursor, delta, payload):
        """A delta that is not the next one; it may pass a foreign message."""
        track = cursor.track
        if track is None or delta.epoch != track.epoch:
            now = None if track is None else track.epoch
            self._violated(view_seq, f"a delta of {delta.epoch} in epoch {now}")
        if cursor.foreign_at is not None:
            self._pass_foreign(view_seq, cursor, delta, payload)
            return
        wanted = [expected for _, expected in self._next(cursor)]
        what = f"ordinal {view_seq - track.base} is {payload!r}"
        self._violated(view_seq, f"{what}; a replay gives {wanted or 'none'}")

    def _pass_foreign(self, view_seq, cursor, delta, payload):
        track, ordinal = cursor.track, view_seq - cursor.track.base
        for lineage in self._believing(view_seq - 1):
            led_here = derived(lineage, track, ordinal)
            if len(led_here) <= ordinal:
                continue
            if payload == self._bytes(track, ordinal, *led_here[-2:]):
                for skipped, moment in enumerate(led_here[:-1]):
                    track.note(skipped, moment)
                self._put(track, led_here[-1])
                return
        what = f"{delta} after a foreign message at {cursor.foreign_at}"
        self._violated(view_seq, what)

    def _believing(self, last):
        """The lineages whose own deltas may be thought to have led to ``last``.

        There are none unless a foreign message stood there that nobody can read now.
        """
        cursor = self._cursors[-1]
        if cursor.foreign_at is None or cursor.track is None:
            return []
        self.view_trimmed(self._first_sequence())
        if self._trimmed_to < last:
            return []
        return list(self.lineages_after(cursor.moment, cursor.track))

    def state_at(self, epoch, ordinal):
        """As ever; what has to be thought of the stream's end counts as stored."""
        track = self._cursors[-1].track
        for lineage in self._believing(self.last):
            for place, moment in enumerate(derived(lineage, track, ordinal)):
                if track.base + place <= self.last:
                    track.note(place, moment)
        return super().state_at(epoch, ordinal)

    def _put(self, track, moment):
        self._cursors.append(Cursor(track, moment))
        track.note(self.last - track.base, moment)

    def _violated(self, view_seq, what):
        self._histories.violated("view", f"at {view_seq}: {what}")

    # ---- at the end ------------------------------------------------------------
    def missing(self):
        """What the stream lacks of the history that the log has now; empty: nothing.

        For the end of a run, when the leader has had its time.
        """
        cursor, current = self._cursors[-1], self._histories.current
        if current is None:
            return ["there is no log"]
        if current in self._believing(self.last):
            ordinal = self.last - cursor.track.base
            led_here = derived(current, cursor.track, ordinal)
            if len(led_here) > ordinal:
                cursor = Cursor(cursor.track, led_here[ordinal])
        if cursor.track is None or cursor.foreign_at is not None:
            return ["no epoch goes on"]
        if cursor.track.epoch.log_id != current.log_id:
            return [f"epoch {cursor.track.epoch} is not of log {current.log_id}"]
        if not current.holds(cursor.moment):
            lost = cursor.moment.revision
            return [f"epoch {cursor.track.epoch} stands on revision {lost}, lost since"]
        lacking = current.next_news(cursor.moment, cursor.track.version)
        return [] if lacking is None else [f"the delta of {lacking.revision}"]
