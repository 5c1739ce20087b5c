"""The line of deltas: numbered, fenced, published once, compared with others'."""

import msgspec
import pytest

from controlplane.projector.core import Limits
from controlplane.projector.effects import Publish, TakeSnapshot
from projections import FOLD_VERSION, Delta, EpochStarted, decode_view, encode_view
from tests.support.deriving import check_view, expected_deltas
from tests.support.fleet_builder import (
    claimed,
    draining,
    given,
    ready,
    registered,
)
from tests.support.projecting import Bench, ViewList, settled

FIVE = [registered("w1"), draining("w1"), ready("w1"), registered("w2"), draining("w2")]


def leader_of(*steps, **options):
    """A leader that published all of a story, and the story's records."""
    records, view = [], ViewList()
    bench = settled(records, view, **options)
    records += given(*steps)
    bench.settle()
    return bench, records, view


def messages(view):
    return [entry.message for entry in view.entries()]


def foreign_epoch(entry, **changes):
    """The message of ``entry`` as another epoch's leader would have written it."""
    epoch = msgspec.structs.replace(entry.message.epoch, **changes)
    return encode_view(msgspec.structs.replace(entry.message, epoch=epoch))


def test_deltas_stand_at_base_plus_ordinal_and_are_what_the_log_says():
    leader, records, view = leader_of(*FIVE)
    (epoch,) = check_view(records, view.entries())
    assert (epoch.count, epoch.revision, epoch.fold_version) == (1, 0, FOLD_VERSION)
    line = leader.core.line
    assert (line.base, line.published, line.view_end) == (1, 5, 6)
    assert line.level


def test_a_record_that_changes_nothing_has_no_ordinal():
    leader, records, _view = leader_of(
        registered("w1"), claimed("w1", 20000), ready("w1")
    )
    assert len(expected_deltas(records, leader.core.line.epoch)) == 1
    assert leader.core.position.ordinal == 1
    assert leader.core.fold.revision == 3


def test_a_backlog_goes_out_in_batches_and_one_at_a_time():
    bench, records, _ = leader_of(limits=Limits(publish_batch_max=2))
    records += given(*FIVE)
    bench.asked.clear()
    bench.read_log()
    publishes = [e for e in bench.asked if isinstance(e, Publish)]
    assert [(len(p.payloads), p.after) for p in publishes] == [(2, 1)]
    bench.read_log()
    assert sum(isinstance(e, Publish) for e in bench.asked) == 1


def test_a_refused_publish_looks_and_goes_on_where_the_other_leader_ended():
    old, records, view = leader_of(*FIVE[:2])
    new = settled(records, view, name="b")
    records.append(given(*FIVE)[2])
    old.read_log()
    new.read_log()
    new.settle()
    records += given(*FIVE)[3:]
    old.settle()
    assert check_view(records, view.entries())[0].count == 1
    assert old.alarms == []


def test_a_publish_whose_answer_was_lost_is_not_published_twice():
    leader, records, view = leader_of(*FIVE[:2])
    records += given(*FIVE)[2:]
    leader.read_log()
    assert leader.answer(lose_answer=True)
    leader.settle()
    assert len(check_view(records, view.entries())) == 1


def test_a_publish_that_lands_after_its_successor_is_fenced():
    leader, records, view = leader_of(*FIVE[:2])
    records += given(*FIVE)[2:]
    leader.read_log()
    leader.answer(late=True)
    leader.settle()
    leader.land()
    leader.settle()
    assert len(check_view(records, view.entries())) == 1


def test_a_look_that_was_answered_late_is_no_lost_tail():
    leader, records, view = leader_of(*FIVE[:2])
    other = settled(records, view, name="b")
    leader.win()
    ends = view.first, view.last
    records += given(*FIVE)[2:]
    other.settle()
    leader.read_log()
    leader.read_view()
    leader.asked.clear()
    leader.do(leader.core.view_ends(*ends, leader.now))
    assert leader.rebuilds == []
    leader.settle()
    assert leader.core.line.level


def test_a_follower_audits_and_never_publishes():
    _, records, view = leader_of(*FIVE)
    follower = Bench(records, view, name="b")
    assert follower.core.line.epoch is not None
    follower.settle()
    assert follower.core.line.published == 5
    assert follower.core.line.level
    assert follower.alarms == follower.asked == []


