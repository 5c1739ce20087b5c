"""Print all that logs come to, also as acts and orders: run with several hash seeds."""

import asyncio
import random
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from controlplane.broker import Outgoing
from controlplane.broker.memory import MemoryBroker, MemoryServer
from controlplane.projector.pages import group_workers
from controlplane.settings import Settings
from controlplane.topology import init
from controlplane.viewfeed import ViewFeed
from events import Record
from projections import (
    Fleet,
    FoldState,
    Guard,
    LeaseBook,
    ModelUnavailableError,
    Touched,
    Wanted,
    candidates,
    diff,
    fold_all,
    pick_in_turn,
    pick_weighted,
    step,
    worker_changes,
)
from tests.golden.files import delta_lines, meaning, snapshot_bytes
from tests.golden.stories import STORIES
from tests.support.fleet_builder import (
    Story,
    claimed,
    given,
    held,
    loaded,
    poison,
    registered,
    starting,
    weighted,
)


def crowd() -> Story:
    """Many workers of many sets, so that no order of a table is the sorted one."""
    return given(
        *(
            (registered if n % 3 else starting)(
                f"w{n}",
                namespace=f"ns{n % 5}",
                model=f"m{n % 2}",
                adapters=(f"a{n % 7}",),
                labels={f"l{i}": str(i) for i in range(n % 4)},
            )
            for n in range(60)
        )
    )


def busy() -> Story:
    """The same with ports, settings, adapters and what this version cannot read."""
    story = crowd()
    for n in range(0, 60, 4):
        story = story.then(claimed(f"w{n}", 20_000 + 8 * n, 5, namespace=f"ns{n % 5}"))
    for n in range(0, 60, 7):
        where = {"namespace": f"ns{n % 5}"}
        story = story.then(held(f"w{n}", **where), loaded(f"w{n}", "new", **where))
    for name in ("ns1", "ns3"):
        story = story.then(weighted(0.0, namespace=name, model="m1"))
    tags = (b'{"type":"later%d.v1"}' % n for n in range(9))
    return story.then(*(poison("log.worker.ns1.x", tag) for tag in tags))


def picks(fleet: Fleet) -> list[str]:
    """A hundred picks with a seed, and one of each candidate in turn."""
    rng = random.Random(7)
    found = candidates(fleet, Wanted(model="m1"))
    weighted = [pick_weighted(fleet, found, rng).worker_id for _ in range(100)]
    in_turn = [pick_in_turn(fleet, found, turn).worker_id for turn in range(30)]
    return [*weighted, *in_turn, *(w.worker_id for w in found.workers(fleet))]


def expired(state: FoldState) -> Iterator[object]:
    """Everybody falls silent: whom the judge names, in which order."""
    book = LeaseBook(Guard(least=1000))
    book.judge(state.lives, 0.0)
    book.canary_sent(100.0)
    book.canary_returned(100.0, 100.0)
    for overdue in book.judge(state.lives, 100.0).expire:
        yield overdue.life.key


def changed(before: FoldState, after: FoldState) -> Iterator[object]:
    """What differs: as a resync finds it, and as readers of changes hear it."""
    yield from diff(before.fleet_state, after.fleet_state)
    touched = Touched()
    touched.everything = True
    old, new = Fleet(before.fleet_state), Fleet(after.fleet_state)
    yield from worker_changes(old, new, touched)


def stepped(records: Sequence[Record]) -> Iterator[object]:
    """What readers hear of each record."""
    state = FoldState()
    for record in records:
        taken, before = step(state, record), Fleet(state.fleet_state)
        touched = Touched()
        touched.add(taken.changes, before)
        state = taken.state
        yield worker_changes(before, Fleet(state.fleet_state), touched)


def counted(state: FoldState) -> Iterator[object]:
    """Why nobody will do; how many there are of each kind."""
    fleet = Fleet(state.fleet_state)
    try:
        candidates(fleet, Wanted(model="m1", adapter="nobody has it"))
    except ModelUnavailableError as error:
        yield error
    grouped = group_workers(state.fleet_state)
    yield from (*grouped.workers.items(), *grouped.models.items())


class Purges(MemoryBroker):
    """Notes what is purged, in order."""

    def __init__(self, server: MemoryServer) -> None:
        super().__init__(server)
        self.purged: list[str | None] = []

    async def purge_stream(self, name: str, **what: Any) -> None:
        self.purged.append(what.get("subject"))
        await super().purge_stream(name, **what)


async def purged() -> list[str | None]:
    """The snapshots that are dropped when nothing is kept."""
    broker = Purges(MemoryServer())
    await broker.start()
    await init(broker, "c", Settings())
    feed = ViewFeed(broker, "c")
    for name in (f"id{n}" for n in range(20)):
        subject = feed.names.snapshot_chunk(name, 0)
        chunk = Outgoing(subject=subject, payload=b"")
        await broker.store(feed.names.snapshot_stream, chunk)
    await feed._drop_snapshots(set(), before=1000)
    await broker.stop()
    return broker.purged


if __name__ == "__main__":
    out = sys.stdout.buffer
    for story in (crowd(), *(tell() for tell in STORIES.values())):
        records = list(story)
        out.write(meaning(records) + snapshot_bytes(records) + delta_lines(records))
    few, many = fold_all(FoldState(), crowd()), fold_all(FoldState(), busy())
    fleet = Fleet(few.fleet_state)
    out.write(fleet.to_json().encode() + " ".join(picks(fleet)).encode())
    out.write(snapshot_bytes(list(busy())) + delta_lines(list(busy())))
    shown = [
        *expired(many),
        *changed(FoldState(), many),
        *changed(few, many),
        *changed(many, few),
        *stepped(list(busy())),
        *counted(many),
        *asyncio.run(purged()),
    ]
    out.write("\n".join(map(str, shown)).encode())
