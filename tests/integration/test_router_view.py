"""A router over a real server: synced, empty, stale, caught up, cut off, slow."""

import asyncio
import time
from collections import Counter

import pytest

from controlplane.errors import LogUnavailableError, SettingsError
from controlplane.namespaces import NamespaceFilter
from controlplane.presence import reports
from controlplane.router import client as router_client
from controlplane.settings import Settings
from controlplane.viewfeed import ViewFeed
from events import Status
from projections import ModelNotFoundError, ModelUnavailableError
from tests.support.proxy import Proxy
from tests.support.routers import (
    MODEL,
    Life,
    append_all,
    digests_of,
    view_of,
    writer_process,
)
from tests.support.waiting import eventually

PATIENCE_S = 20.0
"""For what has no bound of its own, on a busy machine."""


@pytest.fixture
async def projected(cell):
    """The same cell with a projector at work."""
    async with cell.service():
        yield cell


# ---- synced ------------------------------------------------------------------------
async def test_empty_is_an_answer_and_not_yet_synced_is_another(cell):
    """S31. Nobody has published a view yet: nobody knows that there is no worker."""
    async with view_of(cell) as view:
        with pytest.raises(TimeoutError):
            await view.synced(0.2)
        assert (view.source, view.revision, view.epoch) == ("none", 0, None)
        with pytest.raises(ModelUnavailableError) as caught:
            view.pick(MODEL)
        assert caught.value.reasons == {"not_synced": 1}
        async with cell.service():
            await view.synced(PATIENCE_S)
            assert view.source == "live"
            with pytest.raises(ModelNotFoundError):
                view.pick(MODEL)
            async with view_of(cell) as late:
                await late.synced(1)  # S31's bound; 5 ms when nothing else runs
                assert late.digest == view.digest == "0" * 32


async def test_only_deletions_are_an_answer_too(projected):
    """S11, S31: known with no workers, also for a router that never saw one."""
    life = Life("w1")
    await append_all(projected.log, [life.registers(), life.leaves()])
    async with view_of(projected) as view:
        await view.synced(1)
        assert view.revision == 2
        with pytest.raises(ModelUnavailableError):
            view.pick(MODEL)


async def test_synced_includes_everything_acknowledged_before(cell, processes):
    """S30, S33: 200 starts under four writers; each is the fold of a prefix.

    The writers together append 2,000 a second, and the projector is a process of its
    own: one that shared this event loop with 200 starts would measure their haste.
    """
    lives = [Life(f"w{n}") for n in range(100)]
    events = [life.registers() for life in lives]
    events += [lives[n % 100].toggles() for n in range(4900)]
    await append_all(cell.log, events)
    url, seen = cell.broker.url, []
    processes.projector(url, cell.cell, "pa", Settings())
    writer_process(processes, url, cell.cell, writers=4, per_s=2_000)
    await eventually(lambda: _beyond(cell, 5100), PATIENCE_S)
    async with view_of(cell, announce=False) as first:
        await first.synced(PATIENCE_S)
    started = time.monotonic()
    for _ in range(200):
        async with view_of(cell, announce=False) as view:
            acknowledged = (await cell.log.state()).last_revision
            await view.synced(PATIENCE_S)
            assert view.revision >= acknowledged
            seen.append((view.revision, view.digest))
    assert time.monotonic() - started < 90  # about 25 s when nothing else runs
    processes.clean_up()
    digests = await digests_of(cell.log)
    assert [digest for _, digest in seen] == [digests[at] for at, _ in seen]


async def _beyond(cell, revision):
    return (await cell.log.state()).last_revision > revision


async def test_waiting_ends_with_the_view(projected):
    view = await view_of(projected).start()
    await view.synced(PATIENCE_S)
    waiting = [
        asyncio.ensure_future(view.wait_for(99, None)),
        asyncio.ensure_future(anext(view.changes(initial=False))),
    ]
    await asyncio.sleep(0)
    await view.stop()
    async with asyncio.timeout(2):
        ended = await asyncio.gather(*waiting, return_exceptions=True)
    assert [type(error).__name__ for error in ended] == [
        "LogUnavailableError",
        "StopAsyncIteration",
    ]


async def test_a_view_that_does_not_run_has_no_changes_and_waits_for_nothing(projected):
    view = view_of(projected)
    await _ends_at_once(view)
    end = await append_all(projected.log, [Life("w1").registers()])
    async with view:
        await view.wait_for(end)
    await _ends_at_once(view)


async def _ends_at_once(view):
    async with asyncio.timeout(2):
        for initial in (True, False):
            assert [each async for each in view.changes(initial=initial)] == []
        with pytest.raises(LogUnavailableError, match="not running"):
            await view.wait_for(99, None)