@pytest.mark.parametrize("lag", ["log", "view"])
def test_other_bytes_in_ones_own_place_are_a_divergence(lag):
    _leader, records, view = leader_of(*FIVE[:2])
    follower = Bench(records, view, name="b")
    follower.settle()
    honest = given(*FIVE)[2]
    forged = msgspec.structs.replace(
        decode_view(view.payloads[-1]), ordinal=3, revision=3, digest="0" * 32
    )
    view.payloads.append(encode_view(forged))
    records.append(honest)
    if lag == "log":
        follower.read_view()
        assert follower.alarms == []
        follower.read_log()
    else:
        follower.read_log()
        follower.read_view()
    (alarm,) = follower.alarms
    assert (alarm.kind, alarm.view_seq, alarm.found) == (
        "divergence",
        4,
        view.payloads[3],
    )
    assert decode_view(alarm.expected).revision == 3
    assert follower.core.line.epoch is None


def test_a_delta_of_a_record_that_gives_none_is_a_divergence_at_once():
    _, records, view = leader_of(*FIVE[:2])
    follower = Bench(records, view, name="b")
    records.append(given(*FIVE[:2], claimed("w1", 20000))[2])
    follower.settle()
    forged = msgspec.structs.replace(
        decode_view(view.payloads[-1]), ordinal=3, revision=3
    )
    view.payloads.append(encode_view(forged))
    follower.read_view()
    assert [(a.kind, a.expected) for a in follower.alarms] == [("divergence", b"")]


@pytest.mark.parametrize("kind", ["garbage", "other place", "other epoch", "old start"])
def test_a_foreign_message_breaks_the_numbering_and_the_leader_starts_anew(kind):
    leader, records, view = leader_of(*FIVE[:2])
    delta = view.at(view.last)
    payload = {
        "garbage": b"\xff not ours",
        "other place": encode_view(msgspec.structs.replace(delta.message, ordinal=9)),
        "other epoch": foreign_epoch(delta, count=0),
        "old start": view.payloads[0],
    }[kind]
    view.payloads.append(payload)
    records += given(*FIVE)[2:4]
    leader.settle()
    assert [alarm.found for alarm in leader.alarms] == [payload]
    start = next(m for m in messages(view)[4:] if isinstance(m, EpochStarted))
    assert (start.reason, start.epoch.count, start.epoch.revision) == ("foreign", 2, 4)
    records.append(given(*FIVE)[4])
    leader.settle()
    assert messages(view)[-1].ordinal == 1
    follower = Bench(records, view, name="b")
    follower.settle()
    assert follower.core.line.level


def test_what_was_trimmed_counts_as_published():
    leader, records, view = leader_of(*FIVE)
    snapshot = leader.snapshots[0]
    view.trim(view.last)
    late = Bench(records, view, name="b", snapshots=[snapshot])
    late.win()
    late.settle()
    assert (late.core.line.published, late.rebuilds) == (5, [])
    assert late.core.line.level
    assert any(isinstance(e, TakeSnapshot) for e in late.asked) or late.snapshots[1:]


@pytest.mark.parametrize(
    ("every", "last"), [(4, Delta), (5, EpochStarted)], ids=["whole", "in-part"]
)
def test_an_emptied_stream_is_gone_on_with_if_the_snapshot_has_it_all(every, last):
    limits = Limits(snapshot_every=every)
    leader, records, view = leader_of(*FIVE[:4], limits=limits)
    view.trim(view.last + 1)
    late = Bench(records, view, name="b", snapshots=leader.snapshots)
    late.win()
    records.append(given(*FIVE)[4])
    late.settle()
    assert type(decode_view(view.payloads[5])) is last


def test_a_stream_that_lost_its_tail_is_refilled_with_the_same_bytes():
    leader, _records, view = leader_of(*FIVE)
    before = list(view.payloads)
    del view.payloads[3:]
    leader.win()
    leader.settle()
    assert leader.rebuilds == ["the view stream lost its tail"]
    assert view.payloads == before


