"""Two projectors, any interleaving: the view stream is what the log alone says.

Leases come and go at any moment, publishes land late, are refused or lose their
answer, readers lag, terms begin anew, the stream is trimmed.
"""

import random

from hypothesis import given as arbitrary
from hypothesis import strategies as st

from controlplane.projector.core import Limits
from tests.support.deriving import check_view
from tests.support.fleet_builder import (
    claimed,
    deregistered,
    draining,
    expired,
    given,
    held,
    loaded,
    ready,
    registered,
    resumed,
    weighted,
)
from tests.support.projecting import Bench, ViewList

MAKERS = (
    registered,
    registered,
    ready,
    draining,
    deregistered,
    expired,
    held,
    resumed,
    lambda w: loaded(w, "lora"),
    lambda w: weighted(len(w) / 2, namespace=w),
    lambda w: claimed(w, 20000),
)
LIMITS = Limits(publish_batch_max=3, snapshot_every=7)


class World:
    def __init__(self, seed):
        self.random = random.Random(seed)
        self.story = given(registered("w0"))
        self.records = list(self.story)
        self.view = ViewList()
        snapshots = []
        self.benches = [
            Bench(self.records, self.view, name=n, limits=LIMITS, snapshots=snapshots)
            for n in "ab"
        ]
        self.every_entry = {}

    def append(self):
        make = self.random.choice(MAKERS)
        worker = self.random.choice(["w0", "w1", "w2"])
        self.story = self.story.then(make(worker))
        self.records.append(self.story[-1])

    def happen(self):  # noqa: C901 - a die has many sides
        bench = self.random.choice(self.benches)
        few = self.random.randint(1, 4)
        match self.random.randrange(12):
            case 0 | 1 | 2:
                self.append()
            case 3:
                bench.read_log(few)
            case 4:
                bench.read_view(few)
            case 5:
                bench.win()
            case 6 if self.random.random() < 0.5:
                bench.lose()
            case 7:
                bench.answer(late=self.random.random() < 0.3)
            case 8:
                bench.answer(lose_answer=self.random.random() < 0.3)
            case 9:
                bench.land()
            case 10 if self.random.random() < 0.1:
                bench.begin()
            case 11 if self.random.random() < 0.1 and self.benches[0].snapshots:
                self.keep()
                self.view.trim(self.random.randint(0, self.view.last + 1))
            case _:
                bench.tick(0.1)

    def keep(self):
        self.every_entry.update({e.view_seq: e for e in self.view.entries()})

    def come_to_rest(self):
        for bench in self.benches:
            bench.land()
            bench.lose()
            bench.settle()
        self.benches[0].win()
        for _ in range(3):
            for bench in self.benches:
                bench.settle()
        self.keep()


@arbitrary(st.integers(0, 2**32))
def test_any_two_projectors_publish_what_the_log_says(seed):
    world = World(seed)
    for _ in range(world.random.randint(20, 200)):
        world.happen()
    world.come_to_rest()
    entries = [world.every_entry[n] for n in sorted(world.every_entry)]
    check_view(world.records, entries)
    leader, follower = (bench.core for bench in world.benches)
    assert leader.fold.fleet_state == follower.fold.fleet_state
    assert leader.line.level
    for bench in world.benches:
        assert bench.alarms == []
    if follower.line.epoch is not None:
        assert follower.line.epoch == leader.line.epoch
        assert follower.line.published == leader.line.published
        assert not follower.line.pending
