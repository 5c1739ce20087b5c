"""What `plane.ports` makes of a user's wishes, over a broker in memory."""

from __future__ import annotations

import asyncio
import socket
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from random import Random

import pytest

import controlplane as cp
from controlplane import topology
from controlplane.beats import WireNotice, encode_signal
from controlplane.broker.memory import MemoryBroker, MemoryServer
from controlplane.clock import SystemClock
from controlplane.eventlog import EventLog
from controlplane.identifiers import new_uuid7
from controlplane.ports.claimer import Claimer
from controlplane.ports.facade import Ports
from controlplane.ports.host import host_name, own_addresses
from events import PortOwner
from projections import PORTS_MAX, Resting
from tests.support.lossy import LossyBroker
from tests.support.port_log import check_ports, port_records
from tests.support.waiting import eventually

HOST = "10.0.0.9"
SMALL = cp.PortRange(20000, 20399)
WIDE = cp.PortRange(20000, 29999)
SETTINGS = cp.Settings(port_cooldown_s=0, append_timeout_s=0.05)
FAR = {"host": HOST, "bind_check": False}


class KeptBeats:
    """Remembers who beats; sends nothing."""

    def __init__(self) -> None:
        self.kept: dict = {}
        self.silent_s = 0.0

    def silence_s(self, key) -> float:
        return self.silent_s if key in self.kept else 0.0

    def keep(self, key, subject, beat, ttl_s) -> None:
        self.kept[key] = (subject, beat, ttl_s)

    def change(self, key, beat) -> None:
        subject, _, ttl_s = self.kept[key]
        self.kept[key] = (subject, beat, ttl_s)

    def drop(self, key) -> None:
        self.kept.pop(key, None)


class Facade:
    """`Ports` and all that it stands on."""

    def __init__(self, tasks: asyncio.TaskGroup, environ: dict[str, str]) -> None:
        self.broker = LossyBroker(MemoryBroker(MemoryServer(), connect_timeout_s=1.0))
        self.log = EventLog(self.broker, "default", SETTINGS)
        self.beats = KeptBeats()
        claimer = Claimer(
            log=self.log,
            broker=self.broker,
            clock=SystemClock(),
            settings=SETTINGS,
            by="test",
            chance=Random(1),
        )
        self.ports = Ports(
            claimer=claimer,
            broker=self.broker,
            beats=self.beats,
            names=self.log.names,
            cooldown_s=SETTINGS.port_cooldown_s,
            environ=environ,
            spawn=lambda work: bool(tasks.create_task(work)),
        )

    async def held(self) -> dict[int, str]:
        return check_ports(await port_records(self.log)).get(HOST, {})

    async def owner_of(self, block: cp.PortBlock) -> PortOwner:
        owner = (await self.ports.table(HOST))[block.start].owner
        assert owner is not None
        return owner


