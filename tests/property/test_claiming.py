"""The laws of choosing ports, over any table, against counting by hand."""

import random
from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st
from immutables import Map

from events import PortOwner
from projections import (
    FoldState,
    Held,
    HostPorts,
    Lacking,
    PortBlock,
    PortRange,
    Resting,
    Unreadable,
    Want,
    choose,
    evolve,
    host_ports,
    reclaim,
    room,
)
from tests.property.logs import logs
from tests.support.fleet_builder import START

FIRST, LAST = 20000, 20023
PORTS = range(FIRST, LAST + 1)
COOLDOWN_S = 5.0
WHOLE = PortRange(FIRST, LAST)
KINDS = ("none", "none", "none", "held", "old", "old", "new", "unreadable")
CLAIMS = ("mine", "yours")
LIVES = ("now", "before", "other")
SEEDS = st.integers(0, 2**32)
NOWS = st.none() | st.just(START)


def state_of(kind, port, claim="yours", life="other"):
    """A port in a state that ``kind`` names, seen from ``START``."""
    where = {"host": "h", "port": port}
    ago = {"old": COOLDOWN_S, "new": COOLDOWN_S - 0.001}
    match kind:
        case "held":
            owner = PortOwner(namespace="n", worker_id="w", incarnation=life)
            return Held(
                **where,
                claim_id=claim,
                block_start=port,
                block_size=1,
                owner=owner,
                reason="",
                lease_ttl_s=5.0,
                since=START,
            )
        case "old" | "new":
            since = START - timedelta(seconds=ago[kind])
            return Resting(**where, claim_id=claim, cause="released", since=since)
        case "unreadable":
            return Unreadable(**where, since=START)


@st.composite
def tables(draw, kinds=KINDS):
    """A host's ports, and the kind of each."""
    each = {port: draw(st.sampled_from(kinds)) for port in PORTS}
    known = {port: state_of(kind, port) for port, kind in each.items()}
    ports = Map({port: state for port, state in known.items() if state is not None})
    return HostPorts(host="h", ports=ports), each


@st.composite
def ranges(draw):
    first = draw(st.integers(FIRST - 2, LAST - 1))
    return PortRange(first, draw(st.integers(first + 1, LAST + 2)))


@st.composite
def wishes(draw, within=None):
    there = draw(ranges()) if within is None else within
    return Want("", draw(st.integers(1, min(len(there), 6))), there)


def free_ports(each, now, cooldown_s, shunned):
    """The ports that may be had, counted by hand."""
    rested = {"none", "old"} if now is not None else {"none"}
    rested |= {"old", "new"} if cooldown_s == 0 else set()
    known = {port for port, kind in each.items() if kind in rested}
    beyond = {FIRST - 2, FIRST - 1, LAST + 1, LAST + 2}
    return (known | beyond) - shunned


def resting_ports(each, free, shunned):
    asleep = {port for port, kind in each.items() if kind in {"old", "new"}}
    return asleep - free - shunned


def longest_run(ports):
    return max((run_from(first, ports) for first in ports), default=0)


def run_from(first, ports):
    length = 0
    while first + length in ports:
        length += 1
    return length


def fits_somehow(wants, free):
    """Whether there are places for all, by trying every one."""
    if not wants:
        return True
    size, within = wants[0].size, wants[0].within
    for start in range(within.first, within.last - size + 2):
        block = set(range(start, start + size))
        if block <= free and fits_somehow(wants[1:], free - block):
            return True
    return False


SHUNNED = st.sets(st.sampled_from(PORTS), max_size=4)
COOLDOWNS = st.sampled_from([COOLDOWN_S, 0.0])


@given(tables(), st.lists(wishes(), max_size=4), NOWS, COOLDOWNS, SHUNNED, SEEDS)
def test_blocks_are_free_whole_apart_and_in_their_ranges(
    table, wants, now, cooldown_s, shunned, seed
):
    known, each = table
    chance = random.Random(seed)
    given_out = choose(
        known, wants, now=now, cooldown_s=cooldown_s, shunned=shunned, chance=chance
    )
    if isinstance(given_out, Lacking):
        return
    assert len(given_out) == len(wants)
    left = free_ports(each, now, cooldown_s, shunned)
    for start, want in zip(given_out, wants, strict=True):
        block = set(range(start, start + want.size))
        assert min(block) in want.within
        assert max(block) in want.within
        assert block <= left
        left -= block


@given(tables(), wishes(), NOWS, COOLDOWNS, SHUNNED, SEEDS)
def test_a_block_is_refused_only_if_there_is_none_and_with_the_right_numbers(
    table, want, now, cooldown_s, shunned, seed
):
    known, each = table
    chance = random.Random(seed)
    free = free_ports(each, now, cooldown_s, shunned)
    there = set(range(want.within.first, want.within.last + 1))
    longest = longest_run(free & there)
    resting = len(resting_ports(each, free, shunned) & there)
    found = choose(
        known, [want], now=now, cooldown_s=cooldown_s, shunned=shunned, chance=chance
    )
    assert isinstance(found, Lacking) == (longest < want.size)
    if isinstance(found, Lacking):
        counted = (found.wanted, found.free, found.largest_hole, found.resting)
        assert counted == (want.size, len(free & there), longest, resting)
    space = room(known, want.within, now=now, cooldown_s=cooldown_s, shunned=shunned)
    counted = (space.free, space.largest_hole, space.resting)
    assert counted == (len(free & there), longest, resting)


