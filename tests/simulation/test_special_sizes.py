"""The plans that are about sizes come to the sizes that they are about."""

from collections import Counter
from random import Random

import msgspec
import pytest

from controlplane.settings import STREAM_BYTES_MIN
from controlplane.viewfeed import ViewFeed
from projections import SnapshotUnusableError
from tests.simulation.doing import NAMES
from tests.simulation.loop import PROCESS
from tests.simulation.mutating import Patch
from tests.simulation.plan import (
    LABEL_BYTES,
    PLAN_DECODER,
    Crash,
    Enter,
    Plan,
    TrimView,
)
from tests.simulation.running import BadInputError, collected_afterwards
from tests.simulation.seeds import plan_in
from tests.simulation.special import name_of, numbers_of, plan_of
from tests.simulation.special_sizes import FULL, large_fleet, large_talk
from tests.simulation.world import World, folder_of_a_run

ROUTERS = ("r1", "r2", "r3")
FULL_VIEWS = numbers_of("full-view", "full-view-leaders")
MANY_CHUNKS = numbers_of("many-chunks")
GONE = numbers_of("chunks-gone")
REPLACED = numbers_of("chunks-replaced")


class Seen(World):
    """A world that notes what becomes of view stream and snapshots."""

    def __init__(self, plan, folder):
        super().__init__(plan, folder)
        self.chunks = Counter()
        """How many chunks of each snapshot were ever stored."""
        self.pointed = {}
        """How many chunks each snapshot has that was ever pointed to."""
        self.view_first = {}
        """The view stream's first sequence, by the time at which it changed."""
        self.reached = 0
        """The view sequence of the snapshot that is pointed to."""
        self.behind_at = []
        """When the view stream began after what the snapshot reaches."""
        self.read, self.unusable = Counter(), Counter()
        """How often each process read a snapshot, or could not."""

    def noting(self, stored):
        def note(stream, message):
            stored(stream, message)
            if stream == NAMES.view_stream:
                first = self.view.state().first_sequence
                self.view_first[self.loop.time()] = first
                if first - 1 > self.reached:
                    self.behind_at.append(self.loop.time())
            elif message.subject == NAMES.snapshot_pointer:
                pointer = msgspec.json.decode(message.payload)
                self.pointed[pointer["snapshot_id"]] = pointer["chunks"]
                self.reached = (
                    pointer["position"]["base"] + pointer["position"]["ordinal"]
                )
            elif stream == NAMES.snapshot_stream:
                self.chunks[message.subject.split(".")[3]] += 1

        return note

    def counting(self, read_snapshot):
        async def read(feed, pointer):
            who = PROCESS.get().name
            try:
                snapshot = await read_snapshot(feed, pointer)
            except SnapshotUnusableError:
                self.unusable[who] += 1
                raise
            self.read[who] += 1
            return snapshot

        return read

    @property
    def view(self):
        return self.server.held(NAMES.view_stream)

    @property
    def unfinished(self):
        """Snapshots of which some was written, and never pointed to."""
        return [each for each in self.chunks if each not in self.pointed]


def seen_in(plan):
    """The world of a plan after its run, in which all held."""
    with folder_of_a_run() as folder, collected_afterwards():
        world = Seen(plan, folder)
        world.watch.stored = world.noting(world.watch.stored)
        with Patch(ViewFeed, "read_snapshot", world.counting).applied():
            world.run()
    return world


def seen(number):
    """The same of a special plan."""
    return seen_in(plan_of(number))


def of_routers(counts):
    return sum(counts[name] for name in ROUTERS)


@pytest.mark.parametrize("number", FULL_VIEWS, ids=name_of)
def test_the_view_stream_is_trimmed_by_its_bytes(number):
    plan = plan_of(number)
    assert not any(isinstance(step, TrimView) for step in plan.steps)
    assert plan.pace.view_max_age_s > plan.end_s
    world = seen(number)
    assert world.view.state().bytes <= FULL.view_max_bytes == STREAM_BYTES_MIN
    firsts = list(world.view_first.values())
    assert firsts == sorted(firsts)
    assert firsts[-1] > 60
    whole = max(at_s for at_s, first in world.view_first.items() if first == 1)
    restarts = [
        step for step in plan.steps if isinstance(step, Crash) and step.at_s > whole
    ]
    assert restarts, "nobody began when the stream had no beginning any more"
    assert len(world.pointed) > 4, "snapshots go by bytes"


def test_a_snapshot_is_there_before_the_full_view_reaches_the_last_one():
    """With nothing wrong; otherwise it may be late, and is written as soon as seen."""
    steps = (*large_fleet(), *large_talk(Random(1), 10.0, 60.0, 0.4))
    world = seen_in(Plan(seed=1, steps=steps, faults_end_s=61.0, end_s=75.0, pace=FULL))
    assert world.view.state().first_sequence > 60
    assert world.behind_at == []
    assert 4 < len(world.pointed) < 10


def test_routers_that_the_full_view_outran_go_on_from_a_snapshot():
    world = seen(FULL_VIEWS[2])
    assert all(world.read[name] > 1 for name in ("r2", "r3"))


@pytest.mark.parametrize("number", MANY_CHUNKS, ids=name_of)
def test_leaders_die_amid_the_chunks_of_a_snapshot_and_those_do_not_stay(number):
    world = seen(number)
    assert min(world.pointed.values()) >= 2
    assert max(world.pointed.values()) > 8, "more than are read at once"
    broken_off = [world.chunks[each] for each in world.unfinished]
    assert broken_off
    assert any(count < max(world.pointed.values()) for count in broken_off)
    stream = world.server.held(NAMES.snapshot_stream)
    held = stream.between(0, stream.last_sequence, None)
    chunks = [m.subject for m in held if m.subject != NAMES.snapshot_pointer]
    assert len({subject.split(".")[3] for subject in chunks}) == 2


@pytest.mark.parametrize("number", GONE, ids=name_of)
def test_projectors_and_routers_come_upon_spoilt_chunks(number):
    world = seen(number)
    crashes = {step.process for step in plan_of(number).steps if type(step) is Crash}
    assert bool(world.unusable["p1"]) is ("p1" in crashes)
    assert of_routers(world.unusable)


@pytest.mark.parametrize("number", REPLACED, ids=name_of)
def test_snapshots_go_while_a_router_reads_them(number):
    world = seen(number)
    assert of_routers(world.unusable)
    assert not world.unfinished


def test_a_worker_has_no_more_labels_than_a_worker_can_have(tmp_path):
    plan = plan_of(FULL_VIEWS[0])
    assert any(
        isinstance(step, Enter) and step.label_bytes == LABEL_BYTES
        for step in plan.steps
    )
    written = msgspec.json.encode(plan)
    assert PLAN_DECODER.decode(written) == plan
    larger = tmp_path / "larger.json"
    larger.write_bytes(written.replace(b"%d" % LABEL_BYTES, b"%d" % (LABEL_BYTES + 1)))
    with pytest.raises(BadInputError, match="label_bytes is 16385; 0 to 16384 can be"):
        plan_in(larger)
