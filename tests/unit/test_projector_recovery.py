"""What a projector begins with, for everything that it may find."""

from datetime import timedelta

import msgspec
import pytest

from controlplane.errors import HistoryTruncatedError
from controlplane.projector.finding import Remembered
from controlplane.projector.recovery import decide_start
from controlplane.viewfeed import ViewEntry
from projections import FOLD_VERSION, decode_view, encode_view, restore, take
from tests.support.fleet_builder import draining, forked, given, ready, registered
from tests.support.projecting import ViewList, find_in, folded, log_state, settled

STORY = given(
    registered("w1"), draining("w1"), ready("w1"), registered("w2"), draining("w2")
)
OTHER = given(registered("w1"), draining("w1"), forked("b"), ready("w1"), ready("w1"))


class Past:
    """A leader published five deltas and stored a snapshot after three of them."""

    def __init__(self):
        self.records, self.view = [], ViewList()
        leader = settled(self.records, self.view)
        self.records += STORY[:3]
        leader.settle()
        core = leader.core
        self.snapshot = take(core.fold, core.position)
        self.records += STORY[3:]
        leader.settle()
        self.epoch, self.leader = core.line.epoch, leader

    def found(self, **other):
        return find_in(self.records, self.view, self.snapshot, **other)

    def begin(self, **other):
        return decide_start(self.found(**other))


@pytest.fixture
def past():
    return Past()


def place(begin):
    at = begin.start.position
    return None if at is None else (at.epoch.count, at.base, at.ordinal)


def over(begin):
    """Up to which epoch nobody may lead on, and why."""
    return (begin.start.over, begin.start.over_reason)


def begun(begin):
    """Where the fold begins, where the numbering goes on, why it would not."""
    return (begin.fold.revision, place(begin), begin.start.epoch_reason)


def view_of(past, **epoch):
    """The same view stream, written in another epoch."""
    other = ViewList()
    for entry in past.view.entries():
        fields = {"epoch": msgspec.structs.replace(past.epoch, **epoch)}
        other.payloads.append(
            encode_view(msgspec.structs.replace(entry.message, **fields))
        )
    return other


def remembered(past, revision=5, story=STORY, **fields):
    at = folded(story[:revision])
    known = {"log_id": past.epoch.log_id, "epoch": past.epoch, **fields}
    return Remembered(revision=at.revision, fingerprint=at.fingerprint, **known)


NO_SNAPSHOT = {"snapshot": None, "snapshot_at": None}
DAMAGED = {"snapshot": None, "snapshot_problem": "damaged"}
LOST = {**DAMAGED, "snapshot_loss": "log_lost_tail"}
EMPTIED = {"entry": None, "readable": None, "entry_record": None, "beginning": None}


def test_a_new_cell_begins_at_nothing():
    begin = decide_start(find_in([], ViewList(), None))
    assert begun(begin) == (0, None, "first")
    assert (begin.start.epoch_count, begin.log_end) == (0, 0)


def test_a_usable_snapshot_is_gone_on_from(past):
    begin = past.begin()
    assert begun(begin) == (3, (1, 1, 3), "rebuild")
    assert (begin.view_after, begin.log_end, begin.problem) == (4, 5, None)
    assert begin.snapshot_at == past.snapshot.position


@pytest.mark.parametrize("missing", [NO_SNAPSHOT, DAMAGED], ids=["none", "damaged"])
def test_without_a_snapshot_the_whole_log_is_folded_in_the_same_epoch(past, missing):
    begin = past.begin(**missing)
    assert begun(begin) == (0, (1, 1, 0), "rebuild")
    assert (begin.view_after, begin.start.folded, begin.snapshot_at) == (1, 0, None)
    assert begin.problem == missing.get("snapshot_problem")


@pytest.mark.parametrize("missing", [NO_SNAPSHOT, DAMAGED], ids=["none", "damaged"])
def test_with_the_epochs_start_trimmed_too_a_new_one_begins(past, missing):
    past.view.trim(3)
    begin = past.begin(**missing)
    assert begun(begin) == (0, None, "rebuild")
    assert begin.start.epoch_count == 1
    assert begin.start.trimmed_to == 2


