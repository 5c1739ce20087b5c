"""Folding many records at once is folding them one by one, for less."""

from hypothesis import given as examples
from hypothesis import strategies as st

from events import EVENT_TYPES, ModelCard, Role
from projections import (
    Folding,
    FoldState,
    Position,
    decode_snapshot,
    encode_snapshot,
    evolve,
    fold_all,
    restore,
    take,
)
from projections.delta import Epoch
from tests.property.invariants import check_state
from tests.property.logs import logs
from tests.support.fleet_builder import (
    claimed,
    deregistered,
    draining,
    expired,
    given,
    loaded,
    registered,
    released,
    unloaded,
)

EPOCH = Epoch(count=1, fold_version=1, log_id="log-a", revision=0)
PLACE = Position(epoch=EPOCH, base=1, ordinal=1, delta_revision=1)
WORKERS = st.sampled_from(["w1", "w2", "w3", "w4"])
CARDS = st.sampled_from([ModelCard(kv_block_size=size) for size in (16, 32, 64)])
ARRIVALS = st.builds(
    registered,
    WORKERS,
    card=CARDS,
    role=st.sampled_from([Role.AGGREGATED] * 3 + [Role.DECODE]),
    life=st.sampled_from([None, None, 1]),
    adapters=st.sampled_from([(), ("sql",), ("sql", "chat")]),
)
DEPARTURES = st.builds(deregistered, WORKERS) | st.builds(expired, WORKERS)
OTHERS = (
    st.builds(draining, WORKERS)
    | st.builds(loaded, WORKERS, st.just("chat"))
    | st.builds(unloaded, WORKERS, st.just("sql"))
)
CROWDS = st.lists(ARRIVALS | ARRIVALS | DEPARTURES | OTHERS, min_size=8, max_size=30)
"""Few ids and three cards in one WorkerSet: cohorts come, wait, take over and go."""


HOLDERS = (
    st.builds(claimed, WORKERS, st.integers(20000, 20003), st.integers(1, 3))
    | st.builds(claimed, WORKERS, st.integers(20000, 20003), lease_ttl_s=st.just(60.0))
    | st.builds(released, st.integers(20000, 20003), st.integers(1, 3))
)
HOLDING = st.lists(HOLDERS | HOLDERS | ARRIVALS | DEPARTURES, min_size=6, max_size=30)
"""Lives that claim before and after they register, and outlive that with ports."""


@examples(HOLDING, st.data())
def test_lives_with_ports_at_once_are_the_same_as_one_by_one(steps, data):
    log = given(*steps).records
    states = [FoldState()]
    for record in log:
        states.append(evolve(states[-1], record))
    start = data.draw(st.integers(0, len(log)), "from")
    at_once = fold_all(states[start], log[start:])
    check_state(at_once)
    assert at_once == states[-1]


@examples(logs() | CROWDS.map(lambda steps: given(*steps)), st.data())
def test_many_records_at_once_are_the_same_as_one_by_one(log, data):
    states = [FoldState()]
    for record in log:
        states.append(evolve(states[-1], record))
    start = data.draw(st.integers(0, len(log)), "from")
    end = data.draw(st.integers(start, len(log)), "to")
    before = encode_snapshot(take(states[start], PLACE))
    at_once = fold_all(states[start], log[start:end])
    check_state(at_once)
    assert at_once == states[end]
    assert encode_snapshot(take(states[start], PLACE)) == before, "it stays as it was"


@examples(logs() | CROWDS.map(lambda steps: given(*steps)), st.data())
def test_pieces_of_any_size_with_snapshots_between_are_the_whole(log, data):
    places = data.draw(st.lists(st.integers(0, len(log)), max_size=8), "cuts")
    restored = data.draw(st.sets(st.integers(0, len(places))), "restored after")
    whole, state, start = fold_all(FoldState(), log), FoldState(), 0
    for number, end in enumerate([*sorted(places), len(log)]):
        state = fold_all(state, log[start:end])
        if number in restored:
            payload = encode_snapshot(take(state, PLACE))
            state = restore(decode_snapshot(payload), frozenset(EVENT_TYPES))
        start = end
    assert state == whole
    assert state.fleet_state.digest == whole.fleet_state.digest
    assert state.ports.digest == whole.ports.digest
    assert encode_snapshot(take(state, PLACE)) == encode_snapshot(take(whole, PLACE))


@examples(CROWDS)
def test_what_came_and_went_leaves_nothing_behind(steps):
    """The memory of a long fold is bounded by what is there, not by the log."""
    folding = Folding(FoldState())
    for record in given(*steps):
        folding.add(record)
    workers, standing = set(folding._workers), set(folding._standing)
    sets, lives = set(folding._sets), set(folding._lives._now)
    state = folding.settled()
    assert workers == set(state.fleet_state.workers)
    assert lives == set(state.lives)
    assert sets == standing == {w.set_key for w in state.fleet_state.workers.values()}


@examples(CROWDS)
def test_a_crowd_at_once_is_the_crowd_one_by_one(steps):
    log, state = given(*steps), FoldState()
    for record in log:
        state = evolve(state, record)
    assert fold_all(FoldState(), log) == state
