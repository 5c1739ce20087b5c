"""The oracle and the product's own projectors agree, also when history is lost.

Two projector cores, any interleaving: publishes land late or lose their answer, the
log and the view stream lose their tails, foreign messages stand in the way. All that
the cores store, say and snapshot must pass; what a fault makes of it must not.
"""

import random
from contextlib import suppress

import msgspec
import pytest
from hypothesis import given as arbitrary
from hypothesis import settings
from hypothesis import strategies as st

from controlplane.projector.core import Core, Limits
from controlplane.projector.effects import Publish, SayHead, TakeSnapshot
from controlplane.projector.finding import _mismatch
from controlplane.projector.line import DeltaLine
from controlplane.projector.memory import remember
from projections import restore
from tests.property.test_projectors import MAKERS
from tests.simulation.history import Histories
from tests.simulation.outcome import Violation
from tests.simulation.views import Views
from tests.support.fleet_builder import forked, given, registered
from tests.support.projecting import (
    LOG_ID,
    Bench,
    ViewList,
    find_in,
    log_state,
    record_at,
)

LIMITS = Limits(publish_batch_max=3, snapshot_every=7)


class ToldViewList(ViewList):
    """A view stream of which the oracle is told."""

    def __init__(self, views):
        super().__init__()
        self.views = views

    def store(self, payloads, after):
        last = super().store(payloads, after)
        for number, payload in enumerate(payloads if last is not None else ()):
            self.views.view_stored(after + 1 + number, payload)
        return last

    def plant(self):
        self.payloads.append(b"foreign")
        self.views.view_planted(self.last)

    def lose(self, last):
        del self.payloads[last:]
        self.views.view_truncated(last)
        self.first = min(self.first, last + 1)

    def trim(self, up_to):
        super().trim(up_to)
        self.views.view_trimmed(self.first)


class ToldBench(Bench):
    """A projector whose every word is checked; it notices a fork when it is told."""

    blind = False

    def do(self, effects):
        effects = list(effects)
        self.views._histories.check_fold(self.name, LOG_ID, self.core.fold)
        for effect in effects:
            match effect:
                case SayHead(head):
                    self.views.check_head(head)
                case TakeSnapshot(snapshot):
                    self.views.check_snapshot(snapshot)
        super().do(effects)

    @property
    def views(self):
        return self.view.views

    def tick(self, s=0.5):
        self.now += s
        self.do(self.core.tick(self.now, "server"))

    def read_log(self, count=None):
        if not self.blind:
            super().read_log(count)

    def read_view(self, count=None):
        if self.view.last < self.read_to:
            self.begin()  # the follower of the stream says so
        super().read_view(count)

    def lose_contact(self):
        """The broker went away and came back: what was on its way is lost with it."""
        self.limbo = []
        while self.take(Publish) is not None:
            self.do(self.core.publish_failed())
        self.do(self.core.contact_lost())

    def begin(self, found=None):
        """As the service does: what it stood on is compared with what is there."""
        snapshot, core = (self.snapshots or [None])[-1], getattr(self, "core", None)
        other = {}
        if core is not None:
            self.remembered = remember(core, self.remembered)
            other["remembered"] = self.remembered
            other["remembered_record"] = record_at(
                self.records, self.remembered.revision
            )
        if snapshot is not None:
            state = restore(snapshot, frozenset())
            problem = _mismatch(
                snapshot.position,
                state,
                record_at(self.records, state.revision),
                log_state(self.records),
            )
            if problem is not None:
                other |= {"snapshot": None, "snapshot_problem": problem}
        self.blind = False
        found = found or find_in(self.records, self.view, snapshot, **other)
        return super().begin(found)

    remembered = None


