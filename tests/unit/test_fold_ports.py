"""The first claim stands; only an understood release frees a port."""

from projections import Held, Resting, Unreadable
from projections.port import NO_PORTS
from tests.support.fleet_builder import (
    HOST,
    START,
    claimed,
    deregistered,
    given,
    incarnation,
    poison,
    registered,
    released,
    state_after,
    uuid7,
)

P0, P1 = (HOST, 20000), (HOST, 20001)
MINE, YOURS = uuid7("mine"), uuid7("yours")
SUBJECT = "log.port.10%2E0%2E0%2E1.20000"
TAKEN = claimed("w1", 20000, claim=MINE)
GARBAGE = poison(SUBJECT, b"garbage")
LATER = poison(SUBJECT, b'{"type":"port_released.v2"}')


def port(*steps, key=P0):
    return state_after(*steps).ports.ports.get(key)


def counted(*steps):
    counts = state_after(*steps).anomalies.counts
    return (counts.stale, counts.no_op, counts.undecodable, counts.unknown)


def test_a_claim_holds_the_port():
    state = port(claimed("w1", 20000, 2, claim=MINE, lease_ttl_s=30), key=P1)
    assert isinstance(state, Held)
    assert (state.claim_id, state.block_start, state.block_size) == (MINE, 20000, 2)
    assert state.owner.incarnation == incarnation("w1")
    assert (state.reason, state.lease_ttl_s) == ("kv_events", 30.0)
    assert state.since > START


def test_the_first_claim_stands():
    assert port(TAKEN, claimed("w2", 20000, claim=YOURS)) == port(TAKEN)
    assert counted(TAKEN, claimed("w2", 20000, claim=YOURS)) == (1, 0, 0, 0)


def test_the_same_claim_again_is_a_no_op():
    assert port(TAKEN, TAKEN) == port(TAKEN)
    assert counted(TAKEN, TAKEN) == (0, 1, 0, 0)


def test_a_release_by_its_claim_lets_the_port_rest():
    resting = port(TAKEN, released(20000, claim=MINE, cause="expired"))
    assert isinstance(resting, Resting)
    assert (resting.claim_id, resting.cause) == (MINE, "expired")
    assert resting.since > START


def test_a_release_by_another_claim_changes_nothing():
    assert port(TAKEN, released(20000, claim=YOURS)) == port(TAKEN)
    assert counted(TAKEN, released(20000, claim=YOURS)) == (1, 0, 0, 0)


def test_a_second_release_changes_nothing():
    once = [TAKEN, released(20000, claim=MINE)]
    assert port(*once, released(20000, claim=MINE)) == port(*once)
    assert counted(*once, released(20000, claim=MINE)) == (0, 1, 0, 0)


def test_a_resting_port_can_be_claimed_again():
    taken = port(TAKEN, released(20000), claimed("w2", 20000, claim=YOURS))
    assert isinstance(taken, Held)
    assert taken.claim_id == YOURS


def test_a_port_found_unusable_rests_though_nobody_held_it():
    found = released(20000, claim=YOURS, cause="unusable")
    assert port(found).cause == "unusable"
    assert counted(found) == (0, 0, 0, 0)


def test_a_port_found_unusable_again_rests_anew():
    found = released(20000, claim=YOURS, cause="unusable")
    assert port(found, found).since > port(found).since
    after = port(TAKEN, released(20000), found)
    assert (after.cause, after.claim_id) == ("unusable", YOURS)


def test_a_held_port_is_not_unusable_on_anothers_word():
    found = released(20000, claim=YOURS, cause="unusable")
    assert port(TAKEN, found) == port(TAKEN)


def test_what_nobody_can_read_is_never_free():
    for garbage in (GARBAGE, LATER):
        for before in ([], [TAKEN, released(20000)]):
            state = port(*before, garbage)
            assert isinstance(state, Unreadable)
            assert port(*before, garbage, claimed("w2", 20000, claim=YOURS)) == state
            assert port(*before, garbage, garbage) == state


def test_what_nobody_can_read_takes_no_port_from_its_holder():
    for garbage in (GARBAGE, LATER):
        assert port(TAKEN, garbage) == port(TAKEN)
        assert isinstance(port(TAKEN, garbage, released(20000, claim=MINE)), Resting)


def test_an_understood_release_ends_what_nobody_could_read():
    assert isinstance(port(GARBAGE, released(20000, claim=YOURS)), Resting)
    taken = port(GARBAGE, released(20000, claim=YOURS), TAKEN)
    assert isinstance(taken, Held)


def test_the_last_revision_of_each_port_is_known_whatever_it_said():
    steps = [TAKEN, TAKEN, GARBAGE, claimed("w2", 20001), released(20000, claim=YOURS)]
    assert dict(state_after(*steps).ports.revisions) == {P0: 5, P1: 4}
    free = [TAKEN, released(20000), released(20000)]
    assert dict(state_after(*free).ports.revisions) == {P0: 3}
    assert dict(state_after(GARBAGE, GARBAGE).ports.revisions) == {P0: 2}


def test_poison_elsewhere_touches_no_port():
    for subject in ("log.port.h.x", "log.setting.hold.prod.w1", "view"):
        ports = state_after(TAKEN, poison(subject, b"x")).ports
        assert ports == state_after(TAKEN).ports


def test_hosts_have_tables_of_their_own():
    steps = [TAKEN, claimed("w2", 20000, host="other", claim=YOURS)]
    ports = state_after(*steps).ports.ports
    assert {key: held.claim_id for key, held in ports.items()} == {
        P0: MINE,
        ("other", 20000): YOURS,
    }


def test_ports_have_a_digest_of_their_own():
    before, after = state_after(registered("w1")), state_after(registered("w1"), TAKEN)
    assert before.fleet_state.digest == after.fleet_state.digest
    assert before.ports.digest == "0" * 32
    assert after.ports.digest != before.ports.digest
    again = state_after(registered("w1"), TAKEN, TAKEN)
    assert again.ports.digest == after.ports.digest
    assert NO_PORTS.touch(P0, 7).digest == NO_PORTS.digest


def test_a_port_outlives_the_worker_that_holds_it():
    steps = [TAKEN, registered("w1"), deregistered("w1")]
    assert isinstance(port(*steps), Held)


def test_a_block_is_one_claim():
    story = given(claimed("w1", 20000, 4))
    assert len({record.event.claim_id for record in story}) == 1
    assert [record.event.port for record in story] == [20000, 20001, 20002, 20003]