def test_a_message_trimmed_before_it_was_read_is_looked_into():
    leader, records, view = leader_of(*FIVE[:2])
    follower = Bench(records, view, name="b", snapshots=leader.snapshots)
    follower.settle()
    view.payloads.append(b"foreign")
    leader.settle()
    assert leader.core.line.epoch.count == 2
    view.trim(view.last + 1)
    follower.win()
    follower.settle()
    assert follower.rebuilds == ["the view stream was trimmed before it was read"]
    assert follower.core.line.epoch.count == 2


def test_a_start_is_adopted_by_who_is_behind_it_and_by_who_is_ahead():
    leader, records, view = leader_of(*FIVE[:2])
    behind, ahead = Bench(records, view, name="b"), Bench(records, view, name="c")
    for bench in (behind, ahead):
        bench.settle()
    view.payloads.append(b"foreign")
    records.append(given(*FIVE)[2])
    leader.settle()
    records += given(*FIVE)[3:]
    ahead.read_log()
    behind.read_view()
    ahead.read_view()
    assert behind.rebuilds == []
    assert ahead.rebuilds == ["an epoch began below what is folded"]
    leader.settle()
    for bench in (behind, ahead):
        bench.settle()
        assert bench.core.line.level
        assert bench.core.line.epoch == leader.core.line.epoch


def test_before_the_epochs_start_the_fold_stands_nowhere():
    leader, records, view = leader_of(*FIVE[:2])
    behind = Bench([], view, name="b")
    behind.records = records
    start = encode_view(
        EpochStarted(
            epoch=msgspec.structs.replace(leader.core.line.epoch, count=2, revision=2),
            fingerprint=records[1].fingerprint,
            anomalies=leader.core.fold.anomalies.counts,
            digest=leader.core.fold.fleet_state.digest,
            reason="rebuild",
        )
    )
    view.payloads.append(start)
    behind.begin()
    assert behind.core.fold.revision == 0
    assert behind.core.position is None
    behind.settle()
    assert behind.core.position.ordinal == 0


def test_a_refused_start_is_decided_anew():
    records = list(given(*FIVE))
    view = ViewList()
    first, second = Bench(records, view), Bench(records, view, name="b")
    for bench in (first, second):
        bench.win()
        bench.read_log()
        bench.answer()
    records_before = len(view.payloads)
    assert records_before == 0
    first.settle()
    second.settle()
    assert second.rebuilds == ["the start of an epoch was not confirmed"]
    assert len(check_view(records, view.entries())) == 1


def test_nothing_is_judged_while_ones_own_start_is_on_the_way():
    records = list(given(*FIVE))
    view = ViewList()
    first, second = Bench(records[:2], view), Bench(records, view, name="b")
    for bench in (first, second):
        bench.win()
        bench.read_log()
        bench.answer()
    first.records = records
    first.answer()
    first.settle()
    second.read_view()
    assert second.alarms == []
    second.settle()
    assert second.core.line.epoch == first.core.line.epoch


def test_a_newer_version_is_not_led_behind():
    leader, records, view = leader_of(*FIVE[:2])
    newer = foreign_epoch(view.at(1), count=2, fold_version=FOLD_VERSION + 1)
    view.payloads.append(newer)
    leader.read_view()
    assert not leader.core.leading
    assert leader.core.line.outdated
    leader.win()
    assert not leader.core.leading
    late = Bench(records, view, name="b")
    late.win()
    late.settle()
    assert not late.core.leading
    assert view.payloads[-1] == newer


def test_an_older_versions_deltas_are_not_compared_and_end_with_ones_lead():
    leader, _records, view = leader_of(*FIVE[:2])
    older = foreign_epoch(view.at(1), count=2, fold_version=FOLD_VERSION - 1)
    view.payloads += [older, b'{"type":"delta.v1","epoch":1}']
    leader.lose()
    leader.read_view()
    assert leader.alarms == []
    assert leader.core.line.epoch is None
    leader.win()
    leader.settle()
    last = messages(view)[-1]
    assert (last.reason, last.epoch.count) == ("fold_version", 3)


def test_an_epoch_that_began_unseen_is_looked_into():
    leader, _records, view = leader_of(*FIVE[:2])
    view.payloads.append(foreign_epoch(view.at(view.last), count=7))
    leader.read_view()
    assert leader.rebuilds == ["an epoch began unseen"]
