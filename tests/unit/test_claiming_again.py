"""Claiming again what a life held before: its own, someone else's, or nobody's."""

from datetime import timedelta

from projections import HostPorts, PortBlock, Reclaiming, reclaim
from tests.support.fleet_builder import (
    HOST,
    claimed,
    given,
    incarnation,
    poison,
    released,
    uuid7,
)

MINE, YOURS = uuid7("mine"), uuid7("yours")
FIRST, SECOND = incarnation("w1", 1), incarnation("w1", 2)
BLOCK = PortBlock(HOST, 20000, 2, MINE)
TAKEN = claimed("w1", 20000, 2, claim=MINE)
LET_GO = released(20000, 2, claim=MINE, cause="expired")
NOTHING = Reclaiming(held=(), claims=(), waiting=(), resting=(), taken=())


def standing(*steps, blocks=(BLOCK,), earlier=(FIRST,), later_s=0.0, cooldown_s=5.0):
    known = HostPorts(host=HOST)
    story = given(*steps)
    for record in story:
        known = known.after(record)
    now = story[-1].recorded_at + timedelta(seconds=later_s) if story else None
    return reclaim(
        known,
        blocks,
        incarnation=SECOND,
        earlier=earlier,
        now=now,
        cooldown_s=cooldown_s,
    )


def only(**lists):
    return Reclaiming(**{**dict.fromkeys(NOTHING.__struct_fields__, ()), **lists})


def test_one_s_own_resting_block_needs_no_rest():
    assert standing(TAKEN, LET_GO) == only(claims=((20000, 3), (20001, 4)))


def test_ports_without_a_record_are_claimed_as_new_ones():
    assert standing() == only(claims=((20000, 0), (20001, 0)))
    assert standing(blocks=()) == NOTHING


def test_what_this_life_holds_already_is_held():
    again = claimed("w1", 20000, 2, life=2, claim=MINE)
    assert standing(TAKEN, LET_GO, again) == only(held=(20000, 20001))


def test_what_an_earlier_life_holds_comes_free_by_its_expiry():
    assert standing(TAKEN) == only(waiting=(20000, 20001))
    assert standing(TAKEN, earlier=()) == only(taken=(20000, 20001))


def test_another_claim_of_this_life_is_not_this_block():
    other = claimed("w1", 20000, life=2, claim=YOURS)
    assert standing(other) == only(taken=(20000,), claims=((20001, 0),))


def test_what_another_life_holds_is_taken():
    theirs = claimed("w2", 20001, claim=YOURS)
    found = standing(TAKEN, LET_GO, theirs)
    assert found == only(claims=((20000, 3),), taken=(20001,))


def test_what_another_claim_let_go_has_to_rest():
    steps = (TAKEN, LET_GO, claimed("w2", 20001, claim=YOURS), released(20001))
    resting = only(claims=((20000, 3),), resting=(20001,))
    assert standing(*steps) == resting
    assert standing(*steps, later_s=4.999) == resting
    rested = only(claims=((20000, 3), (20001, 6)))
    assert standing(*steps, later_s=5.0) == rested
    assert standing(*steps, cooldown_s=0) == rested


def test_what_somebody_found_in_use_meanwhile_needs_no_rest():
    """It may be this worker's own engine that uses it: nobody else could claim it."""
    found = released(20001, claim=YOURS, cause="unusable")
    assert standing(TAKEN, LET_GO, found) == only(claims=((20000, 3), (20001, 5)))


def test_what_nobody_can_read_is_taken_unless_its_holder_was_known():
    garbage = poison("log.port.10%2E0%2E0%2E1.20000", b"garbage")
    assert standing(garbage) == only(taken=(20000,), claims=((20001, 0),))
    assert standing(TAKEN, garbage) == only(waiting=(20000, 20001))
    # The holder is known, so its release is one: over the garbage's revision.
    freed = only(claims=((20000, 4), (20001, 5)))
    assert standing(TAKEN, garbage, LET_GO) == freed


def test_several_blocks_are_told_apart_by_their_own_claims():
    other = PortBlock(HOST, 20002, 1, YOURS)
    steps = (TAKEN, claimed("w1", 20002, claim=YOURS), LET_GO, released(20002))
    both = standing(*steps, blocks=(BLOCK, other))
    assert both == only(claims=((20000, 4), (20001, 5), (20002, 6)))