class World:
    def __init__(self, seed, faults=("plant", "lose_view", "lose_log", "trim")):
        self.faults = faults
        self.random = random.Random(seed)
        self.histories = Histories()
        self.histories.log_created(LOG_ID)
        self.story, self.branches = given(), 0
        self.records = []
        self.append(registered("w0"))
        self.view = ToldViewList(Views(self.histories))
        snapshots = []
        self.benches = [
            ToldBench(
                self.records, self.view, name=n, limits=LIMITS, snapshots=snapshots
            )
            for n in "ab"
        ]

    def append(self, step):
        self.story = self.story.then(step)
        if len(self.story) > len(self.records):
            self.records.append(self.story[-1])
            with suppress(Violation):  # arbitrary logs are mostly not lawful
                self.histories.log_stored(self.story[-1])
            assert not [v for v in self.histories.violations if v.invariant == "fold"]

    def plant(self):
        self.view.plant()

    def trim(self):
        snapshots = self.benches[0].snapshots
        if snapshots:
            at = snapshots[-1].position
            self.view.trim(self.random.randint(0, at.view_seq + 1))

    def lose_log(self):
        self.branches += 1
        last = max(0, len(self.records) - self.random.randint(1, 6))
        del self.records[last:]
        shorter = given()
        shorter.records = self.story.records[:last]
        shorter.payloads = self.story.payloads[:last]
        shorter.now, shorter.lives = self.story.now, dict(self.story.lives)
        self.story = shorter.then(forked(str(self.branches)))
        self.histories.log_truncated(last)
        for bench in self.benches:
            bench.blind = True
        if "lose_view" in self.faults and self.random.random() < 0.5:
            self.lose_view()
        else:
            for bench in self.benches:
                bench.lose_contact()

    def lose_view(self):
        self.view.lose(max(0, self.view.last - self.random.randint(1, 6)))
        for bench in self.benches:
            bench.lose_contact()

    def happen(self):  # noqa: C901 - a die has many sides
        bench = self.random.choice(self.benches)
        few = self.random.randint(1, 4)
        chance = self.random.random()
        match self.random.randrange(24):
            case 0 | 1 | 2 | 12 | 13:
                make = self.random.choice(MAKERS)
                self.append(make(self.random.choice(["w0", "w1", "w2"])))
            case 3 | 14 | 15:
                bench.read_log(few)
            case 4 | 16 | 17:
                bench.read_view(few)
            case 5:
                bench.win()
            case 6 if chance < 0.5:
                bench.lose()
            case 7 | 18 | 19 | 20 | 21:
                bench.answer(late=chance < 0.1)
            case 8:
                bench.answer(lose_answer=chance < 0.3)
            case 9:
                bench.land()
            case 10 if chance < 0.1 or bench.blind:
                bench.begin()
            case 11 if chance < 0.25:
                getattr(self, self.random.choice(self.faults))()
            case _:
                bench.tick(0.1)

    def come_to_rest(self):
        for bench in self.benches:
            bench.land()
            bench.lose()
            bench.begin()
            bench.settle()
        self.benches[0].win()
        for _ in range(3):
            for bench in self.benches:
                bench.settle()
                bench.tick(2.0)

    def run(self):
        for _ in range(self.random.randint(50, 400)):
            self.happen()
        self.come_to_rest()
        assert self.view.views.missing() == []


@settings(max_examples=40)
@arbitrary(st.integers(0, 2**32))
def test_the_projectors_of_the_product_pass(seed):
    World(seed, ("plant", "trim")).run()


LOSSES = [
    ("lose_log", "trim"),
    ("lose_view",),
    ("lose_view", "trim"),
    ("lose_log", "lose_view", "trim"),
    ("plant", "lose_view", "lose_log", "trim"),
]
FAILED = [133, 138, 391, 709, 1129, 1729, 1855]
"""They found: an epoch begun on lost records and joined by others; a tail of the view
stream that grew again and passed the fence; older epochs gone on with."""


@pytest.mark.parametrize("faults", LOSSES, ids="+".join)
def test_they_pass_when_history_is_lost(faults):
    for seed in [*range(80), *FAILED]:
        World(seed, faults).run()


def publishes_one_ordinal_further(patch):
    stored = DeltaLine.stored
    patch(DeltaLine, "stored", lambda line, last: stored(line, last + 1))


def says_a_revision_of_later(patch):
    say = Core._head

    def head_of(core, now):
        head = say(core, now)
        return msgspec.structs.replace(head, revision=head.revision + 1)

    patch(Core, "_head", head_of)


def counts_the_clock_into_a_delta(patch):
    add = DeltaLine.add

    def add_more(line, state, changes, now):
        add(line, state, changes[:1] if now > 1.0 else changes, now)

    patch(DeltaLine, "add", add_more)


@pytest.mark.parametrize(
    ("fault", "invariants"),
    [
        (publishes_one_ordinal_further, {"view", "head", "snapshot"}),
        (says_a_revision_of_later, {"head"}),
        (counts_the_clock_into_a_delta, {"view"}),
    ],
)
def test_a_projector_with_a_fault_does_not(fault, invariants, monkeypatch):
    fault(monkeypatch.setattr)
    caught = set()
    for seed in range(20):
        try:
            World(seed, ("trim",)).run()
        except (Violation, AssertionError) as error:
            caught.add(getattr(error, "invariant", ""))
    assert caught & invariants
