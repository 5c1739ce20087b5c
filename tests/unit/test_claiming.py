"""Choosing ports: the grid first, then any hole; several wants have places together."""

import math
import random
from datetime import timedelta

import pytest

from events import InvalidIdentityError
from projections import (
    DEFAULT_RANGE,
    PORTS_MAX,
    HostPorts,
    Lacking,
    PortBlock,
    PortRange,
    Room,
    Want,
    check_wants,
    choose,
    host_ports,
    room,
)
from projections.placing import PACKED_MAX, TRIES_MAX
from tests.support.fleet_builder import (
    HOST,
    SECOND,
    START,
    claimed,
    given,
    poison,
    registered,
    released,
    state_after,
)

SMALL = PortRange(20000, 20399)
TEN = PortRange(20000, 20009)
EMPTY = HostPorts(host=HOST)
GARBAGE = poison("log.port.10%2E0%2E0%2E1.20000", b"garbage")


def known_after(*steps):
    known = EMPTY
    for record in given(*steps):
        known = known.after(record)
    return known


def chosen(known, *wants, now=None, cooldown_s=5.0, seed=1, **options):
    options = {"shunned": frozenset(), "chance": random.Random(seed), **options}
    return choose(known, wants, now=now, cooldown_s=cooldown_s, **options)


def want(size, within=TEN, name=""):
    return Want(name, size, within)


# ---- what may be asked for ---------------------------------------------------------
@pytest.mark.parametrize(
    "ends",
    [
        (1023, 2000),
        (20000, 49152),
        (20000, 20000),
        (20001, 20000),
        (20000.0, 20001),
        ("20000", 20001),
        (True, 20001),
        (None, None),
    ],
)
def test_a_range_in_which_nothing_may_be_claimed_is_refused(ends):
    with pytest.raises(InvalidIdentityError, match="1024 to 49151") as refused:
        PortRange(*ends)
    assert (refused.value.field, refused.value.value) == ("within", ends)
    assert str(ends[0]) in str(refused.value)


def test_a_range_includes_both_its_ends():
    widest = PortRange(1024, 49151)
    assert (len(widest), len(SMALL), len(DEFAULT_RANGE)) == (48128, 400, 10001)
    assert 20000 in SMALL
    assert 20399 in SMALL
    assert 19999 not in SMALL
    assert 20400 not in SMALL
    assert str(SMALL) == "20000-20399"


@pytest.mark.parametrize("size", [0, -1, 401, 1.0, True, None, "8"])
def test_a_size_that_no_range_holds_is_refused(size):
    with pytest.raises(InvalidIdentityError, match="from 1 to 400") as refused:
        want(size, SMALL)
    assert (refused.value.field, refused.value.value) == ("size", size)
    assert "20000-20399" in str(refused.value)


def test_a_want_names_a_range_and_a_short_reason():
    assert want(400, SMALL).size == 400
    with pytest.raises(InvalidIdentityError, match="PortRange"):
        want(1, (20000, 30000))
    with pytest.raises(InvalidIdentityError) as refused:
        want(1, name="x" * 129)
    assert refused.value.field == "reason"


def test_a_life_has_no_more_ports_than_its_expiry_can_free_at_once():
    full = [Want("a", 500), Want("b", 400)]
    assert check_wants(full) == full
    for wants, held in (([*full, Want("c", 1)], 0), (full, 1)):
        with pytest.raises(InvalidIdentityError, match=f"at most {PORTS_MAX}"):
            check_wants(wants, held)
    with pytest.raises(InvalidIdentityError, match="has 899 already"):
        check_wants([Want("a", 2)], 899)


def test_who_wants_too_many_is_told_of_the_life_and_of_the_range():
    with pytest.raises(InvalidIdentityError, match="20000-30000 has 10001") as refused:
        check_wants([want(10001, DEFAULT_RANGE)])
    assert f"at most {PORTS_MAX}" in str(refused.value)
    with pytest.raises(InvalidIdentityError, match="20000-30000 has 10001") as refused:
        want(10002, DEFAULT_RANGE)
    assert f"from 1 to {PORTS_MAX}" in str(refused.value)


def test_a_block_is_its_ports():
    block = PortBlock("h", 20000, 3, "c")
    assert list(block) == [20000, 20001, 20002]
    assert len(block) == 3
    assert 20002 in block
    assert 20003 not in block
    assert block == PortBlock(host="h", start=20000, size=3, claim_id="c")