@pytest.mark.parametrize("seconds", [0, -1.0, float("nan"), float("inf"), "x", True])
async def test_what_no_view_can_keep_is_refused_at_once(cell, tmp_path, seconds):
    with pytest.raises(SettingsError) as caught:
        view_of(cell, max_stale_s=seconds)
    assert caught.value.field == "max_stale_s"
    with pytest.raises(SettingsError) as caught:
        view_of(cell, checkpoint=tmp_path)
    assert caught.value.field == "checkpoint"
    place = tmp_path / "view"
    view = view_of(cell, checkpoint=place)
    place.mkdir()
    with pytest.raises(SettingsError):
        await view.start()
    assert list(tmp_path.rglob("*")) == [place]


class BrokenFeed(ViewFeed):
    """A view feed with a bug of ours in it."""

    async def state(self):
        raise RuntimeError("bug")


async def test_a_view_that_ended_by_a_fault_says_so(projected):
    feed = BrokenFeed(projected.broker, projected.cell)
    async with view_of(projected, feed=feed) as view:
        with pytest.raises(LogUnavailableError, match=r"ended: RuntimeError\('bug'\)"):
            await view.wait_for(1)
        assert isinstance(view.failure, RuntimeError)


async def test_a_view_can_be_stopped_and_started_again(projected):
    view = view_of(projected)
    for n in range(2):
        end = await append_all(projected.log, [Life(f"w{n}").registers()])
        async with view:
            await view.synced(PATIENCE_S)
            assert view.revision == end
    assert view.fleet.worker("prod", "w0") is not None


# ---- cut off -----------------------------------------------------------------------
async def test_silence_is_called_stale_and_quiet_is_not(
    projected, broker_factory, shared_nats_server
):
    """S29, S32: a black hole, changes meanwhile, and what is told afterwards."""
    lives = {name: Life(name) for name in "ABCD"}
    await append_all(projected.log, [lives[name].registers() for name in "ABC"])
    async with Proxy(shared_nats_server.port) as proxy:
        own = await broker_factory(proxy.url)
        async with view_of(projected, own, max_stale_s=3.0) as view:
            await view.synced(PATIENCE_S)
            told = view.changes(initial=False)
            # Quiet for three heads, in all of which it is never called stale: a head
            # comes each second; the rest is slack for a busy machine.
            stalest, until = 0.0, time.monotonic() + 3
            while time.monotonic() < until:
                stalest = max(stalest, view.stale_for_s)
                await asyncio.sleep(0.01)
            assert stalest < 2.5
            view.pick(MODEL)

            proxy.pause()
            await eventually(lambda: view.stale_for_s > 3.0, PATIENCE_S)
            with pytest.raises(ModelUnavailableError) as caught:
                view.pick(MODEL)
            assert caught.value.reasons == {"stale": 1}
            assert view.fleet.worker("prod", "B") is not None
            await eventually(lambda: not own.connected, 5)
            await append_all(
                projected.log,
                [
                    lives["D"].registers(),
                    lives["C"].says(Status.DRAINING),
                    lives["B"].leaves(),
                ],
            )
            proxy.resume()
            proxy.drop()
            await view.synced(PATIENCE_S)
            found = [await anext(told) for _ in range(3)]
            kinds = [(c.kind, (c.worker or c.before).worker_id) for c in found]
            assert kinds == [("removed", "B"), ("changed", "C"), ("added", "D")]
            await eventually(lambda: view.stale_for_s < 2.0, PATIENCE_S)
            view.pick(MODEL)
            name = view.name
    said = [
        report.reason
        for report in await reports(projected.broker, projected.names, name)
    ]
    assert said[0] == "resync: start"
    assert "contact lost" in said
    assert "resync: gap" in said
    assert said[-1] == "stopped"


async def test_ejections_are_reported_and_never_leave_the_process(projected):
    await append_all(projected.log, [Life(n).registers() for n in ("a", "b")])
    async with view_of(projected) as one, view_of(projected) as other:
        await one.synced(PATIENCE_S)
        await other.synced(PATIENCE_S)
        one.eject(one.fleet.worker("prod", "a"), 30)
        assert {one.pick(MODEL).worker_id for _ in range(50)} == {"b"}
        assert {other.pick(MODEL).worker_id for _ in range(50)} == {"a", "b"}

        async def reported():
            said = await reports(projected.broker, projected.names, one.name)
            return said if said and said[-1].reason == "ejected" else None

        said = await eventually(reported, PATIENCE_S)
        assert said[-1].ejected == ("prod/a",)
        assert said[-1].presence.digest == one.digest