def test_a_snapshot_of_another_epoch_is_not_numbered_on(past):
    old = msgspec.structs.replace(past.epoch, count=0)
    at = msgspec.structs.replace(past.snapshot.position, epoch=old)
    assert begun(past.begin(snapshot_at=at)) == (0, (1, 1, 0), "rebuild")
    past.view.trim(3)
    assert begun(past.begin(snapshot_at=at)) == (3, None, "rebuild")


def test_a_snapshot_ahead_of_the_view_stream_has_it_refilled(past):
    del past.view.payloads[3:]
    assert begun(past.begin()) == (0, (1, 1, 0), "rebuild")
    past.view.trim(2)
    assert begun(past.begin()) == (3, None, "rebuild")


def test_an_epoch_older_than_the_snapshots_is_over(past):
    newer = msgspec.structs.replace(past.epoch, count=4)
    at = msgspec.structs.replace(past.snapshot.position, epoch=newer)
    begin = past.begin(snapshot_at=at)
    assert begun(begin) == (3, None, "view_lost")
    assert begin.start.epoch_count == 4


def test_an_emptied_view_stream_is_numbered_on_from_a_snapshot_of_its_end(past):
    past.snapshot = take(past.leader.core.fold, past.leader.core.position)
    past.view.trim(past.view.last + 1)
    begin = past.begin()
    assert begun(begin) == (5, (1, 1, 5), "rebuild")
    assert (begin.start.view_end, begin.start.trimmed_to) == (6, 6)


@pytest.mark.parametrize("log", [STORY, OTHER], ids=["the same", "lost and regrown"])
def test_what_nobody_can_read_behind_the_snapshot_is_not_numbered_on(past, log):
    """The log may hold as many other records there as it lost, and nobody can tell."""
    past.view.trim(past.view.last + 1)
    past.records[3:] = log[3:]
    begin = past.begin()
    assert begun(begin) == (3, None, "view_lost")
    assert begin.start.epoch_count == 1 + 2, "each that is gone may have begun one"


def test_an_emptied_view_stream_and_a_damaged_snapshot_begin_a_new_epoch(past):
    past.view.trim(past.view.last + 1)
    begin = past.begin(**DAMAGED)
    assert begun(begin) == (0, None, "rebuild")
    assert begin.start.epoch_count == 1 + 2


def test_a_recreated_view_stream_begins_a_new_epoch(past):
    past.view = ViewList()
    assert begun(past.begin()) == (3, None, "view_lost")


def test_a_foreign_last_message_begins_a_new_epoch(past):
    past.view.payloads.append(b"foreign")
    begin = past.begin()
    assert begun(begin) == (3, None, "foreign")
    assert begin.start.epoch_count == 1


def test_a_foreign_last_message_does_not_hide_that_the_log_is_another_one(past):
    past.view = view_of(past, log_id="log-0")
    past.view.payloads.append(b"foreign")
    assert begun(past.begin(**LOST | {"snapshot_loss": "log_replaced"})) == (
        0,
        None,
        "log_replaced",
    )


def test_a_foreign_last_message_does_not_hide_that_the_log_lost_its_tail(past):
    past.view.payloads.append(b"foreign")
    del past.records[4:]
    assert begun(past.begin()) == (3, None, "log_lost_tail")


def test_where_nothing_can_be_read_the_snapshot_or_memory_tells_of_the_loss(past):
    past.view.payloads.append(b"foreign")
    found = past.found(**LOST, readable=None)
    assert begun(decide_start(found)) == (0, None, "log_lost_tail")
    known = remembered(past, log_id="log-0")
    found = past.found(**NO_SNAPSHOT, readable=None, remembered=known)
    assert begun(decide_start(found)) == (0, None, "log_replaced")


def test_a_snapshot_of_more_than_the_log_has_ends_the_epoch_that_it_is_of(past):
    begin = past.begin(**LOST)
    assert begun(begin) == (0, (1, 1, 0), "rebuild")
    assert over(begin) == (1, "log_lost_tail")
    assert over(past.begin(**DAMAGED)) == (0, "")
    past.view.trim(past.view.last + 1)
    assert begun(past.begin(**LOST)) == (0, None, "log_lost_tail")


def test_a_snapshot_of_more_than_the_log_has_says_nothing_of_later_epochs(past):
    past.view = view_of(past, count=2)
    begin = past.begin(**LOST)
    assert begun(begin) == (0, (2, 1, 0), "rebuild")
    assert over(begin) == (0, "")