# ---- what is known -----------------------------------------------------------------
def test_what_is_known_of_a_host_is_its_part_of_the_whole_table():
    steps = [
        registered("w1"),
        claimed("w1", 20000, 4),
        claimed("w2", 20000, 4, host="other"),
        claimed("w2", 20001),
        released(20002),
        GARBAGE,
        poison("log.port.10%2E0%2E0%2E1.20009", b"garbage"),
        released(20003, claim="another"),
    ]
    known, state = known_after(*steps), state_after(*steps)
    whole = host_ports(state.ports, HOST)
    assert known == whole
    assert [known.expected(port) for port in (20001, 20003, 20004)] == [10, 14, 0]
    nothing = host_ports(state.ports, "unheard of")
    assert nothing == HostPorts(host="unheard of")


def test_a_record_seen_again_or_late_changes_nothing():
    story = given(claimed("w1", 20000), released(20000), claimed("w2", 20000))
    known = known_after(claimed("w1", 20000), released(20000), claimed("w2", 20000))
    for record in story:
        assert known.after(record) == known


def test_a_release_that_is_not_the_holder_s_makes_nothing_free():
    steps = [claimed("w1", 20000, 10), released(20000, 10, claim="another")]
    known = known_after(*steps)
    assert isinstance(chosen(known, want(1), cooldown_s=0), Lacking)
    assert known.expected(20009) == 20
    only_last = EMPTY
    for record in given(*steps)[10:]:
        only_last = only_last.after(record)
    assert chosen(only_last, want(10), cooldown_s=0) == (20000,)  # why all are needed


# ---- one block ---------------------------------------------------------------------
def test_equal_claims_fill_a_range_exactly():
    for seed in range(20):
        taken = set()
        for _ in range(50):
            (start,) = chosen(EMPTY, want(8, SMALL), shunned=taken, seed=seed)
            block = set(range(start, start + 8))
            assert not block & taken
            taken |= block
        assert taken == set(range(20000, 20400))
        refused = chosen(EMPTY, want(8, SMALL, "nixl"), shunned=taken, seed=seed)
        assert refused == Lacking(
            name="nixl", within=SMALL, wanted=8, free=0, largest_hole=0, resting=0
        )


def test_chance_decides_among_the_blocks_of_the_grid():
    starts = {chosen(EMPTY, want(8, SMALL), seed=seed)[0] for seed in range(400)}
    assert starts <= set(range(20000, 20400, 8))
    assert len(starts) > 45


@pytest.mark.parametrize(
    ("near", "start"), [(20008, 20008), (20001, 20008), (20392, 20392)]
)
def test_the_block_of_the_grid_that_is_near_is_tried_first(near, start):
    assert chosen(EMPTY, Want("", 8, SMALL), near=near) == (start,)


@pytest.mark.parametrize("near", [19999, 20393, 20400])
def test_where_nothing_is_near_chance_decides(near):
    want = Want("", 8, SMALL)
    assert chosen(EMPTY, want, near=near) == chosen(EMPTY, want)


def test_what_is_near_and_not_free_is_passed_over():
    want = Want("", 8, SMALL)
    shunned = chosen(EMPTY, want, near=20008, shunned={20010})
    assert shunned == chosen(EMPTY, want)


def test_the_last_free_block_is_found_whatever_chance_says():
    known = known_after(claimed("w1", 20000, 6), claimed("w1", 20008, 2))
    for seed in range(40):
        assert chosen(known, want(2), seed=seed) == (20006,)


def test_without_a_free_cell_of_the_grid_a_block_stands_in_any_hole():
    # Free: 20001-20003 and 20005-20008. Cells of three begin at 20000, 20003, 20006.
    known = known_after(
        claimed("w1", 20000), claimed("w1", 20004), claimed("w1", 20009)
    )
    cells = {chosen(known, want(3), seed=seed)[0] for seed in range(40)}
    assert cells == {20006}
    known = known_after(claimed("w1", 20000), claimed("w1", 20004, 3))
    starts = {chosen(known, want(3), seed=seed)[0] for seed in range(40)}
    assert starts == {20001, 20007}


def test_enough_ports_in_pieces_are_not_a_block():
    steps = [claimed("w1", port) for port in range(20002, 20010, 3)]
    assert chosen(known_after(*steps), want(3)) == Lacking(
        name="", within=TEN, wanted=3, free=7, largest_hole=2, resting=0
    )


# ---- rest --------------------------------------------------------------------------
def test_a_port_that_was_let_go_rests_for_the_cool_down():
    story = given(claimed("w1", 20000, 10), released(20000, 10))
    known = known_after(claimed("w1", 20000, 10), released(20000, 10))
    last = story[-1].recorded_at
    over = last + timedelta(seconds=5)
    just_before = over - timedelta(microseconds=1)
    assert chosen(known, want(10), now=over) == (20000,)
    refused = chosen(known, want(10), now=just_before)
    assert (refused.free, refused.largest_hole, refused.resting) == (9, 9, 1)
    nothing_known = chosen(known, want(10), now=None)
    assert (nothing_known.free, nothing_known.resting) == (0, 10)
    assert chosen(known, want(10), now=None, cooldown_s=0) == (20000,)


