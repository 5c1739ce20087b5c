"""What a kept plan guards is still guarded: with the mend taken out it breaks."""

from typing import Any

import msgspec
import pytest

from controlplane import presence, vigil
from controlplane.eventlog import EventLog
from controlplane.projector import finding, recovery, watching
from controlplane.projector.caretaker import Inquiry
from controlplane.projector.core import Core
from controlplane.projector.hands import Hands
from controlplane.projector.line import DeltaLine
from controlplane.projector.service import ProjectorService
from controlplane.recognition import Recognition
from controlplane.router import core as router_core
from controlplane.router.replica import Replica
from controlplane.router.syncing import Syncing
from controlplane.viewfeed import ViewFeed
from controlplane.worker import standing
from controlplane.worker.core import WorkerCore
from controlplane.worker.performing import Performer
from controlplane.worker.standing import Vacant
from events import WorkerRegistered, subject_of
from projections import LeaseBook, lease
from tests.simulation.ending import Ending
from tests.simulation.mutating import Everywhere, Make, Mutant, Patch, always, constant
from tests.simulation.planning import plan_of
from tests.simulation.running import attempt
from tests.simulation.seeds import SEEDS_FILE, kept_seeds, plan_kept
from tests.simulation.serving import Serving
from tests.simulation.waits import Waits
from tests.simulation.world import World, run

KEPT = {
    kept.plan: kept
    for kept in kept_seeds(SEEDS_FILE.read_text(encoding="utf-8"))
    if kept.plan
}


def _from_the_beginning(view_misses: Any) -> Any:
    """Where the stream begins is not looked at: holes alone ask for a snapshot."""
    return lambda self, messages, _first, now: view_misses(self, messages, 1, now)


def _not_by_the_sequences(epoch_count: Any) -> Any:
    """Where nobody tells, no epoch is thought to have been."""

    def counted(found: Any) -> int:
        told = found.readable, found.snapshot_at, found.remembered
        return 0 if told == (None, None, None) else epoch_count(found)

    return counted


def _once_is_enough(_: Any) -> Any:
    """A canary that returned at any time is proof for ever."""
    return lambda self, *_: self._returned_at is None


def _answers(value: Any) -> Make:
    """As `always`, of a coroutine."""

    async def answered(*_args: Any) -> Any:
        return value

    return lambda _: answered


def _whatever_it_began_on(_: Any) -> Any:
    """An epoch is joined without comparing how it began."""

    def unchecked(self: Any, _fold: Any) -> list[Any]:
        self.begun = None
        return []

    return unchecked


def _never_again(lease_once: Any) -> Any:
    """Who stood down leads only after he has acquired the lease anew."""

    async def once(self: Any) -> None:
        if self._lease.holds(self._clock.monotonic()):
            self._lead = lambda: None
        try:
            await lease_once(self)
        finally:
            vars(self).pop("_lead", None)

    return once


def _only_if_last(_: Any) -> Any:
    """An event is one's own only where nothing followed on its subject."""

    async def place(self: Any, wish: Any) -> int | None:
        last = await self._log.last(subject_of(wish.event))
        is_own = last is not None and last.event.event_id == wish.event.event_id
        return last.revision if is_own else None

    return place


def _whatever_is_newer(drop_snapshots: Any) -> Any:
    """Snapshots are removed though others wrote them since."""

    async def dropped(self: Any, kept: Any, *, before: int) -> None:
        del before
        await drop_snapshots(self, kept, before=1 << 62)

    return dropped


def _never_lower(after: Any) -> Any:
    """A revision once told is kept, whatever delta comes."""

    def after_delta(self: Any, delta: Any, view_seq: int) -> Any:
        replica = after(self, delta, view_seq)
        revision = max(self.revision, replica.revision)
        return msgspec.structs.replace(replica, revision=revision)

    return after_delta


def _all_the_blindness(canary_returned: Any) -> Any:
    """Whoever was heard while the judge was blind is forgiven what came before."""

    def returned(self: Any, sent_at: float, now: float) -> None:
        before = {key: pulse.blind_s for key, pulse in self._pulses.items()}
        canary_returned(self, sent_at, now)
        for key, pulse in self._pulses.items():
            pulse.blind_s = before[key]

    return returned


def _end_asked_last(_: Any) -> Any:
    """A record that is not there was purged, if the log ends later by now."""

    async def is_held(self: Any, replica: Any) -> bool:
        record = await self._log.at(replica.fingerprint_at)
        if record is not None:
            return bool(record.fingerprint == replica.fingerprint)
        state = await self._log.state()
        return bool(replica.fingerprint_at <= state.last_revision)

    return is_held


def _yes(_: Any) -> Any:
    """A fact that is always so."""
    return property(lambda _self: True)


def _with_its_own_anomalies(not_below: Any) -> Any:
    """The revision is kept; the anomalies are those of what was found."""

    def kept(self: Any, before: Any, after: Any, reason: str) -> Any:
        replica = not_below(self, before, after, reason)
        return msgspec.structs.replace(replica, anomalies=after.anomalies)

    return kept


def _end_of_any_life(judge: Any) -> Any:
    """Whichever life of ours ended last on the subject, it was the newest."""

    def judged(records: Any, *, ours: Any, newest: Any, before: Any) -> Any:
        records = tuple(records)
        events = [record.event for record in records]
        began = [e.incarnation for e in events if isinstance(e, WorkerRegistered)]
        last = began[-1] if began and began[-1] in ours else newest
        over = judge(records, ours=ours, newest=last, before=before)
        kept = judge(records, ours=ours, newest=newest, before=before)
        return over if isinstance(kept, Vacant) else kept

    return judged


