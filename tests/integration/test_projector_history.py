"""What a projector makes of lost, replaced, purged and restored history."""

import asyncio
from contextlib import asynccontextmanager

import pytest

from controlplane.broker import Outgoing
from controlplane.errors import HistoryTruncatedError, StreamMissingError
from controlplane.projector.finding import find
from controlplane.projector.recovery import decide_start
from controlplane.server import EmbeddedServer
from controlplane.topology import init
from events import Status
from projections import EpochStarted
from tests.support.cells import next_notice, projected_cell
from tests.support.deriving import check_view
from tests.support.servers import StoreMark
from tests.support.waiting import eventually


@asynccontextmanager
async def led(cell, name="here"):
    """A projector that leads and has published all there is."""
    async with cell.service(name) as service:
        await eventually(lambda: service.leading and service.health.status == "ok")
        yield service


async def starts(cell):
    messages = [entry.message for entry in await cell.entries()]
    return [m for m in messages if isinstance(m, EpochStarted)]


async def three_events(cell, worker="w1"):
    life = cell.life(worker)
    await life.register(lease_ttl_s=3600.0)
    for status in (Status.DRAINING, Status.READY):
        await life.say(status)
    return life


async def test_before_init_it_says_so_and_what_to_do(cell):
    for stream in (cell.names.view_stream, cell.names.log_stream):
        await cell.broker.delete_stream(stream)
        with pytest.raises(StreamMissingError, match="controlplane init"):
            async with asyncio.timeout(3):
                await cell.service().start()


async def test_a_log_deleted_and_made_again_begins_a_new_epoch(cell):
    """S26."""
    async with led(cell) as service:
        old = await three_events(cell)
        await cell.published()
        view_end = (await cell.feed.state()).last_sequence
        notices = await cell.notices(old)
        await cell.broker.delete_stream(cell.names.log_stream)
        await init(cell.broker, cell.cell, cell.settings)
        await three_events(cell, "w9")

        async def anew():
            return (await cell.log.state()).log_id == service.fleet.log_id

        await eventually(anew)
        await eventually(lambda: service.fleet.revision == 3)
        assert list(service.fleet.state.workers) == [("prod", "w9")]
        await eventually(lambda: service.leading)
        await eventually(lambda: service.health.status == "ok")

        async def started():
            return (await starts(cell))[1:]

        (start,) = await eventually(started)
        assert (start.reason, start.epoch.count) == ("log_replaced", 2)
        entries = [e for e in await cell.entries() if e.view_seq > view_end]
        check_view(await cell.records(), entries)
        await old.beat()
        assert (await next_notice(notices)).kind == "unknown"


async def test_a_view_stream_made_again_begins_a_new_epoch(cell):
    async with led(cell) as service:
        await three_events(cell)
        await cell.published()
        await cell.broker.delete_stream(cell.names.view_stream)
        await init(cell.broker, cell.cell, cell.settings)

        async def started():
            return await starts(cell)

        (start,) = await eventually(started)
        assert (start.epoch.count, start.epoch.revision) == (2, 3)
        await eventually(lambda: service.health.status == "ok")
        await cell.life("w2").register()
        await cell.published()


async def test_a_view_stream_emptied_under_a_leader_is_numbered_on(cell):
    async with led(cell):
        await three_events(cell)
        end = await cell.published()
        await cell.broker.purge_stream(cell.names.view_stream)
        await cell.life("w2").register()
        await cell.published_some(end + 1)
        (entry,) = await cell.entries()
        assert (entry.view_seq, entry.message.ordinal) == (end + 1, 4)
    begin = decide_start(await find(cell.log, cell.feed))
    assert begin.start.position.view_seq == end + 1


async def test_a_restored_older_copy_is_named_and_begins_a_new_epoch(broker_factory):
    """Everything in the copy agrees: only who saw more knows that it was lost."""
    async with EmbeddedServer() as server:
        broker = await broker_factory(server.url)
        async with projected_cell(broker) as cell, led(cell) as service:
            life = await three_events(cell)
            await cell.published()
            mark = await StoreMark(server).take()
            await life.say(Status.DRAINING)
            await life.say(Status.READY)
            await cell.published()
            assert len(await starts(cell)) == 1
            await mark.roll_back()
            await broker.wait_connected(10)

            async def started():
                return (await starts(cell))[1:]

            (start,) = await eventually(started, 10)
            assert (start.reason, start.epoch.revision) == ("log_lost_tail", 3)
            await eventually(lambda: service.health.status == "ok")
            await cell.life("w2").register()
            await cell.published()


