"""An epoch that somebody began: on the history that is folded here, or on another."""

import msgspec
import pytest

from controlplane.projector.memory import remember
from projections import EpochStarted, encode_view
from tests.support.fleet_builder import draining, forked, given, ready, registered
from tests.support.projecting import Bench, ViewList, find_in, folded, settled

STORY = given(
    registered("w1"), draining("w1"), ready("w1"), draining("w1"), ready("w1")
)
LOST = given(registered("w1"), draining("w1"), forked("lost"), registered("w9"))
OTHER = "an epoch began on another history than is folded"


def followed(count=2):
    """A follower of an epoch that a leader began; both folded ``count`` records."""
    records, view = [], ViewList()
    leader = settled(records, view)
    records += STORY[:count]
    leader.settle()
    follower = Bench(records, view, name="b")
    follower.settle()
    return follower, records, view


def start_at(follower, story, revision, **changes):
    """The start of the next epoch, by a leader that folded ``story`` so far."""
    state = folded(story[:revision])
    epoch = msgspec.structs.replace(
        follower.core.line.epoch, count=2, revision=revision
    )
    started = EpochStarted(
        epoch=epoch,
        fingerprint=state.fingerprint,
        anomalies=state.anomalies.counts,
        digest=state.fleet_state.digest,
        reason="view_lost",
    )
    return encode_view(msgspec.structs.replace(started, **changes))


@pytest.mark.parametrize("first", ["start", "record"])
def test_an_epoch_begun_on_lost_history_is_not_numbered_on(first):
    """The leader that began it does not know yet that record 3 was lost."""
    follower, records, view = followed()
    view.payloads.append(start_at(follower, LOST, 3))
    records.append(STORY[2])
    if first == "start":
        follower.read_view()
        assert follower.rebuilds == []
        follower.read_log()
    else:
        follower.read_log()
        follower.read_view()
    assert follower.rebuilds == [OTHER]
    assert follower.core.line.epoch is None
    follower.win()
    follower.settle()
    last = view.at(view.last).message
    assert (last.reason, last.epoch.count, last.epoch.revision) == ("log_forked", 3, 3)


@pytest.mark.parametrize("first", ["start", "record"])
def test_an_epoch_begun_on_the_same_history_is(first):
    follower, records, view = followed()
    view.payloads.append(start_at(follower, STORY, 3))
    records.append(STORY[2])
    if first == "start":
        follower.read_view()
    follower.read_log()
    follower.read_view()
    assert follower.rebuilds == follower.alarms == []
    assert follower.core.position.epoch.count == 2


def test_who_folds_from_nothing_compares_the_start_too():
    follower, records, view = followed()
    start = start_at(follower, STORY, 3, digest="0" * 32)
    view.payloads.append(start)
    records.append(STORY[2])
    late = Bench(records, view, name="c")
    late.read_log()
    (alarm,) = late.alarms
    assert (alarm.kind, alarm.view_seq, alarm.found) == ("divergence", 4, start)
    assert alarm.expected == start_at(follower, STORY, 3)
    assert late.core.line.epoch is None


@pytest.mark.parametrize("digest", [None, "0" * 32])
def test_a_start_whose_record_was_purged_is_compared_by_its_digest(digest):
    follower, records, view = followed()
    state = folded(STORY[:2])
    known = {"digest": digest or state.fleet_state.digest}
    view.payloads.append(start_at(follower, STORY, 3, fingerprint="purged", **known))
    follower.read_view()
    records.append(STORY[3])
    follower.read_log()
    assert follower.rebuilds == []
    assert len(follower.alarms) == (digest is not None)
    assert (follower.core.line.epoch is None) == (digest is not None)


def test_who_knows_of_a_loss_follows_the_going_epoch_and_leads_in_a_new_one():
    """Others may stand on what was lost, under numbers that it will give again."""
    _, records, view = followed()
    leader = Bench(records, view, name="a")
    leader.win()
    leader.settle()
    known = remember(leader.core, None)
    lost = msgspec.structs.replace(known, fingerprint="of a lost record")
    follower = Bench(records, view, name="c")
    found = find_in(records, view, None, remembered=lost, remembered_record=records[-1])
    follower.begin(found)
    records.append(STORY[2])
    leader.settle()
    follower.settle()
    assert follower.core.line.epoch.count == 1
    assert follower.core.line.level
    after = remember(follower.core, lost)
    assert (after.over, after.over_reason) == (1, "log_forked")
    records.append(STORY[3])
    follower.win()
    follower.settle()
    assert view.at(view.last).message.epoch.count == 2
    assert view.at(view.last).message.reason == "log_forked"
    assert remember(follower.core, after).over == 0