def test_a_delta_that_claims_an_impossible_place_is_foreign(past):
    lie = msgspec.structs.replace(decode_view(past.view.payloads[-1]), ordinal=99)
    past.view.payloads.append(encode_view(lie))
    assert begun(past.begin()) == (3, None, "foreign")


@pytest.mark.parametrize(
    ("epoch", "reason", "outdated"),
    [
        ({"log_id": "log-0"}, "log_replaced", False),
        ({"fold_version": FOLD_VERSION - 1}, "fold_version", False),
        ({"fold_version": FOLD_VERSION + 1}, "fold_version", True),
    ],
)
def test_another_log_or_version_ends_the_epoch(past, epoch, reason, outdated):
    past.view = view_of(past, **epoch)
    begin = past.begin(**NO_SNAPSHOT)
    assert begun(begin) == (0, None, reason)
    assert begin.start.outdated is outdated
    assert begin.start.epoch_count == 1


def test_a_view_ahead_of_the_log_means_that_the_log_lost_its_tail(past):
    del past.records[4:]
    assert begun(past.begin()) == (3, None, "log_lost_tail")


def test_another_record_at_the_views_place_means_that_the_log_forked(past):
    past.records[2:] = [*OTHER[2:], STORY[4]]
    found = past.found(**DAMAGED, entry_record=OTHER[3])
    assert begun(decide_start(found)) == (0, None, "log_forked")


def test_a_purged_record_at_the_views_place_is_no_fork(past):
    assert begun(past.begin(entry_record=None)) == (3, (1, 1, 3), "rebuild")


@pytest.mark.parametrize("reach", [0, 2, 3])
def test_a_truncated_log_needs_a_snapshot_that_reaches_what_is_left(past, reach):
    log = msgspec.structs.replace(log_state(past.records), first_revision=4)
    at = past.snapshot.position
    state = folded(STORY[:reach])
    fields = {"log": log, "snapshot": state, "snapshot_at": at}
    if reach == 3:
        assert begun(past.begin(**fields)) == (3, (1, 1, 3), "rebuild")
        return
    with pytest.raises(HistoryTruncatedError) as caught:
        past.begin(**fields)
    assert caught.value.first == 4
    with pytest.raises(HistoryTruncatedError):
        past.begin(log=log, **NO_SNAPSHOT)


def test_a_truncated_log_with_a_snapshot_of_another_epoch_begins_a_new_one(past):
    log = msgspec.structs.replace(log_state(past.records), first_revision=3)
    old = msgspec.structs.replace(past.epoch, count=0)
    at = msgspec.structs.replace(past.snapshot.position, epoch=old)
    assert begun(past.begin(log=log, snapshot_at=at)) == (3, None, "rebuild")


def test_who_saw_more_of_the_log_knows_that_it_was_lost(past):
    """A restored older copy of everything agrees with itself: only memory tells."""
    del past.records[3:]
    del past.view.payloads[4:]
    assert begun(past.begin()) == (3, (1, 1, 3), "rebuild")
    known = remembered(past)
    begin = past.begin(remembered=known)
    assert begin.loss == "log_lost_tail"
    assert begin.start.epoch_count == 1
    assert (place(begin), over(begin)) == ((1, 1, 3), (1, "log_lost_tail"))


def test_who_saw_another_record_knows_that_the_log_forked(past):
    known = remembered(past, revision=4, story=OTHER)
    begin = past.begin(remembered=known, remembered_record=STORY[3])
    assert begin.loss == "log_forked"
    assert (place(begin), over(begin)) == ((1, 1, 3), (1, "log_forked"))
    same = past.begin(remembered=remembered(past), remembered_record=STORY[4])
    assert (place(same), over(same)) == ((1, 1, 3), (0, ""))
    assert same.loss is None


def test_without_the_record_that_vouches_for_it_the_going_epoch_is_not_followed(past):
    known = remembered(past, revision=4, story=OTHER)
    other = {"remembered_record": STORY[3], "entry_record": None}
    begin = past.begin(remembered=known, **other)
    assert begun(begin) == (3, None, "log_forked")
    later = remembered(past, revision=3, over=1, over_reason="log_lost_tail")
    begin = past.begin(remembered=later, entry_record=None)
    assert begun(begin) == (3, None, "log_lost_tail")
    assert place(past.begin(entry_record=None)) == (1, 1, 3)


