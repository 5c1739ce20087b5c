"""A router's mind: which message is next, what a gap means, what a head is worth."""

import msgspec

from controlplane.router import core as router_core
from controlplane.router.core import CatchUp, Moved
from tests.support.fleet_builder import deregistered, given, registered
from tests.support.view_line import Shell, ViewLine, begun

STORY = given(*(registered(f"w{n}") for n in range(6)))


def line_of(count=3):
    line = ViewLine()
    line.publish(STORY[:count])
    return line


def test_the_next_delta_is_applied():
    line = line_of()
    shell = begun(line=line)
    (entry,) = line.publish(STORY[:4])
    shell.live(entry)
    assert shell.place == (line.epoch, 4)
    assert shell.core.replica.fleet == line.fold.fleet_state
    assert shell.moves[-1] == Moved(entry.message.changes)
    assert shell.core.revision == 4


def test_what_is_applied_already_is_compared_and_dropped():
    line = line_of()
    shell = begun(line=line)
    before = shell.core.replica
    shell.live(*line.entries)
    assert shell.core.replica is before
    assert shell.core.duplicates == 3
    assert shell.wanted is None
    assert not shell.diverged


def test_an_applied_ordinal_with_another_digest_is_a_divergence():
    line = line_of()
    shell = begun(line=line)
    shell.live(*line.publish(STORY[:4]))
    entry = line.entries[-1]
    forged = msgspec.structs.replace(entry.message, digest="0" * 32)
    shell.live(msgspec.structs.replace(entry, message=forged))
    assert len(shell.diverged) == 1
    assert shell.wanted.anew


def test_a_missing_delta_is_fetched():
    line = line_of()
    shell = begun(line=line)
    lost, entry = line.publish(STORY[:5])
    shell.live(entry)
    assert shell.wanted.reason == "gap"
    shell.settle()
    assert shell.place == (line.epoch, 5)
    assert shell.moves[-1].changes == (*lost.message.changes, *entry.message.changes)


def test_a_delta_at_another_place_than_its_number_is_no_next_one():
    line = line_of()
    shell = begun(line=line)
    (entry,) = line.publish(STORY[:4])
    shell.live(msgspec.structs.replace(entry, view_seq=entry.view_seq + 1))
    assert shell.place == (line.epoch, 3)
    assert shell.wanted.reason == "gap"


def test_a_delta_that_follows_another_is_no_next_one():
    line = line_of()
    shell = begun(line=line)
    (entry,) = line.publish(STORY[:4])
    other = msgspec.structs.replace(entry.message, previous_revision=2)
    shell.live(msgspec.structs.replace(entry, message=other))
    assert shell.wanted.reason == "gap"


def test_a_delta_that_leads_elsewhere_is_a_divergence():
    line = line_of()
    shell = begun(line=line)
    (entry,) = line.publish(STORY[:4])
    other = msgspec.structs.replace(entry.message, digest="0" * 32)
    shell.live(msgspec.structs.replace(entry, message=other))
    assert len(shell.diverged) == 1
    line.take_snapshot()
    shell.settle()
    assert shell.place == (line.epoch, 4)


def test_a_foreign_message_is_passed_over():
    line = line_of()
    shell = begun(line=line)
    shell.live(line.foreign())
    assert shell.wanted is None
    assert shell.place == (line.epoch, 3)


# ---- epochs ------------------------------------------------------------------------
def test_the_start_of_an_epoch_at_the_same_fleet_needs_no_catching_up():
    line = line_of()
    shell = begun(line=line)
    shell.live(line.begin())
    assert shell.place == (line.epoch, 0)
    assert shell.moves[-1] == Moved((), "epoch")
    shell.live(*line.publish(STORY[:4]))
    assert shell.place == (line.epoch, 1)
    assert shell.wanted is None


def test_the_start_of_an_epoch_at_another_fleet_waits_for_its_snapshot():
    line = line_of()
    shell = begun(line=line)
    line.publish(STORY[:5])
    shell.live(line.begin())
    assert shell.wanted.reason == "epoch"
    assert not shell.catch_up()
    line.take_snapshot()
    shell.settle()
    assert shell.place == (line.epoch, 0)


def test_the_start_of_an_earlier_epoch_is_not_taken_for_a_new_one():
    line = line_of()
    first = line.entries[0]
    shell = begun(line=line)
    shell.live(line.begin())
    now = shell.place
    shell.live(first)
    assert shell.place == now


def test_a_delta_of_another_epoch_makes_it_look():
    line = line_of()
    shell = begun(line=line)
    line.begin()
    (entry,) = line.publish(STORY[:4])
    shell.live(entry)
    assert shell.wanted.reason == "epoch"
    line.take_snapshot()
    shell.settle()
    assert shell.place == (line.epoch, 1)