async def test_a_beat_that_knows_more_than_the_log_reveals_the_loss(cell):
    """A projector that came after the loss learns it from the workers, once."""
    async with led(cell):
        life = await three_events(cell)
        await cell.published()
        notices = await cell.notices(life)
        await life.beat()
        stranger = cell.life("w2")
        stranger.log_id, stranger.revision = life.log_id, 99
        told = await cell.notices(stranger)
        await stranger.beat()
        assert (await next_notice(told)).kind == "unknown"

        async def started():
            return (await starts(cell))[1:]

        (start,) = await eventually(started)
        assert start.reason == "log_lost_tail"
        life.revision = 98
        await life.beat()
        await cell.life("w3").register()
        await cell.published()
        assert len(await starts(cell)) == 2
        await notices.close()


async def test_a_purged_beginning_without_a_snapshot_is_refused(cell):
    async with led(cell):
        await three_events(cell)
        end = await cell.published()
    await cell.broker.purge_stream(cell.names.log_stream, up_to=3)
    assert decide_start(await find(cell.log, cell.feed)).fold.revision == 3
    await cell.broker.purge_stream(cell.names.snapshot_stream)
    with pytest.raises(HistoryTruncatedError):
        decide_start(await find(cell.log, cell.feed))
    async with cell.service() as service:
        await eventually(lambda: service.health.reasons[0].startswith("the log begins"))
        assert service.health.status == "stuck"
        assert not service.leading
        assert (await cell.feed.state()).last_sequence == end


async def test_a_purged_end_of_the_log_does_not_keep_anybody_waiting(cell):
    """S47b: the last revision may be a hole; nobody is behind of it."""
    await three_events(cell)
    await cell.life("w2").register()
    subject = cell.names.absolute("log.worker.prod.w2")
    await cell.broker.purge_stream(cell.names.log_stream, subject=subject)
    async with led(cell) as service:
        assert service.fleet.revision == 3
        assert (await cell.log.state()).last_revision == 4
        await service._watching.look()
        assert service._appearance._behind is None


@pytest.mark.parametrize("damage", ["chunk missing", "pointer unreadable"])
async def test_a_damaged_snapshot_is_passed_over_and_replaced(cell, damage):
    async with led(cell):
        await three_events(cell)
        await cell.published()
    pointer = await cell.feed.snapshot_pointer()
    assert pointer.revision == 3
    if damage == "chunk missing":
        subject = cell.names.snapshot_chunk(pointer.snapshot_id, "*")
        await cell.broker.purge_stream(cell.names.snapshot_stream, subject=subject)
    else:
        nonsense = Outgoing(subject=cell.names.snapshot_pointer, payload=b"nonsense")
        await cell.broker.store(cell.names.snapshot_stream, nonsense)
    begin = decide_start(await find(cell.log, cell.feed))
    assert (begin.fold.revision, begin.start.position.ordinal) == (0, 0)
    async with led(cell):

        async def replaced():
            found = await cell.feed.snapshot_pointer()
            return found is not None and found.snapshot_id != pointer.snapshot_id

        await eventually(replaced)
        await cell.life("w2").register()
        await cell.published()
    assert len(await starts(cell)) == 1


async def test_a_rebuild_from_nothing_expires_nobody_and_says_nothing_twice(cell):
    """S52: replay emits no event; silence before it began is not counted."""
    async with led(cell):
        for worker in ("w1", "w2"):
            await cell.life(worker).register(lease_ttl_s=5.0)
        await cell.published()
    await cell.broker.purge_stream(cell.names.snapshot_stream)
    await cell.broker.purge_stream(cell.names.view_stream)
    before = len(await cell.records())
    async with led(cell) as service:
        assert service.fleet.revision == before
        await eventually(lambda: service._book._proven_at is not None)
    assert len(await cell.records()) == before