@given(tables(), st.lists(wishes(WHOLE), min_size=2, max_size=4), SEEDS)
def test_several_blocks_of_one_range_are_refused_only_if_they_fit_in_no_way(
    table, wants, seed
):
    known, each = table
    chance = random.Random(seed)
    found = choose(known, wants, now=START, cooldown_s=5, shunned=set(), chance=chance)
    free = free_ports(each, START, 5, set()) & set(PORTS)
    assert isinstance(found, Lacking) == (not fits_somehow(wants, free))
    if isinstance(found, Lacking):
        assert found.largest_hole < found.wanted
        assert found.free <= len(free)


@given(st.integers(1, 24), st.integers(1, 200), SEEDS)
def test_equal_claims_fill_a_range_as_far_as_the_grid_goes(size, more, seed):
    within = PortRange(FIRST, FIRST + size + more - 1)
    known, chance, taken = HostPorts(host="h"), random.Random(seed), set()
    for _ in range(len(within) // size):
        (start,) = choose(
            known,
            [Want("", size, within)],
            now=None,
            cooldown_s=5,
            shunned=taken,
            chance=chance,
        )
        assert (start - FIRST) % size == 0
        assert not taken & set(range(start, start + size))
        taken |= set(range(start, start + size))


@given(st.lists(st.integers(1, 9), min_size=5, max_size=40), SEEDS)
def test_mixed_claims_never_overlap_and_stop_only_where_nothing_fits(sizes, seed):
    chance, free = random.Random(seed), set(PORTS)
    for size in sizes:
        found = choose(
            HostPorts(host="h"),
            [Want("", size, WHOLE)],
            now=None,
            cooldown_s=5,
            shunned=set(PORTS) - free,
            chance=chance,
        )
        if isinstance(found, Lacking):
            assert longest_run(free) < size
            continue
        block = set(range(found[0], found[0] + size))
        assert block <= free
        free -= block


@given(tables(), SEEDS)
def test_equal_chances_choose_alike(table, seed):
    known, _ = table
    wants = [Want("", 2, WHOLE), Want("", 1, WHOLE)]
    one, two = (
        choose(
            known,
            wants,
            now=START,
            cooldown_s=5,
            shunned=set(),
            chance=random.Random(seed),
        )
        for _ in "ab"
    )
    assert one == two


@given(st.data(), NOWS, COOLDOWNS)
def test_what_is_claimed_again_is_one_s_own_or_free(data, now, cooldown_s):
    kinds, claims, lives = (
        data.draw(st.lists(st.sampled_from(names), min_size=6, max_size=6))
        for names in (KINDS, CLAIMS, LIVES)
    )
    ports = range(FIRST, FIRST + 6)
    each = dict(zip(ports, zip(kinds, claims, lives, strict=True), strict=True))
    states = {port: state_of(k, port, c, life) for port, (k, c, life) in each.items()}
    known = HostPorts(
        host="h",
        ports=Map({port: s for port, s in states.items() if s is not None}),
        revisions=Map({port: port - FIRST + 7 for port in ports if states[port]}),
    )
    blocks = [PortBlock("h", FIRST, 2, "mine"), PortBlock("h", FIRST + 2, 4, "mine")]
    found = reclaim(
        known,
        blocks,
        incarnation="now",
        earlier=["before"],
        now=now,
        cooldown_s=cooldown_s,
    )
    free = free_ports({p: k for p, (k, _, _) in each.items()}, now, cooldown_s, set())
    for port, (kind, claim, life) in each.items():
        asleep = kind in {"old", "new"}
        right = {
            "claims": port in free or (asleep and claim == "mine"),
            "resting": asleep and port not in free and claim != "mine",
            "held": kind == "held" and (claim, life) == ("mine", "now"),
            "waiting": kind == "held" and life == "before",
        }
        right["taken"] = not any(right.values())
        expected = known.expected(port)
        assert ((port, expected) in found.claims) == right["claims"]
        for name in ("resting", "held", "waiting", "taken"):
            assert (port in getattr(found, name)) == right[name]


@given(logs())
def test_what_is_known_of_each_host_is_its_part_of_the_fold(log):
    hosts = {"h1", "10.0.0.2", "unheard of"}
    state = FoldState()
    known = {host: HostPorts(host=host) for host in sorted(hosts)}
    for record in log:
        state = evolve(state, record)
        for host in hosts:
            known[host] = known[host].after(record)
    for host in hosts:
        whole = host_ports(state.ports, host)
        assert known[host].ports == whole.ports
        assert known[host].revisions == whole.revisions
