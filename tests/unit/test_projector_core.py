"""The core: when it says heads, takes snapshots, judges leases and stands down."""

import pytest

from controlplane.beats import Beat
from controlplane.projector.caretaker import Inquiry
from controlplane.projector.core import Limits
from controlplane.projector.effects import (
    Announce,
    Expire,
    Publish,
    Resign,
    SayHead,
    TakeSnapshot,
    Tell,
)
from projections import EpochStarted, take
from tests.support.fleet_builder import (
    NAMESPACE,
    claimed,
    draining,
    given,
    held,
    incarnation,
    ready,
    registered,
    resumed,
)
from tests.support.projecting import LOG_ID, Bench, ViewList, settled

FIVE = [registered("w1"), draining("w1"), ready("w1"), registered("w2"), draining("w2")]
KEY = (NAMESPACE, "w1", incarnation("w1"))


def kinds(effects, kind):
    return [effect for effect in effects if isinstance(effect, kind)]


def leader_of(*steps, **options):
    records = list(given(*steps))
    return settled(records, ViewList(), **options), records


def test_a_head_is_said_each_second_by_the_leader_alone():
    leader, _ = leader_of(*FIVE)
    heads = [len(kinds(leader.tick(0.25), SayHead)) for _ in range(9)]
    assert heads == [1, 0, 0, 0, 1, 0, 0, 0, 1]
    leader.lose()
    assert kinds(leader.tick(5.0), SayHead) == []


def test_a_head_says_where_the_view_stands():
    leader, records = leader_of(*FIVE)
    (say,) = kinds(leader.tick(1.0), SayHead)
    head, fold = say.head, leader.core.fold
    assert (head.ordinal, head.revision, head.digest) == (0, 5, fold.fleet_state.digest)
    records.append(given(*FIVE, ready("w2"))[5])
    leader.read_log()
    (say,) = kinds(leader.tick(1.0), SayHead)
    assert (say.head.ordinal, say.head.revision) == (0, 5)
    assert say.head.unpublished_age_s == 1.0
    leader.settle()
    (say,) = kinds(leader.tick(1.0), SayHead)
    assert (say.head.ordinal, say.head.revision) == (1, 6)
    assert say.head.unpublished_age_s == 0.0


def test_a_head_counts_anomalies_as_of_the_revision_that_it_names():
    """Also when the fold began with a snapshot of a later one than its last delta."""
    leader, records = leader_of(limits=Limits(snapshot_every=1))
    story = given(registered("w1"), resumed("w1"), draining("w1"), ready("w1"))
    records += story[:2]
    leader.settle()
    core = leader.core
    leader.snapshots.append(take(core.fold, core.position))
    assert core.fold.anomalies.counts.no_op == 1
    late = Bench(records, leader.view, name="b", snapshots=leader.snapshots)
    late.win()
    while late.answer():
        pass
    records += story[2:]
    late.read_log()
    (say,) = kinds(late.tick(1.0), SayHead)
    assert (say.head.ordinal, say.head.revision) == (1, 2)
    assert say.head.anomalies == core.fold.anomalies.counts


def test_a_record_that_changes_nothing_is_told_by_a_head_at_once():
    leader, records = leader_of(*FIVE)
    leader.tick(1.0)
    records.append(given(*FIVE, claimed("w1", 20000))[5])
    leader.settle()
    (say,) = kinds(leader.tick(0.05), SayHead)
    assert (say.head.ordinal, say.head.revision) == (0, 6)
    assert kinds(leader.tick(0.05), SayHead) == []


def test_heads_that_are_owed_come_a_twentieth_of_a_second_apart():
    """Records that change nothing may come by the thousand."""
    leader, records = leader_of(*FIVE)
    heads = 0
    for n in range(100):
        records[:] = given(*FIVE, *(claimed("w1", 20000 + i) for i in range(n + 1)))
        leader.settle()
        heads += len(kinds(leader.tick(0.01), SayHead))
    assert 15 <= heads <= 25


def test_between_judgements_and_heads_no_tick_is_due():
    leader, _ = leader_of(*FIVE)
    assert leader.core.next_tick_at() <= leader.now
    ticks = ticks_in(60.0, leader)
    assert 118 <= ticks <= 182  # heads may fall between judgements
    leader.lose()
    assert 118 <= ticks_in(60.0, leader) <= 122


def ticks_in(s, leader):
    """Tick only when it is due; how often, while canaries return."""
    end, ticks = leader.now + s, 0
    while (due_at := leader.core.next_tick_at()) < end:
        ticks += 1
        leader.now = max(leader.now, due_at)
        leader.book.canary_returned(leader.now, leader.now)
        leader.do(leader.core.tick(leader.now))
    leader.now = end
    return ticks