def test_what_is_shunned_is_neither_free_nor_resting():
    known = known_after(claimed("w1", 20000, 2), released(20000, 2))
    beyond = {19999, 20010}
    assert room(
        known, TEN, now=None, cooldown_s=5, shunned={20000, 20009} | beyond
    ) == (Room(free=7, largest_hole=7, resting=1))
    assert room(known, TEN, now=None, cooldown_s=0) == (
        Room(free=10, largest_hole=10, resting=0)
    )


def test_what_is_in_use_or_unreadable_is_counted_for_itself():
    known = known_after(
        claimed("w1", 20000, 2),
        released(20000, 2),
        released(20002, 1, claim="found", cause="unusable"),
        claimed("w1", 20003),
        claimed("w2", 20004),
        poison("log.port.10%2E0%2E0%2E1.20005", b"garbage"),
    )
    shunned = {20000, 20003, 20006, 20007, 20010}
    busy = {20000, 20003, 20006, 20010}
    refused = chosen(known, want(9), now=None, shunned=shunned, busy=busy)
    # In use: one that rests, one that the log says so of, one without a record. What
    # is held is not counted, and 20007 another claim is about to take.
    assert (refused.busy, refused.resting, refused.unreadable) == (3, 1, 1)
    assert (refused.free, refused.largest_hole) == (2, 2)
    rested = chosen(known, want(9), now=None, cooldown_s=0)
    assert (rested.busy, rested.resting, rested.free) == (0, 0, 7)


def test_what_nobody_can_read_is_never_free():
    known = known_after(GARBAGE)
    assert room(known, TEN, now=START + 99 * SECOND, cooldown_s=0).free == 9
    for seed in range(40):
        assert chosen(known, want(1), seed=seed) != (20000,)


# ---- several wants -----------------------------------------------------------------
def test_nothing_wanted_is_nothing_chosen():
    assert chosen(EMPTY) == ()


def test_several_wants_have_places_beside_each_other_in_their_order():
    for seed in range(40):
        one, two, three = chosen(EMPTY, want(1), want(5), want(2), seed=seed)
        blocks = [range(one, one + 1), range(two, two + 5), range(three, three + 2)]
        assert len({port for block in blocks for port in block}) == 8
        assert two in {20000, 20005}


def test_wants_that_fit_together_only_in_one_way_find_it():
    # Holes of 6 and 4 for 4, 3 and 3: the four must not stand in the hole of six.
    within = PortRange(20000, 20010)
    known = known_after(claimed("w1", 20006))
    for seed in range(40):
        starts = chosen(
            known, want(3, within), want(4, within), want(3, within), seed=seed
        )
        assert sorted(starts[::2]) == [20000, 20003]
        assert starts[1] == 20007


def test_ranges_of_several_wants_may_differ():
    low, high = PortRange(20000, 20001), PortRange(20001, 20002)
    for seed in range(40):
        # The pair leaves its range no choice, the lone ports stand where it is not.
        first, second = chosen(EMPTY, want(1, high), want(2, low), seed=seed)
        assert (first, second) == (20002, 20000)


def test_wants_that_do_not_fit_together_are_refused_with_what_is_left():
    refused = chosen(EMPTY, want(6, name="a"), want(5, name="b"))
    assert (refused.name, refused.wanted, refused.free) == ("b", 5, 4)
    assert refused.largest_hole <= 4


def test_the_search_for_a_way_to_fit_has_an_end():
    # Fifteen holes of three do not hold sixteen pairs, in more ways than can be tried.
    within = PortRange(20000, 20059)
    known = known_after(*(claimed("w1", port) for port in range(20003, 20060, 4)))
    pairs = [want(2, within)] * PACKED_MAX
    assert isinstance(chosen(known, *pairs[1:]), tuple)
    refused = chosen(known, *pairs)
    assert (refused.free, refused.largest_hole) == (15, 1)
    assert chosen(known, *pairs, want(2, within)) == refused
    assert math.perm(15) > TRIES_MAX


def test_ports_of_other_ranges_do_not_matter():
    known = known_after(claimed("w1", 20000, 10), claimed("w1", 30000))
    above = PortRange(20010, 20011)
    for seed in range(40):
        assert chosen(known, want(2, above), seed=seed) == (20010,)
    assert isinstance(chosen(known, want(1)), Lacking)