# ---- slow readers ------------------------------------------------------------------
async def test_a_slow_reader_ends_where_a_fast_one_does(
    projected, processes, monkeypatch
):
    """S27: 200 ms in each callback, blocking; 1000 updates a second."""
    monkeypatch.setattr(router_client, "LIVE_MAX", 100)
    url = projected.broker.url
    writer = writer_process(processes, url, projected.cell, writers=4, per_s=1000)
    seen = {}
    async with view_of(projected) as view:
        await view.synced(PATIENCE_S)
        told, until = view.changes(), time.monotonic() + 4
        kinds = Counter()
        while time.monotonic() < until:
            _note(seen, kinds, await anext(told))
            time.sleep(0.2)  # noqa: ASYNC251 - a callback that blocks its event loop
        writer.kill()
        assert len(view._core._buffer) <= router_client.LIVE_MAX
        await view.synced(PATIENCE_S)

        def is_level():
            fleet = view.fleet
            return seen == {w: fleet.worker("prod", w) for _, w in fleet.state.workers}

        while not is_level():
            async with asyncio.timeout(PATIENCE_S):
                _note(seen, kinds, await anext(told))
        metrics = view._counting._metrics
        assert metrics.dropped_then_resynced._value.get() > 0
        digests = await digests_of(projected.log)
        assert view.digest == digests[view.revision]
    assert len(seen) == 20


def _note(seen, kinds, change):
    kinds[change.kind] += 1
    worker = change.worker or change.before
    if change.worker is None:
        del seen[worker.worker_id]
    else:
        seen[worker.worker_id] = change.worker


async def test_no_half_worker_is_ever_seen(projected):
    """S35: 500 workers come, get ready and go; each update is looked at."""
    async with view_of(projected) as view:
        await view.synced(PATIENCE_S)
        looked = 0

        async def look():
            nonlocal looked
            async for change in view.changes():
                looked += 1
                worker = change.worker
                if worker is not None and worker.routable:
                    assert worker.address == f"http://{worker.worker_id}.example:8000"
                    assert worker.model == MODEL
                    assert len(worker.checksum) == 32
                    assert worker.capacity is not None
                    assert worker.status is Status.READY
                if worker is None and change.before.worker_id == "last":
                    return

        looking = asyncio.ensure_future(look())
        for start in range(0, 500, 20):
            group = [Life(f"w{n}") for n in range(start, start + 20)]
            starting = [life.registers(status=Status.STARTING) for life in group]
            await append_all(projected.log, starting)
            await append_all(projected.log, [x.says(Status.READY) for x in group])
            await append_all(projected.log, [life.leaves() for life in group[::2]])
        last = Life("last")
        await append_all(projected.log, [last.registers()])
        await view.wait_for((await projected.log.state()).last_revision, PATIENCE_S)
        await asyncio.sleep(0)
        await append_all(projected.log, [last.leaves()])
        async with asyncio.timeout(PATIENCE_S):
            await looking
        assert looked > 250
        assert len(view.fleet.models[MODEL].worker_sets) == 1


# ---- a filter ----------------------------------------------------------------------
class CountingFeed(ViewFeed):
    """A view feed that counts what is read of the stream."""

    entries_read = 0

    async def read(self, after, until=None):
        async for batch in super().read(after, until):
            self.entries_read += len(batch)
            yield batch


async def test_a_quiet_filter_goes_along_and_does_not_rescan(projected, tmp_path):
    """S54: 10,000 events of others."""
    quiet = NamespaceFilter.exact("quiet")
    path = tmp_path / "checkpoint"
    options = {"visible": quiet, "checkpoint": path}
    await append_all(projected.log, [Life("q", namespace="quiet").registers()])
    noisy = [Life(f"n{n}") for n in range(20)]
    await append_all(projected.log, [life.registers() for life in noisy])
    async with view_of(projected, **options) as view:
        await view.synced(PATIENCE_S)
        woken = asyncio.ensure_future(anext(view.changes(initial=False)))
        for _ in range(20):
            events = [noisy[n % 20].toggles() for n in range(500)]
            end = await append_all(projected.log, events)
        await view.wait_for(end, PATIENCE_S)
        await eventually(lambda: view.stale_for_s < 2.0, PATIENCE_S)
        assert not woken.done()
        woken.cancel()
        (only,) = view.fleet.models[MODEL].worker_sets
        assert only.namespace == "quiet"
        digest = view.digest
    feed = CountingFeed(projected.broker, projected.cell)
    async with view_of(projected, **options, feed=feed) as again:
        assert (again.source, again.revision, again.digest) == (
            "checkpoint",
            end,
            digest,
        )
        await again.synced(PATIENCE_S)
    assert feed.entries_read == 0