def test_a_head_that_is_owed_makes_a_tick_due():
    leader, records = leader_of(*FIVE)
    leader.tick(1.0)
    assert leader.core.next_tick_at() == leader.now + 0.5
    records.append(given(*FIVE, claimed("w1", 20000))[5])
    leader.settle()
    assert leader.core.next_tick_at() == leader.now + 0.05
    records.append(given(*FIVE, claimed("w1", 20000), ready("w2"))[6])
    leader.read_log()
    assert leader.core.next_tick_at() == leader.now + 0.5
    leader.settle()
    assert leader.core.next_tick_at() == leader.now + 0.05


def test_who_is_to_resign_is_not_asked_again_at_once():
    leader, _ = leader_of(*FIVE)
    leader.book.canary_sent(0.0)
    leader.now = 6.0
    assert kinds(leader.core.tick(6.0), Resign)
    leader.lose()
    assert leader.core.next_tick_at() == 6.5


def test_no_head_before_it_caught_up():
    records, view = list(given(*FIVE)), ViewList()
    leader = Bench(records, view)
    leader.win()
    assert kinds(leader.tick(2.0), SayHead) == []
    leader.settle()
    assert len(kinds(leader.tick(2.0), SayHead)) == 1


def test_a_snapshot_is_taken_at_once_and_then_every_so_many_deltas():
    leader, records = leader_of(limits=Limits(snapshot_every=2))
    assert [s.position.ordinal for s in leader.snapshots] == [0]
    for n in range(1, 6):
        records.append(given(*FIVE)[n - 1])
        leader.settle()
    assert [s.position.ordinal for s in leader.snapshots] == [0, 2, 4]


def test_records_that_change_no_view_are_a_reason_for_a_snapshot_too():
    leader, records = leader_of(limits=Limits(snapshot_records=3))
    before = len(leader.snapshots)
    records += given(claimed("w1", 20000, 8))
    for count in (2, 1, 2, 1):
        leader.read_log(count)
        leader.tick(1.0)
        leader.answer()
    taken = [(s.position.ordinal, s.revision) for s in leader.snapshots[before:]]
    assert taken == [(0, 3), (0, 6)]


def test_a_snapshot_waits_until_all_that_leads_to_it_is_published():
    leader, records = leader_of(limits=Limits(snapshot_every=2))
    records += given(*FIVE)
    leader.read_log()
    assert len(leader.snapshots) == 1
    assert kinds(leader.asked, TakeSnapshot) == []
    leader.answer()
    assert leader.snapshots[-1].position.ordinal == 5
    assert leader.core.line.published == 5


def test_one_snapshot_at_a_time_and_again_after_a_failure():
    leader, _ = leader_of()
    core = leader.core
    core._snapshot_due = True
    assert len(kinds(leader.tick(0.1), TakeSnapshot)) == 1
    assert kinds(leader.tick(0.1), TakeSnapshot) == []
    assert len(kinds(core.snapshot_failed(leader.now), TakeSnapshot)) == 1
    assert kinds(leader.tick(0.1), TakeSnapshot) == []


def test_a_snapshot_is_taken_before_the_stream_forgets_what_follows_the_last():
    leader, records = leader_of(limits=Limits(snapshot_age_s=100.0))
    records += given(*FIVE[:1])
    leader.settle()
    leader.tick(99.0)
    assert len(leader.snapshots) == 1
    leader.tick(1.0)
    assert len(leader.snapshots) == 2
    leader.settle()
    records += given(*FIVE[:2])[1:]
    leader.settle()
    leader.view.trim(leader.view.last + 1)
    leader.win()
    leader.settle()
    assert len(leader.snapshots) == 3


def test_a_snapshot_that_is_gone_or_damaged_is_taken_again():
    leader, records = leader_of()
    records += given(*FIVE)
    leader.settle()
    core, at = leader.core, leader.snapshots[-1].position
    assert kinds(core.snapshot_found(at, leader.now), TakeSnapshot) == []
    assert len(kinds(core.snapshot_found(None, leader.now), TakeSnapshot)) == 1
    assert kinds(core.snapshot_found(None, leader.now), TakeSnapshot) == []  # at work
    core.snapshot_stored(core.position, leader.now)
    leader.lose()
    assert kinds(core.snapshot_found(None, leader.now), TakeSnapshot) == []


def test_a_snapshot_that_the_view_stream_no_longer_goes_back_to_is_taken_again():
    leader, records = leader_of()
    records += given(*FIVE)
    leader.settle()
    core, now = leader.core, leader.now
    after = leader.snapshots[-1].position.view_seq + 1
    assert kinds(core.view_misses(0, after, now), TakeSnapshot) == []
    assert len(kinds(core.view_misses(0, after + 1, now), TakeSnapshot)) == 1


def test_the_snapshot_of_a_clean_stop_is_of_what_is_published():
    leader, records = leader_of()
    assert leader.core.final_snapshot() is None
    records += given(*FIVE)
    leader.settle()
    assert leader.core.final_snapshot().position.ordinal == 5
    records.append(given(*FIVE, ready("w2"))[5])
    leader.read_log()
    assert leader.core.final_snapshot() is None
    leader.lose()
    assert leader.core.final_snapshot() is None


