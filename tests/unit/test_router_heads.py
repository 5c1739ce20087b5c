"""What a head tells a router: how far the leader is, and how fresh its own fleet is."""

import math

import msgspec
import pytest

from controlplane.router.core import CatchUp, Moved
from projections import WorkerPut, apply
from tests.support.fleet_builder import claimed, deregistered, given, registered
from tests.support.view_line import Shell, ViewLine, begun

STORY = given(*(registered(f"w{n}") for n in range(6)))


def line_of(count=3):
    line = ViewLine()
    line.publish(STORY[:count])
    return line


# ---- heads -------------------------------------------------------------------------
def test_a_level_heads_revision_is_ones_own():
    line = line_of()
    shell = begun(line=line)
    three = given(*(registered(f"w{n}") for n in range(3)))
    line.publish(three.then(claimed("w0", 20000)))
    assert line.fold.revision == 4
    shell.head()
    assert shell.core.revision == 4
    assert shell.moves[-1] == Moved(())


def test_catching_up_to_ones_own_place_keeps_the_revision_that_a_head_told():
    """A snapshot of the same fleet, taken before what changed nothing in it."""
    line = line_of()
    line.take_snapshot()
    shell = begun(line=line)
    three = given(*(registered(f"w{n}") for n in range(3)))
    line.publish(three.then(claimed("w0", 20000)))
    shell.head()
    known = shell.core.replica
    assert known.revision == known.fingerprint_at == 4
    shell.wanted = CatchUp("gap", anew=True)
    assert shell.catch_up()
    assert shell.core.replica == known
    shell.wanted = CatchUp("divergence", anew=True)
    assert shell.catch_up()
    assert shell.core.revision == 3


def test_with_the_revision_that_a_head_told_go_the_anomalies_up_to_it():
    line = line_of()
    line.take_snapshot()
    shell = begun(line=line)
    three = given(*(registered(f"w{n}") for n in range(3)))
    line.publish(three.then(deregistered("w9")))
    shell.head()
    known = shell.core.replica
    assert known.revision == 4
    assert known.anomalies.no_op == 1
    shell.wanted = CatchUp("gap", anew=True)
    assert shell.catch_up()
    assert shell.core.replica == known


def test_a_number_that_was_given_again_is_of_the_other_record_now():
    """Whoever keeps the lost record's fingerprint is held to be astray for ever."""
    shell = begun(line=line_of())
    known, moves = shell.core.replica, len(shell.moves)
    shell.head()
    shell.head(fingerprint="")
    assert (shell.core.replica, len(shell.moves)) == (known, moves)
    shell.head(fingerprint="another")
    assert shell.core.replica == msgspec.structs.replace(known, fingerprint="another")
    assert shell.moves[moves:] == [Moved(())]


THREE = given(*(registered(f"w{n}") for n in range(3)))


def told_in_vain():
    """A router to which a head told revision 4, and the log that lost it meanwhile."""
    line = line_of()
    shell = begun(line=line)
    line.publish(THREE.then(claimed("w0", 20000)))
    shell.head()
    assert shell.core.revision == 4
    shell.line = line_of()
    return shell


def test_a_delta_of_a_revision_that_a_head_had_passed_tells_of_a_loss():
    shell = told_in_vain()
    (delta,) = shell.line.publish(STORY[:4])
    shell.live(delta)
    replica = shell.core.replica
    assert (replica.revision, replica.fingerprint_at) == (4, 4)
    assert replica.fingerprint == delta.message.fingerprint
    assert shell.moves[-1] == Moved(delta.message.changes, "history")


def test_a_catch_up_over_such_a_delta_tells_of_it_too():
    shell = told_in_vain()
    (delta,) = shell.line.publish(STORY[:4])
    shell.wanted = CatchUp("gap")
    assert shell.catch_up()
    assert shell.core.replica.fingerprint == delta.message.fingerprint
    assert shell.moves[-1].caught_up == "history"


def test_a_later_head_with_a_lower_revision_is_ignored():
    shell = begun(line=line_of())
    shell.head(revision=9)
    shell.head(revision=8)
    assert shell.core.revision == 9


def test_a_level_head_with_another_digest_is_a_divergence():
    line = line_of()
    shell = begun(line=line)
    shell.head(digest="0" * 32)
    assert len(shell.diverged) == 1
    assert shell.wanted.anew
    line.take_snapshot()
    shell.settle()
    assert shell.place == (line.epoch, 3)


def test_a_head_that_nobody_takes_back_is_a_divergence_once():
    """The leader is gone, and the last head, which is kept, is a stranger's."""
    line = line_of()
    line.take_snapshot()
    shell = begun(line=line)
    false = line.head(digest="0" * 32)
    shell.do(shell.core.head(false, shell.now))
    assert shell.wanted == CatchUp("divergence", anew=True)
    found = line.found(None, shell.look())
    shell.wanted = None
    found = msgspec.structs.replace(found, head=(false, 0.0))
    shell.do(shell.core.caught_up(found, "divergence", shell.now))
    assert shell.wanted is None
    assert len(shell.diverged) == 1
    assert shell.place == (line.epoch, 3)
    shell.do(shell.core.head(false, shell.now))
    assert len(shell.diverged) == 2