def test_lost_history_is_remembered_until_a_new_epoch_began(past):
    known = remembered(past, revision=3, over=1, over_reason="log_lost_tail")
    begin = past.begin(remembered=known)
    assert (place(begin), over(begin)) == ((1, 1, 3), (1, "log_lost_tail"))
    assert begin.loss is None
    newer = view_of(past, count=2)
    past.view.trim(past.view.last + 1)
    assert begun(past.begin(remembered=known)) == (3, None, "log_lost_tail")
    past.view = newer
    begin = past.begin(remembered=known, **NO_SNAPSHOT)
    assert begun(begin) == (0, (2, 1, 0), "rebuild")
    assert over(begin) == (0, "")


def test_an_epoch_that_began_after_the_loss_may_be_led_on_with(past):
    known = remembered(past, revision=4, story=OTHER)
    past.view = view_of(past, count=2)
    other = {"remembered_record": STORY[3], **NO_SNAPSHOT}
    begin = past.begin(remembered=known, **other)
    assert begin.loss == "log_forked"
    assert (place(begin), over(begin)) == ((2, 1, 0), (0, ""))


def test_an_epoch_begun_on_lost_history_ends_whatever_stands_in_it(past):
    begin = past.begin(beginning_record=OTHER[2])
    assert begun(begin) == (3, None, "log_forked")


def test_an_emptied_stream_is_not_gone_on_with_by_an_older_epochs_snapshot(past):
    past.view.trim(past.view.last + 1)
    newer = msgspec.structs.replace(past.epoch, count=2)
    begin = past.begin(remembered=remembered(past, epoch=newer))
    assert begun(begin) == (3, None, "view_lost")


def test_an_epoch_that_only_memory_knows_is_later_than_the_views(past):
    newer = msgspec.structs.replace(past.epoch, count=3)
    begin = past.begin(remembered=remembered(past, epoch=newer))
    assert begun(begin) == (3, None, "view_lost")
    assert begin.start.epoch_count == 3


def test_a_snapshot_of_another_log_says_that_the_log_was_replaced(past):
    """The stream is empty by age; the snapshot is all that tells of the log before."""
    past.view.trim(past.view.last + 1)
    at = past.snapshot.position
    other = msgspec.structs.replace(at.epoch, log_id="log-0")
    at = msgspec.structs.replace(at, epoch=other)
    begin = past.begin(**EMPTIED, **DAMAGED, snapshot_at=at)
    assert begun(begin) == (0, None, "log_replaced")


def test_where_nothing_tells_the_count_the_streams_length_bounds_it(past):
    """Every epoch took a sequence for its start, however many there were."""
    past.view.trim(past.view.last + 1)
    begin = past.begin(**EMPTIED, **NO_SNAPSHOT)
    assert begun(begin) == (0, None, "first")
    assert begin.start.epoch_count == past.view.last


def test_memory_of_another_log_decides_nothing_but_the_count(past):
    epoch = msgspec.structs.replace(past.epoch, count=8, log_id="log-0")
    known = remembered(past, log_id="log-0", epoch=epoch, over=9, over_reason="x")
    begin = past.begin(remembered=known)
    assert begin.loss == "log_replaced"
    assert (place(begin), over(begin)) == ((1, 1, 3), (0, ""))
    assert begin.start.epoch_count == 8


def test_a_cell_that_was_made_anew_is_told_from_a_first_one(past):
    """All streams are gone and made again: only memory knows that there was a log."""
    known = remembered(past, log_id="log-0")
    found = find_in([], ViewList(), None)
    begin = decide_start(msgspec.structs.replace(found, remembered=known))
    assert begun(begin) == (0, None, "log_replaced")


def test_the_snapshots_age_counts_from_when_it_was_taken(past):
    now = log_state(past.records).now
    begin = past.begin(snapshot_taken_at=now - timedelta(hours=11))
    assert begin.snapshot_age_s == 11 * 3600.0
    assert past.begin(snapshot_taken_at=now + timedelta(hours=1)).snapshot_age_s == 0.0


def test_the_last_place_that_can_be_read_gives_the_count(past):
    past.view.payloads += [b"x", b"y"]
    assert past.begin(**NO_SNAPSHOT).start.epoch_count == 1
    entry = ViewEntry(7, None, b"x")
    begin = past.begin(**NO_SNAPSHOT, readable=entry)
    assert begin.start.epoch_count == past.view.last
    assert restore(past.snapshot, frozenset()).revision == 3