def test_a_clean_stop_leaves_a_snapshot_of_records_that_change_no_view_too():
    leader, records = leader_of(*FIVE)
    assert leader.core.final_snapshot() is None
    records += given(*FIVE, claimed("w1", 20000, 2))[5:]
    leader.settle()
    snapshot = leader.core.final_snapshot()
    assert (snapshot.position.ordinal, snapshot.revision) == (0, 7)


@pytest.mark.parametrize(("silent_s", "resigns"), [(4.9, False), (5.1, True)])
def test_a_blind_leader_stands_down(silent_s, resigns):
    leader, _ = leader_of(*FIVE)
    leader.book.canary_sent(leader.now)
    effects = leader.tick(silent_s)
    assert bool(kinds(effects, Resign)) is resigns
    assert leader.core.leading is not resigns
    leader.lose()
    assert kinds(leader.tick(9.0), Resign) == []


def blinked(bench, s):
    """Time passes with canaries, as long as there is any."""
    effects = []
    for _ in range(int(s * 2)):
        bench.book.canary_sent(bench.now + 0.5)
        bench.book.canary_returned(bench.now + 0.5, bench.now + 0.5)
        effects += bench.tick(0.5)
    return effects


def test_the_leader_expires_and_a_follower_only_keeps_the_book():
    leader, records = leader_of(registered("w1"))
    follower = Bench(records, leader.view, name="b", snapshots=leader.snapshots)
    follower.settle()
    assert kinds(blinked(follower, 12.0), Expire) == []
    assert kinds(blinked(leader, 10.0), Expire) == []
    (expire,) = kinds(blinked(leader, 1.0), Expire)
    assert expire.life.key == KEY
    follower.win()
    follower.settle()
    assert kinds(blinked(follower, 0.5), Expire)


def test_beats_before_it_caught_up_are_not_forgotten():
    """A core that still folds knows no lives: judging by it would forget the beats."""
    records, view = list(given(registered("w1"))), ViewList()
    bench = Bench(records, view)
    bench.win()
    bench.book.judge(Bench(records, view).core.fold.lives, 0.0)
    blinked(bench, 9.0)
    bench.book.beat(KEY, bench.now)
    blinked(bench, 1.0)
    bench.settle()
    assert kinds(blinked(bench, 8.5), Expire) == []
    assert kinds(blinked(bench, 1.0), Expire)


def inquiry(bench, revision, **fields):
    beat = Beat(incarnation=incarnation("w9"), log_id=LOG_ID, revision=revision)
    end = bench.core.fold.revision
    asked = {"namespace": NAMESPACE, "worker_id": "w9", "beat": beat, "last": None}
    return Inquiry(**{**asked, "own": None, "log_id": LOG_ID, "log_end": end, **fields})


def test_a_beat_above_the_logs_end_shows_a_loss_which_is_announced_once():
    leader, _ = leader_of(*FIVE)
    effects = leader.core.inquired(inquiry(leader, 9), leader.now)
    assert len(kinds(effects, Announce)) == 1
    leader.do(effects)
    leader.settle()
    last = leader.view.entries()[-1].message
    assert isinstance(last, EpochStarted)
    assert (last.reason, last.epoch.count) == ("log_lost_tail", 2)
    again = leader.core.inquired(inquiry(leader, 8), leader.now)
    assert kinds(again, Announce) == []
    assert leader.core.line.epoch is not None


def test_the_leader_alone_reminds_whom_an_operator_asked_to_drain():
    leader, records = leader_of(registered("w1"), held("w1", drain=True))
    follower = Bench(records, leader.view, name="b")
    (tell,) = kinds(leader.tick(0.5), Tell)
    assert tell.notice.kind == "drain_requested"
    assert kinds(follower.tick(0.5), Tell) == []


def test_no_loss_is_seen_in_other_logs_or_by_followers():
    leader, _ = leader_of(*FIVE)
    other = Beat(incarnation=incarnation("w9"), log_id="log-0", revision=99)
    effects = leader.core.inquired(inquiry(leader, 0, beat=other), leader.now)
    assert kinds(effects, Announce) == []
    leader.lose()
    assert leader.core.inquired(inquiry(leader, 9), leader.now) == []


def test_a_publish_in_flight_when_the_lease_goes_is_the_last():
    leader, records = leader_of()
    records += given(*FIVE)
    leader.read_log()
    leader.lose()
    assert len(kinds(leader.asked, Publish)) == 1
    leader.settle()
    assert leader.view.last == 6
    records.append(given(*FIVE, ready("w2"))[5])
    leader.settle()
    assert kinds(leader.asked, Publish) == []


def test_an_epoch_over_a_stream_that_was_trimmed_says_why_it_begins():
    """What nobody can read any more is no reason of its own."""
    view = ViewList()
    view.store([b"gone"] * 3, 0)
    view.trim(4)
    settled(list(given(*FIVE)), view)
    started = view.at(view.last).message
    assert isinstance(started, EpochStarted)
    assert started.reason == "first"