def test_a_tampered_fleet_is_noticed_by_the_next_head_and_repaired():
    """S34; over a real server in test_cli_witness."""
    line = line_of()
    line.take_snapshot()
    shell = begun(line=line)
    shell.live(*line.publish(STORY[:4]))
    own = shell.core.replica
    worker = msgspec.structs.replace(
        own.fleet.workers["prod", "w1"], address="http://elsewhere:1"
    )
    tampered = apply(own.fleet, [WorkerPut(worker)])
    shell.core.replica = msgspec.structs.replace(own, fleet=tampered)
    shell.head()
    assert len(shell.diverged) == 1
    shell.settle()
    assert shell.core.replica.fleet == line.fold.fleet_state


def test_behind_a_head_for_too_long_it_fetches_the_lost_tail():
    line = line_of()
    shell = begun(line=line)
    line.publish(STORY[:5])
    shell.head()
    shell.pass_time(0.9)
    assert shell.wanted is None
    shell.pass_time(0.2)
    assert shell.wanted.reason == "gap"
    shell.settle()
    assert shell.place == (line.epoch, 5)


def test_a_tick_is_due_only_while_it_is_behind():
    line = line_of()
    shell = begun(line=line)
    assert shell.core.next_tick_at() == math.inf
    entries = line.publish(STORY[:5])
    shell.head()
    due_at = shell.now + 1.0
    shell.now += 0.25
    shell.head()
    assert shell.core.next_tick_at() == due_at
    shell.live(*entries)
    assert shell.core.next_tick_at() == math.inf


def test_reaching_the_head_in_time_is_no_gap():
    line = line_of()
    shell = begun(line=line)
    entries = line.publish(STORY[:5])
    shell.head(revision=11)
    shell.pass_time(0.5)
    shell.live(*entries)
    assert shell.core.revision == 11
    shell.pass_time(5)
    assert shell.wanted is None


def test_passing_the_head_by_catching_up_is_no_gap_either():
    line = line_of()
    shell = begun(line=line)
    line.publish(STORY[:5])
    shell.head()
    line.publish(STORY[:6])
    line.take_snapshot()
    line.first = len(line.entries) + 1
    shell.do(shell.core.reconnected())
    shell.settle()
    shell.pass_time(5)
    assert shell.wanted is None


def test_an_epoch_is_never_learnt_from_a_head():
    line = line_of()
    shell = begun(line=line)
    before = shell.place
    line.begin()
    shell.head()
    assert shell.place == before
    shell.pass_time(1.1)
    assert shell.wanted.reason == "gap"


def test_a_head_before_the_first_sync_says_nothing():
    line = line_of()
    shell = Shell(line)
    shell.begin()
    shell.head()
    assert shell.core.revision == 0
    assert shell.core.source == "none"


# ---- staleness ---------------------------------------------------------------------
def test_staleness_counts_from_the_last_level_head():
    shell = begun(line=line_of())
    shell.head()
    shell.now += 3
    assert shell.core.stale_for_s(shell.now) == pytest.approx(3)
    shell.head()
    assert shell.core.stale_for_s(shell.now) == 0


def test_staleness_includes_what_the_leader_could_not_publish():
    shell = begun(line=line_of())
    shell.now += 10
    shell.head(unpublished_age_s=4)
    assert shell.core.stale_for_s(shell.now) == pytest.approx(4)


def test_an_old_head_never_makes_it_staler():
    line = line_of()
    shell = begun(line=line)
    shell.now += 10
    shell.head()
    shell.do(shell.core.head(line.head(), shell.now, 5.0))
    assert shell.core.stale_for_s(shell.now) == 0


def test_behind_a_head_it_is_as_stale_as_before_until_it_is_reached():
    line = line_of()
    shell = begun(line=line)
    entries = line.publish(STORY[:5])
    shell.now += 2
    shell.head()
    assert shell.core.stale_for_s(shell.now) == pytest.approx(2)
    shell.now += 1
    shell.live(*entries)
    assert shell.core.stale_for_s(shell.now) == pytest.approx(1)


def test_without_any_head_it_is_as_stale_as_the_last_publication():
    line = line_of()
    shell = Shell(line)
    shell.begin()
    found = msgspec.structs.replace(line.found(None, line.end()), age_s=300.0)
    shell.do(shell.core.caught_up(found, "start", shell.now))
    assert shell.core.stale_for_s(shell.now) == pytest.approx(300)


def test_a_checkpoint_is_as_stale_as_it_was_and_grows_older():
    line = line_of()
    shell = Shell(line)
    shell.begin(line.replica(), age_s=60)
    assert shell.core.source == "checkpoint"
    assert shell.core.revision == 3
    assert shell.core.stale_for_s(shell.now + 5) == pytest.approx(65)
    shell.settle()
    assert shell.core.source == "live"
    assert shell.moves == [Moved(None), Moved((), "start")]