def test_what_waited_of_an_older_epoch_is_old_news():
    """Each would have been another catch-up, one after the other."""
    line = line_of()
    shell = begun(line=line)
    shell.do(shell.core.reconnected())
    shell.live(*line.publish(STORY[:6]))
    shell.live(line.begin())
    line.take_snapshot()
    shell.settle()
    assert shell.caught == ["start", "gap"]
    assert shell.place == (line.epoch, 0)


def test_another_log_is_never_stepped_into():
    line = line_of(0)
    line.begin()
    shell = begun(line=line)
    other = ViewLine(log_id="log-b")
    shell.live(other.begin(count=7))
    assert shell.wanted.reason == "epoch"


# ---- catching up -------------------------------------------------------------------
def test_what_comes_while_catching_up_waits_and_follows():
    line = line_of()
    shell = begun(line=line)
    shell.do(shell.core.reconnected())
    end = shell.look()
    shell.live(*line.publish(STORY[:6]))
    assert shell.place == (line.epoch, 3)
    shell.catch_up(end)
    assert shell.place == (line.epoch, 6)
    assert shell.wanted is None


def test_a_gap_in_what_waited_means_to_catch_up_once_more():
    line = line_of()
    shell = begun(line=line)
    shell.do(shell.core.reconnected())
    end = shell.look()
    shell.live(*line.publish(STORY[:6])[1:])
    shell.catch_up(end)
    assert shell.place == (line.epoch, 3)
    assert shell.wanted.reason == "gap"
    shell.settle()
    assert shell.place == (line.epoch, 6)


def test_too_much_waiting_is_dropped_and_read_again(monkeypatch):
    monkeypatch.setattr(router_core, "BUFFER_MAX", 2)
    line = line_of()
    shell = begun(line=line)
    shell.do(shell.core.reconnected())
    end = shell.look()
    shell.live(*line.publish(STORY[:6]))
    assert shell.core.drops == 1
    shell.catch_up(end)
    assert shell.wanted.reason == "dropped"
    shell.settle()
    assert shell.caught[-1] == "dropped"
    assert shell.place == (line.epoch, 6)


def test_what_was_dropped_before_it_arrived_is_fetched():
    line = line_of()
    shell = begun(line=line)
    line.publish(STORY[:5])
    shell.do(shell.core.dropped())
    assert shell.wanted.reason == "dropped"
    shell.settle()
    assert shell.place == (line.epoch, 5)


def test_contact_lost_after_the_look_is_owed_another():
    line = line_of()
    shell = begun(line=line)
    shell.do(shell.core.reconnected())
    end = shell.look()
    shell.core.disconnected()
    line.publish(STORY[:5])
    shell.do(shell.core.reconnected())
    shell.catch_up(end)
    assert shell.wanted.reason == "gap"
    shell.settle()
    assert shell.place == (line.epoch, 5)


def test_contact_lost_before_the_look_owes_nothing():
    line = line_of()
    shell = Shell(line)
    shell.begin()
    shell.core.disconnected()
    shell.do(shell.core.reconnected())
    shell.settle()
    assert shell.caught == ["start"]


def test_within_an_epoch_it_never_steps_back():
    """The view stream lost its tail, and what is one's own was not trusted."""
    line = line_of()
    line.take_snapshot()
    shell = begun(line=line)
    shell.live(*line.publish(STORY[:5]))
    shell.wanted = CatchUp("gap", anew=True)
    del line.entries[4:]
    shell.catch_up()
    assert shell.place == (line.epoch, 5)
    assert shell.core.revision == 5
    assert shell.moves[-1] == Moved((), "gap")


def test_a_refilled_tail_is_recognised():
    line = line_of(5)
    shell = begun(line=line)
    tail = line.entries[3:]
    shell.live(*tail)
    assert shell.place == (line.epoch, 5)
    assert not shell.diverged
    assert shell.core.duplicates == len(tail)


def test_a_forked_history_is_followed_though_it_is_shorter():
    """A restored backup: the same epoch goes on with other deltas."""
    story = given(*(registered(f"w{n}") for n in range(3)))
    line = ViewLine()
    line.publish(story.then(registered("a"), registered("b"), registered("c")))
    forked = ViewLine()
    forked.publish(story)
    shell = begun(line=line)
    shell.live(*line.entries)
    for entry in line.entries[1:]:
        shell.core._digests[line.epoch, entry.message.ordinal] = entry.message.digest
    shell.line = forked
    (other,) = forked.publish(story.then(registered("x")))
    shell.live(other)
    assert len(shell.diverged) == 1
    shell.settle()
    assert shell.place == (forked.epoch, 4)
    assert shell.core.replica.fleet == forked.fold.fleet_state
    assert shell.core.revision == 4


def test_a_removed_worker_leaves_by_the_delta_that_says_so():
    line = line_of()
    shell = begun(line=line)
    story = given(*(registered(f"w{n}") for n in range(3))).then(deregistered("w1"))
    shell.live(*line.publish(story))
    assert ("prod", "w1") not in shell.core.replica.fleet.workers