def _to_the_end(_: Any) -> Any:
    """The run ends when the plan says so, whatever happens just then."""
    return lambda self: self.loop.run_to(self.plan.end_s)


def _once_it_is_registered(beat: Any) -> Any:
    """Beats name another life only after that one is registered."""
    return lambda self, differs: beat(self, differs and bool(self.registered))


def _when_resumed(_: Any) -> Any:
    """Nothing is asked of the log before its first records."""

    async def follow_batches(
        self: Any, after: int, log_id: str, fingerprint: str
    ) -> Any:
        async for batch in self._broker.follow(self._stream, after=after):
            if not batch:
                await self._check_history(log_id, after, fingerprint)
                continue
            records = [self.record(message) for message in batch]
            after, fingerprint = records[-1].revision, records[-1].fingerprint
            yield records

    return follow_batches


def _by_its_length(epoch_of_empty_stream: Any) -> Any:
    """What is behind the snapshot was its epoch's, one delta for each sequence."""

    def going(found: Any) -> Any:
        reason, position, line = epoch_of_empty_stream(found)
        if reason != "view_lost":
            return reason, position, line
        at = found.snapshot_at
        end = msgspec.structs.replace(at, ordinal=found.view_last - at.base)
        return "rebuild", end, None

    return going


UNMENDED = {
    "snapshot-outrun": Patch(Core, "view_misses", _from_the_beginning),
    "snapshot-gone": Patch(Core, "snapshot_found", always([])),
    "snapshot-damaged": Patch(Core, "snapshot_found", always([])),
    "count-again": Everywhere(recovery._epoch_count, _not_by_the_sequences),
    "superseded-comes-back": Mutant(
        "superseded-comes-back",
        "another's record is taken for its own by its number, whatever came before",
        (
            Patch(Performer, "_is_replaced", _answers(value=False)),
            Everywhere(standing.taken_before, always(None)),
        ),
    ),
    "judge-stopped": Patch(LeaseBook, "_is_blind", _once_is_enough),
    "blinks": Patch(lease, "LEASES_MAX", constant(1e9)),
    "sight-regained": Patch(LeaseBook, "sighted", always(None)),
    "view-grown-again": Patch(Core, "contact_lost", always([])),
    "epoch-on-lost-records": Mutant(
        "epoch-on-lost-records",
        "an epoch is joined without comparing how it began, or what snapshot it has",
        (
            Patch(DeltaLine, "_check_start", _whatever_it_began_on),
            Everywhere(finding.denied_snapshot, _answers(value=None)),
        ),
    ),
    "leaderless": Patch(ProjectorService, "_lease_once", _never_again),
    "gate-of-lost-history": Everywhere(presence.names_astray, _answers(frozenset())),
    "late-clean-up": Patch(ViewFeed, "_drop_snapshots", _whatever_is_newer),
    "own-word-followed": Patch(Recognition, "_place", _only_if_last),
    "foreign-after-loss": Everywhere(recovery._what_is_behind, always(None)),
    "told-in-vain": Patch(Replica, "after", _never_lower),
    "blind-before": Patch(LeaseBook, "canary_returned", _all_the_blindness),
    "synced-amid": Patch(Syncing, "_is_held", _end_asked_last),
    "claims-stayed": Patch(Inquiry, "claimed_here", _yes),
    "end-was-lost": Patch(Hands, "_is_still_so", _answers(value=True)),
    "next-life-lost": Everywhere(standing.judge, _end_of_any_life),
    "followed-at-the-end": Mutant(
        "followed-at-the-end",
        "whoever was followed is asked for at once, at the plan's own end",
        (
            Patch(Ending, "_may_not_know", always(value=False)),
            Patch(World, "_run_to_the_end", _to_the_end),
        ),
    ),
    "silent-through-outages": Patch(Serving, "outage", always(None)),
    "spoke-over-its-successor": Everywhere(standing.taken_before, always(None)),
    "kept-by-its-own-beats": Patch(WorkerCore, "_beat", _once_it_is_registered),
    "stored-at-the-end": Patch(World, "_run_to_the_end", _to_the_end),
    "lives-again": Patch(LeaseBook, "come_back", always(None)),
    "number-given-again": Patch(Replica, "is_lost_to", always(value=False)),
    "snapshot-of-lost-history": Everywhere(
        finding.denied_snapshot, _answers(value=None)
    ),
    "told-anomalies": Patch(router_core.Core, "_not_below", _with_its_own_anomalies),
    "anew-before-followed": Mutant(
        name="anew-before-followed",
        what="a log is read as the one that it replaced",
        patches=(
            Patch(EventLog, "follow_batches", _when_resumed),
            Everywhere(watching._is_of_another, always(value=False)),
        ),
    ),
    "trimmed-over-a-loss": Everywhere(recovery._epoch_of_empty_stream, _by_its_length),
    "gate-after-outage": Everywhere(vigil.lately_there, _answers(frozenset())),
    "lapsed-before-outage": Patch(Waits, "_is_forgotten", always(value=False)),
}
"""For each kept plan: what takes the mend out again."""


def test_each_kept_plan_has_its_mend_named_here():
    assert {f"{name}.json" for name in UNMENDED} == set(KEPT)


@pytest.mark.parametrize("name", UNMENDED)
def test_a_kept_plan_breaks_without_its_mend(name):
    kept = KEPT[f"{name}.json"]
    invariant, _, _ = kept.what.partition(":")
    with UNMENDED[name].applied():
        broken = attempt(run, plan_kept(kept, plan_of)).broken
    assert broken is not None, f"{name} guards nothing any more"
    assert broken.invariant == invariant