@contextmanager
def patch_times(*, close_s: float, finish_s: float):
    """So long leaving may take, and waiting for calls that are under way."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("controlplane.ports.facade.CLOSE_S", close_s)
        patch.setattr("controlplane.ports.facade.FINISH_S", finish_s)
        yield


@pytest.fixture
async def facade():
    async with asyncio.TaskGroup() as tasks:
        made = Facade(tasks, {"CP_NAMESPACE": "prod"})
        await made.broker.start()
        await topology.init(made.broker, "default", SETTINGS)
        yield made
        await made.ports.close()
        await made.broker.stop()
        for task in list(tasks._tasks):
            task.cancel()


async def test_a_claim_beats_until_it_is_released(facade):
    block = await facade.ports.claim(8, SMALL, "nixl", lease_ttl_s=20.0, **FAR)
    owner = await facade.owner_of(block)
    ((subject, beat, ttl_s),) = facade.beats.kept.values()
    assert subject == facade.log.names.beat("prod", owner.worker_id)
    assert (beat.incarnation, ttl_s) == (owner.incarnation, 20.0)
    assert beat.revision == (await facade.log.state()).last_revision
    assert beat.log_id == (await facade.log.state()).log_id
    await facade.ports.release(block)
    assert not facade.beats.kept
    assert not await facade.held()


async def test_claims_of_equal_leases_share_a_life_and_others_do_not(facade):
    one, two = [await facade.ports.claim(1, SMALL, **FAR) for _ in range(2)]
    other = await facade.ports.claim(1, SMALL, lease_ttl_s=60.0, **FAR)
    assert await facade.owner_of(one) == await facade.owner_of(two)
    assert await facade.owner_of(one) != await facade.owner_of(other)
    assert len(facade.beats.kept) == 2
    await facade.ports.release(one)
    assert len(facade.beats.kept) == 2
    await facade.ports.release(two)
    assert len(facade.beats.kept) == 1


async def test_a_life_that_held_nothing_any_more_does_not_come_back(facade):
    one = await facade.ports.claim(1, SMALL, **FAR)
    first = await facade.owner_of(one)
    await facade.ports.release(one)
    second = await facade.owner_of(await facade.ports.claim(1, SMALL, **FAR))
    assert first.incarnation != second.incarnation


async def test_a_full_life_is_followed_by_another(facade):
    one = await facade.ports.claim(PORTS_MAX, WIDE, **FAR)
    two = await facade.ports.claim(8, WIDE, **FAR)
    assert await facade.owner_of(one) != await facade.owner_of(two)


async def test_a_claim_for_an_owner_does_not_beat_here(facade):
    me = PortOwner(namespace="prod", worker_id="w1", incarnation=new_uuid7())
    block = await facade.ports.claim(8, SMALL, owner=me, **FAR)
    assert await facade.owner_of(block) == me
    assert not facade.beats.kept
    await facade.ports.close()
    assert len(await facade.held()) == 8


async def test_a_refused_claim_leaves_no_life(facade):
    with pytest.raises(cp.InvalidIdentityError):
        await facade.ports.claim(0, SMALL, **FAR)
    with pytest.raises(cp.InvalidIdentityError):
        await facade.ports.claim(8, SMALL, lease_ttl_s=1.0, **FAR)
    for _ in range(50):
        await facade.ports.claim(8, SMALL, **FAR)
    with pytest.raises(cp.PortsExhaustedError) as refused:
        await facade.ports.claim(8, SMALL, **FAR)
    assert (refused.value.wanted, refused.value.within) == (8, SMALL)
    assert len(facade.beats.kept) == 1
    for block in facade.ports._lives.blocks:
        await facade.ports.release(block)
    assert not facade.beats.kept


async def test_leaving_releases_everything_in_batches_that_fit(facade):
    for _ in range(3):
        await facade.ports.claim(400, WIDE, **FAR)
    await facade.ports.close()
    assert not await facade.held()
    assert not facade.beats.kept
    with pytest.raises(cp.StoppedError):
        await facade.ports.claim(1, WIDE, **FAR)


async def test_a_claim_under_way_when_the_plane_is_left_is_released(facade):
    claiming = asyncio.create_task(facade.ports.claim(8, SMALL, **FAR))
    await asyncio.sleep(0)
    await facade.ports.close()
    with pytest.raises(cp.StoppedError):
        await claiming
    assert not await facade.held()


async def test_a_claim_that_stands_only_after_the_plane_was_left_is_not_granted(
    facade, caplog
):
    """Nobody beats for it, nothing goes on for it: its lease ends it."""
    late = asyncio.Event()
    claim = facade.ports.claimer.claim

    async def claim_late(*args, **options):
        claimed = await claim(*args, **options)
        await late.wait()
        return claimed

    facade.ports.claimer.claim = claim_late
    owner = PortOwner(namespace="prod", worker_id="w1", incarnation=new_uuid7())
    claims = [
        asyncio.create_task(facade.ports.claim(8, SMALL, owner=whose, **FAR))
        for whose in (None, owner)
    ]
    await eventually(lambda: count_held(facade, 16))
    with patch_times(close_s=0.2, finish_s=0.05):
        await facade.ports.close()
    assert len(await facade.held()) == 16
    late.set()
    for outcome in await asyncio.gather(*claims, return_exceptions=True):
        assert isinstance(outcome, cp.StoppedError)
    assert not facade.beats.kept
    assert not facade.ports.claimer._settling._tasks
    assert caplog.text.count("left to their leases") == 3


async def count_held(facade, count: int) -> bool:
    return len(await facade.held()) == count


async def test_a_claim_that_stands_while_the_plane_is_left_is_let_go(facade):
    late = asyncio.Event()
    claim = facade.ports.claimer.claim

    async def claim_late(*args, **options):
        claimed = await claim(*args, **options)
        await late.wait()
        return claimed

    facade.ports.claimer.claim = claim_late
    claiming = asyncio.create_task(facade.ports.claim(8, SMALL, **FAR))
    await eventually(lambda: count_held(facade, 8))
    with patch_times(close_s=4.0, finish_s=0.05):
        closing = asyncio.create_task(facade.ports.close())
        asyncio.get_running_loop().call_later(0.2, late.set)
        await closing
    assert not await facade.held()
    with pytest.raises(cp.StoppedError):
        await claiming


async def test_what_cannot_be_settled_ends_with_the_plane(facade, caplog):
    block = await facade.ports.claim(8, SMALL, **FAR)
    facade.broker.lose_sends = 10**6
    releasing = asyncio.create_task(facade.ports.release(block))
    await eventually(lambda: facade.broker.lose_sends < 10**6)
    releasing.cancel()
    await eventually(lambda: facade.ports.claimer._settling._tasks)
    with patch_times(close_s=0.2, finish_s=0.05):
        await facade.ports.close()
    assert not facade.ports.claimer._settling._tasks
    assert f"{HOST} {block.start}+8" in caplog.text
    facade.ports._release_later(block)
    assert not facade.ports.claimer._settling._tasks
    facade.broker.lose_sends = 0


async def test_a_life_that_was_silent_for_its_lease_gets_no_more_ports(facade, caplog):
    block = await facade.ports.claim(8, SMALL, lease_ttl_s=20.0, **FAR)
    facade.beats.silent_s = 19.0
    same = await facade.ports.claim(8, SMALL, lease_ttl_s=20.0, **FAR)
    assert await facade.owner_of(same) == await facade.owner_of(block)
    facade.beats.silent_s = 20.5
    other = await facade.ports.claim(8, SMALL, lease_ttl_s=20.0, **FAR)
    assert await facade.owner_of(other) != await facade.owner_of(block)
    assert f"'{HOST} {block.start}+8', '{HOST} {same.start}+8'" in caplog.text
    for one in (block, same, other):
        await facade.ports.release(one)
    assert not facade.beats.kept


async def test_a_claim_whose_life_ended_meanwhile_is_made_for_another(facade):
    first = await facade.ports.claim(8, SMALL, **FAR)
    over = await facade.owner_of(first)
    claim = facade.ports.claimer.claim

    async def claim_while_it_ends(*args, **options):
        claimed = await claim(*args, **options)
        notice = WireNotice(
            incarnation=over.incarnation, kind="expired", reason="silent", revision=1
        )
        facade.ports._lives.told(notice)
        return claimed

    facade.ports.claimer.claim = claim_while_it_ends
    block = await facade.ports.claim(8, SMALL, **FAR)
    assert (await facade.owner_of(block)).incarnation != over.incarnation
    await eventually(lambda: count_held(facade, 16))
    assert len(facade.ports._lives.blocks) == 2


async def test_notices_are_heard_after_a_first_claim_before_the_start(facade):
    spawn, facade.ports._spawn = facade.ports._spawn, _not_yet
    claim = facade.ports.claimer.claim

    async def claim_and_start(*args, **options):
        facade.ports._spawn = spawn
        return await claim(*args, **options)

    facade.ports.claimer.claim = claim_and_start
    assert not facade.ports._hearing
    await facade.ports.claim(8, SMALL, **FAR)
    assert facade.ports._hearing


def _not_yet(work) -> bool:
    work.close()
    return False


async def test_a_record_of_the_end_of_time_can_be_shown(facade):
    since = datetime.max.replace(tzinfo=UTC)
    state = Resting(host=HOST, port=20000, claim_id="c", cause="released", since=since)
    facade.ports._cooldown = timedelta(seconds=5)
    row = facade.ports._holding(20000, state, datetime.now(UTC))
    assert row.state == "resting"


async def test_a_cancelled_release_goes_on(facade):
    block = await facade.ports.claim(8, SMALL, **FAR)
    facade.broker.lose_sends = 3
    releasing = asyncio.create_task(facade.ports.release(block))
    await eventually(lambda: facade.broker.lose_sends < 3)
    releasing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await releasing
    await eventually(lambda: not facade.beats.kept, 5)
    assert not await facade.held()


async def test_a_context_whose_release_gets_no_answer_releases_later(facade):
    async with facade.ports.hold(8, SMALL, **FAR) as block:
        facade.broker.lose_sends = 3
    assert sorted(await facade.held()) == list(block)
    await eventually(lambda: not facade.beats.kept, 5)
    assert not await facade.held()


async def test_a_life_that_is_told_that_it_expired_gets_no_more_ports(facade):
    block = await facade.ports.claim(1, SMALL, **FAR)
    owner = await facade.owner_of(block)
    notice = WireNotice(
        incarnation=owner.incarnation, kind="expired", reason="silent", revision=1
    )
    subject = facade.log.names.notice("prod", owner.worker_id)
    await facade.broker.publish(subject, encode_signal(notice))
    await facade.broker.publish(subject, b"no notice")
    (life,) = facade.ports._lives._lives
    await eventually(lambda: not life.open)
    other = await facade.ports.claim(1, SMALL, **FAR)
    assert (await facade.owner_of(other)).incarnation != owner.incarnation


async def test_the_table_shows_what_is_not_free(facade):
    block = await facade.ports.claim(2, SMALL, "kv", **FAR)
    table = await facade.ports.table(HOST)
    assert list(table) == list(block)
    row = table[block.start]
    assert (row.port, row.claim_id, row.reason) == (block.start, block.claim_id, "kv")
    assert row.state == "held"
    await facade.ports.release(block)
    assert await facade.ports.table(HOST) == {}


async def test_a_port_of_this_machine_has_one_holder_by_whatever_name(facade):
    """Also where the log alone is asked, and the name was never met before."""
    small = cp.PortRange(21000, 21007)
    names = (socket.gethostname(), "127.0.0.2", *own_addresses(), None)
    blocks = [
        await facade.ports.claim(1, small, host=name, bind_check=False)
        for name in names
    ]
    assert {block.host for block in blocks} == {host_name()}
    held = {port for block in blocks for port in block}
    assert len(held) == len(blocks)
    for name in names:
        assert set(await facade.ports.table(name)) == held


async def test_a_worker_s_block_goes_when_the_worker_leaves_and_not_before(facade):
    owner = PortOwner(namespace="prod", worker_id="w1", incarnation=new_uuid7())
    wants = [cp.Want("kv", 2, SMALL)]
    claimed = await facade.ports.claimer.claim(wants, owner=owner, lease_ttl_s=9, **FAR)
    with pytest.raises(cp.SettingsError, match="a worker's go when it leaves"):
        await facade.ports.release(claimed.blocks[0])
    await facade.ports.release(await facade.ports.claim(2, SMALL, owner=owner, **FAR))


async def test_what_is_no_block_is_refused(facade):
    with pytest.raises(cp.SettingsError):
        await facade.ports.release(20000)
