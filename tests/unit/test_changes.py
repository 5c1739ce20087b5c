"""What a reader of changes is told: coalesced, in a safe order, never too much."""

import asyncio

import msgspec
import pytest

from controlplane.router import changes as router_changes
from controlplane.router.changes import ChangeReader
from controlplane.router.planning import collected
from controlplane.router.showing import Showing
from events import Role
from projections import Fleet, FoldState, Registration, WorkerPut, build, diff, step
from tests.support.fleet_builder import (
    MODEL,
    NAMESPACE,
    deregistered,
    draining,
    given,
    held,
    loaded,
    registered,
    resumed,
    weighted,
)
from tests.support.view_line import ViewLine

PREFILL = registered("p", role=Role.PREFILL)
DECODE = [registered(f"d{n}", role=Role.DECODE, needs=[["prefill"]]) for n in range(2)]


class Follower:
    """A reader, and the fleet that it is told of."""

    def __init__(self, *steps, visible=None):
        self.visible = visible
        self.steps = list(steps)
        self.state = FoldState()
        for record in given(*steps):
            self.state = step(self.state, record).state
        self.reader = ChangeReader(fleet := self.fleet, fleet)

    @property
    def fleet(self):
        fleet, revision = self.state.fleet_state, self.state.revision
        return Fleet(fleet, revision=revision, visible=self.visible)

    def then(self, *steps):
        self.steps += steps
        for record in given(*self.steps)[self.state.revision :]:
            folded = step(self.state, record)
            self.state = folded.state
            if folded.changes:
                self.reader.moved(folded.changes, self.fleet)
        return self

    async def told(self):
        return await told(self.reader)


async def told(reader):
    """All that the reader says before it would wait, as (kind, id)."""
    found, changes = [], reader.read()
    while reader._moved.is_set() or found:
        try:
            async with asyncio.timeout(0.01):
                change = await anext(changes)
        except TimeoutError:
            break
        found.append(change)
    await changes.aclose()
    return [(c.kind, (c.worker or c.before).worker_id) for c in found]


async def test_a_resync_is_a_diff():
    """S32: B leaves, C changes, D joins while it is cut off; A is not mentioned."""
    before = Follower(*(registered(w) for w in "ABC"))
    after = Follower(*(registered(w) for w in "AC"), draining("C"), registered("D"))
    before.reader.moved(None, after.fleet)
    assert await before.told() == [("removed", "B"), ("changed", "C"), ("added", "D")]


def many(count):
    (record,) = given(registered("w0"))
    put = step(FoldState(), record).changes
    first = next(p.worker for p in put if isinstance(p, WorkerPut))
    rest = [p for p in put if not isinstance(p, WorkerPut)]
    workers = [
        WorkerPut(msgspec.structs.replace(first, worker_id=f"w{n}"))
        for n in range(count)
    ]
    return build([*workers, *rest])


async def test_ten_thousand_unchanged_workers_are_no_news(monkeypatch):
    before, after = Fleet(many(10_000)), Fleet(many(10_000))
    assert diff(before.state, after.state) == ()
    looked = []
    monkeypatch.setattr(Fleet, "worker", lambda *who: looked.append(who))
    reader = ChangeReader(before, before)
    reader.moved(None, after)
    assert await told(reader) == []
    assert not looked


async def test_only_the_one_that_differs_is_looked_at(monkeypatch):
    before = Fleet(many(10_000))
    old: Registration = before.state.workers[NAMESPACE, "w17"]
    new = msgspec.structs.replace(old, address="http://elsewhere:1")
    others = (p for p in before.state.entities() if p != WorkerPut(old))
    after = Fleet(build([*others, WorkerPut(new)]))
    reader = ChangeReader(before, before)
    reader.moved(None, after)
    assert await told(reader) == [("changed", "w17")]


@pytest.mark.parametrize(
    ("before", "steps", "expected"),
    [
        ([registered("a")], [draining("a"), registered("a")], [("changed", "a")]),
        ([], [registered("a"), deregistered("a")], []),
        ([registered("a"), held("a")], [resumed("a")], [("changed", "a")]),
        ([registered("a")], [held("a")], [("changed", "a")]),
        ([registered("a")], [held("a"), resumed("a")], []),
        ([registered("a")], [weighted(0)], [("changed", "a")]),
        ([registered("a")], [weighted(0.5)], []),
        ([registered("a")], [loaded("a", "sql")], [("changed", "a")]),
        (
            [PREFILL, *DECODE],
            [deregistered("p")],
            [("removed", "p"), ("changed", "d0"), ("changed", "d1")],
        ),
        (
            DECODE,
            [PREFILL],
            [("changed", "d0"), ("changed", "d1"), ("added", "p")],
        ),
    ],
)
async def test_changes_are_coalesced_and_say_what_looks_different(
    before, steps, expected
):
    assert await Follower(*before).then(*steps).told() == expected


async def test_a_lens_tells_of_what_it_shows():
    follower = Follower(registered("a"), visible=lambda name: name == NAMESPACE)
    follower.then(registered("b", namespace="other"), registered("c"))
    assert await follower.told() == [("added", "c")]


async def test_a_slow_reader_of_a_churning_fleet_keeps_no_more_than_the_fleet(
    monkeypatch,
):
    monkeypatch.setattr(router_changes, "TOUCHED_MIN", 8)
    follower = Follower(registered("a"))
    for n in range(50):
        follower.then(registered(f"x{n}"), deregistered(f"x{n}"))
        assert len(follower.reader._touched.workers) <= 9
    follower.then(registered("b"))
    assert await follower.told() == [("added", "b")]


async def test_a_reader_ends_with_its_view():
    ended = []
    fleet = Fleet()
    reader = ChangeReader(fleet, fleet, lambda: bool(ended))
    reading = asyncio.ensure_future(anext(reader.read()))
    await asyncio.sleep(0)
    ended.append(True)
    reader.wake()
    with pytest.raises(StopAsyncIteration):
        await reading


# ---- what is kept from fleet to fleet ----------------------------------------------
def shown(*stories):
    """The fleets of a growing story, as one router shows them, sets looked at."""
    showing, line, fleets = Showing("default", None), ViewLine(), []
    line.begin()
    replica = line.replica()
    for story in stories:
        replica, _ = collected(replica, line.publish(story))
        fleet = showing.fleet(replica)
        fleet.sets(MODEL)
        fleet.sets("qwen")
        fleets.append(fleet)
    return fleets


def test_what_was_worked_out_for_other_models_is_kept():
    story = given(registered("a"), registered("q", model="qwen"))
    old, new = shown(story, story.then(registered("b")))
    assert new.sets("qwen") is old.sets("qwen")
    assert new.sets(MODEL) is not old.sets(MODEL)


def test_a_setting_may_concern_every_model():
    story = given(registered("a"), registered("q", model="qwen"))
    old, new = shown(story, story.then(weighted(0, model="*")))
    assert old.worker(NAMESPACE, "q").routable
    assert not new.worker(NAMESPACE, "q").routable
    assert new.worker(NAMESPACE, "q").blockers == ("weight_zero",)


def test_the_same_place_is_the_same_fleet():
    showing, line = Showing("default", None), ViewLine()
    line.publish(given(registered("a")))
    replica = line.replica()
    assert showing.fleet(replica) is showing.fleet(replica)
    assert showing.fleet(None) is showing.empty
