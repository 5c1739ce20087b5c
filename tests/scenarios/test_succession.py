"""Who is in force when cohorts come and go in every order, wherever one looks.

The rule has one sentence: the oldest checksum of a WorkerSet that still has a worker is
in force. Here it is applied by hand to every order of arrival and departure, and the
fold record by record, the fold at once, a router that follows deltas and one that
starts from a snapshot must all say the same at every moment. Another namespace with
the same model and the same cards is not moved by any of it.
"""

from collections import Counter
from itertools import permutations, product

import pytest

from events import EVENT_TYPES, ModelCard, Record
from projections import (
    Epoch,
    FoldState,
    Position,
    apply,
    decode_snapshot,
    encode_snapshot,
    fold_all,
    restore,
    step,
    take,
)
from projections.readiness import meanings
from tests.support.fleet_builder import (
    MODEL,
    NAMESPACE,
    START,
    deregistered,
    expired,
    given,
    registered,
)

CARDS = {
    name: ModelCard(kv_block_size=size)
    for name, size in (("a", 8), ("b", 16), ("c", 32))
}
ONE_OF_EACH = list(permutations(["a1", "b1", "c1"]))
TWO_OF_TWO = list(permutations(["a1", "a2", "b1", "b2"]))
WORKERS = ["a1", "a2", "b1", "b2", "c1"]
"""The first letter is the card."""
ELSEWHERE = [
    registered(worker, namespace="other", card=CARDS[worker[0]])
    for worker in ("b1", "a1")
]
EPOCH = Epoch(count=1, fold_version=1, log_id="log", revision=0)


def came(worker, namespace=NAMESPACE):
    return registered(worker, namespace=namespace, card=CARDS[worker[0]])


def in_force(state, namespace):
    """The workers of the cohort in force, and so those that are routable."""
    found = [m for m in meanings(state, MODEL) if m.key.namespace == namespace]
    return {worker.worker_id for meaning in found for worker in meaning.routable}


class Present:
    """Who is there, by the rule alone: cohorts in order, and their workers."""

    def __init__(self):
        self.cohorts = []
        self.workers = set()

    def come(self, worker):
        if worker[0] not in self.cohorts:
            self.cohorts.append(worker[0])
        self.workers.add(worker)

    def go(self, worker):
        self.workers.discard(worker)
        if not any(other[0] == worker[0] for other in self.workers):
            self.cohorts.remove(worker[0])

    @property
    def routable(self):
        first = self.cohorts[:1]
        return {worker for worker in self.workers if [worker[0]] == first}


def everywhere(records):
    """The fleet after each record, as every kind of follower has it."""
    state, followed = FoldState(), FoldState().fleet_state
    for count, record in enumerate(records, 1):
        folded = step(state, record)
        state, followed = folded.state, apply(followed, folded.changes)
        place = Position(epoch=EPOCH, base=1, ordinal=count, delta_revision=count)
        payload = encode_snapshot(take(state, place))
        restarted = restore(decode_snapshot(payload), frozenset(EVENT_TYPES))
        yield {
            "fold": state.fleet_state,
            "router": followed,
            "at once": fold_all(FoldState(), records[:count]).fleet_state,
            "restarted": restarted.fleet_state,
        }


def check(order, goodbyes, go):
    """Workers come in one order and go in another; by hand and by everybody."""
    story = given(*ELSEWHERE, *map(came, order), *map(go, goodbyes))
    seen = list(everywhere(list(story)))[len(ELSEWHERE) :]
    by_hand = Present()
    moves = [(by_hand.come, w) for w in order] + [(by_hand.go, w) for w in goodbyes]
    for (move, worker), fleets in zip(moves, seen, strict=True):
        move(worker)
        assert {fleet.digest for fleet in fleets.values()} == {fleets["fold"].digest}
        for who, fleet in fleets.items():
            assert in_force(fleet, NAMESPACE) == by_hand.routable, (who, order)
            assert in_force(fleet, "other") == {"b1"}, (who, order)


@pytest.mark.parametrize("order", ONE_OF_EACH, ids="".join)
@pytest.mark.parametrize("goodbyes", ONE_OF_EACH, ids="".join)
def test_one_of_each_card_in_every_order(order, goodbyes):
    check(order, goodbyes, deregistered)


@pytest.mark.parametrize("goodbyes", TWO_OF_TWO, ids="".join)
def test_cohorts_of_two_go_in_every_order(goodbyes):
    check(["a1", "b1", "a2", "b2"], goodbyes, expired)


@pytest.mark.parametrize("back", ["a1", "b1"])
def test_who_comes_back_queues_behind(back):
    steps = [*map(came, ("a1", "b1", "c1")), deregistered(back), came(back)]
    rest = [deregistered(worker) for worker in ("a1", "b1", "c1") if worker != back]
    after = fold_all(FoldState(), given(*steps)).fleet_state
    assert in_force(after, NAMESPACE) == {"b1" if back == "a1" else "a1"}
    assert in_force(
        fold_all(FoldState(), given(*steps, *rest)).fleet_state, NAMESPACE
    ) == {back}


def at_one_time(*steps):
    """The fleet as if everything had been recorded at one moment."""
    records = [Record(r.revision, START, r.subject, r.event) for r in given(*steps)]
    return fold_all(FoldState(), records).fleet_state


def test_the_same_membership_is_the_same_state_from_every_order_of_arrival():
    """Only which card came first, second and third may tell orders apart."""
    digests = {}
    for order in permutations(WORKERS):
        cards = tuple(dict.fromkeys(worker[0] for worker in order))
        digests.setdefault(cards, set()).add(at_one_time(*map(came, order)).digest)
    assert Counter(map(len, digests.values())) == {1: 6}
    assert len(set.union(*digests.values())) == len(digests)


def test_who_came_and_went_in_between_leaves_no_trace():
    stays = [came(worker) for worker in ("a1", "b1")]
    plain = at_one_time(*stays).digest
    for first, second in product(range(3), repeat=2):
        passing = [came("c1"), deregistered("c1")]
        steps = [*stays]
        steps[min(first, 2) : min(first, 2)] = passing[:1]
        place = max(first, second) + 1
        steps[place:place] = passing[1:]
        known = at_one_time(*steps)
        assert known.digest == plain, (first, second)
