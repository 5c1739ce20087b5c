"""A worker's handle with ports, over a log in memory."""

import asyncio

import pytest

from controlplane.broker.memory import MemoryBroker, MemoryServer
from controlplane.errors import (
    AppendConflictError,
    AppendOutcomeUnknownError,
    IncarnationSupersededError,
    LeaseLostError,
    PortsExhaustedError,
    SettingsError,
)
from events import (
    InvalidIdentityError,
    PortClaimed,
    PortReleased,
    WorkerDeregistered,
    WorkerRegistered,
)
from projections import PortRange, Want
from tests.support.waiting import eventually
from tests.support.workers import worker_cell

ONE_PLACE = {"nixl": Want("nixl", 4, PortRange(20000, 20003))}
PLACE = range(20000, 20004)
CLAIMED = ["PortClaimed"] * 4
RELEASED = ["PortReleased"] * 4
WHOLE_LIFE = [*CLAIMED, "WorkerRegistered", "WorkerDeregistered", *RELEASED]


@pytest.fixture
async def broker():
    made = MemoryBroker(MemoryServer(), connect_timeout_s=0.05)
    await made.start()
    yield made
    await made.stop()


@pytest.fixture
async def cell(broker):
    async with worker_cell(broker, port_cooldown_s=0.2, append_timeout_s=0.05) as made:
        yield made


# ---- entering and leaving ----------------------------------------------------------
async def test_ports_are_claimed_registered_with_and_released(cell):
    ports = {"kv_events": 1, "nixl": Want("ignored", 8, PortRange(21000, 21100))}
    async with cell.worker(ports, worker_id="w1") as worker:
        assert list(worker.ports) == ["kv_events", "nixl"]
        assert len(worker.ports["kv_events"]) == 1
        assert all(21000 <= port <= 21100 for port in worker.ports["nixl"])
        held = await cell.holders()
        assert sorted(held) == sorted(p for b in worker.ports.values() for p in b)
        assert set(held.values()) == {worker.incarnation}
    events = await cell.events()
    assert [type(event) for event in events] == [
        *[PortClaimed] * 9,
        WorkerRegistered,
        WorkerDeregistered,
        *[PortReleased] * 9,
    ]
    assert {e.reason for e in events if isinstance(e, PortClaimed)} == set(ports)
    assert worker.ports == {}
    assert await cell.holders() == {}


async def test_it_may_be_entered_again_with_new_ports(cell):
    worker = cell.worker(ONE_PLACE)
    async with worker:
        first = worker.ports["nixl"]
    await eventually(lambda: entered(worker))
    assert worker.ports["nixl"].claim_id != first.claim_id
    await worker.stop()
    assert await cell.kinds() == WHOLE_LIFE * 2


async def entered(worker):
    try:
        return await worker.start()
    except PortsExhaustedError:
        return None


async def test_a_claim_that_cannot_be_is_the_error_of_entering(cell):
    async with cell.worker(ONE_PLACE):
        with pytest.raises(PortsExhaustedError):
            await cell.worker(ONE_PLACE, worker_id="w2").start()
    assert await cell.kinds() == WHOLE_LIFE


async def test_an_entrance_that_is_cancelled_holds_nothing(cell):
    for turns in range(60):
        worker = cell.worker({"a": 2}, worker_id=f"w{turns}")
        task = asyncio.create_task(worker.start())
        for _ in range(turns):
            await asyncio.wait({task}, timeout=0)
        task.cancel()
        await asyncio.wait({task})
        await worker.stop()
    await cell.claimer.close(5.0)
    assert await cell.holders() == {}
    kinds = await cell.kinds()
    assert "PortClaimed" in kinds
    assert kinds.count("PortClaimed") == kinds.count("PortReleased")
    assert kinds.count("WorkerRegistered") == kinds.count("WorkerDeregistered")


async def test_a_farewell_is_finished_however_often_it_is_cancelled(cell):
    worker = await cell.worker(ONE_PLACE).start()
    task = asyncio.create_task(worker.stop())
    done = set()
    while not done:
        done, _ = await asyncio.wait({task}, timeout=0)
        task.cancel()
    assert await cell.kinds() == WHOLE_LIFE


@pytest.mark.parametrize("lost", [1, 2])
async def test_a_farewell_whose_answer_is_lost_is_said_once(cell, broker, lost):
    worker = await cell.worker(ONE_PLACE).start()
    broker.answers_to_lose = lost
    await worker.stop()
    assert await cell.kinds() == WHOLE_LIFE


async def test_a_claim_whose_answer_is_lost_is_one_claim(cell, broker):
    broker.answers_to_lose = 1
    async with cell.worker(ONE_PLACE):
        pass
    assert await cell.kinds() == WHOLE_LIFE


async def test_an_entrance_whose_registration_is_in_doubt_says_so(cell, broker):
    claim = cell.claimer.claim

    async def claim_and_lose(*args, **named):
        claimed = await claim(*args, **named)
        broker.answers_to_lose = 1
        return claimed

    cell.claimer.claim = claim_and_lose
    entering = asyncio.create_task(cell.worker(ONE_PLACE).start())
    await eventually(lambda: "worker_registered" in stored(broker))
    broker._server.disconnect(broker)
    with pytest.raises(AppendOutcomeUnknownError):
        await entering
    broker._server.reconnect(broker)


def stored(broker) -> str:
    """What all streams hold, one after another."""
    streams = broker._server.streams.values()
    return str([m.payload for s in streams for m in s.between(0, 99, None)])


# ---- told --------------------------------------------------------------------------
async def test_an_expired_worker_has_its_own_resting_ports_back_in_one_batch(cell):
    async with cell.worker(ONE_PLACE, worker_id="w1") as worker:
        first, before = worker.incarnation, worker.ports
        await cell.expire_with_ports(worker)
        await cell.notify(worker, "expired")
        await eventually(lambda: worker.incarnation != first)
        assert worker.ports == before
        assert set((await cell.holders()).values()) == {worker.incarnation}
    kinds = await cell.kinds()
    again = [*CLAIMED, "WorkerRegistered"]
    assert kinds == [
        *again,
        "WorkerExpired",
        *RELEASED,
        *again,
        "WorkerDeregistered",
        *RELEASED,
    ]


async def test_a_return_whose_answer_is_lost_is_recognised(cell, broker):
    async with cell.worker(ONE_PLACE, worker_id="w1") as worker:
        first = worker.incarnation
        await cell.expire_with_ports(worker)
        broker.answers_to_lose = 1
        await cell.notify(worker, "expired")
        await eventually(lambda: worker.incarnation != first)
        assert not broker.answers_to_lose
        await worker.ready()
    kinds = await cell.kinds()
    assert kinds.count("WorkerRegistered") == 2
    assert kinds.count("PortClaimed") == kinds.count("PortReleased") == 8


async def test_whose_ports_another_holds_is_lost_and_touches_nothing(cell):
    worker = await cell.worker(ONE_PLACE, worker_id="w1").start()
    block = worker.ports["nixl"]
    await cell.expire_with_ports(worker)
    await cell.take(block)
    before = await cell.kinds()
    await cell.notify(worker, "expired")
    error = await asyncio.wait_for(worker.wait_lost(), 10)
    assert isinstance(error, LeaseLostError)
    with pytest.raises(LeaseLostError):
        await worker.ready()
    await worker.stop()
    assert not cell.claimer._keeper._holdings
    assert await cell.kinds() == before
    assert await cell.holders() == {block.start: "another"}


async def test_of_workers_that_are_over_nothing_is_remembered(cell):
    keeper = cell.claimer._keeper
    for _ in range(3):
        async with cell.worker({"nixl": 4}) as worker:
            assert keeper.count_of(worker.incarnation) == 4
    silent = cell.worker({"nixl": 4})
    await silent.start()
    await cell.expire_with_ports(silent)
    await silent.stop()
    assert not keeper._holdings
    assert not keeper._counts


async def test_ports_that_rest_after_another_are_waited_for(cell):
    async with cell.worker(ONE_PLACE, worker_id="w1") as worker:
        first, block = worker.incarnation, worker.ports["nixl"]
        await cell.expire_with_ports(worker)
        await cell.take(block)
        await cell.let_go(block)
        await cell.notify(worker, "expired")
        await eventually(lambda: worker.incarnation != first, within_s=10)
        await worker.ready()
        assert sorted(await cell.holders()) == list(PLACE)


async def test_a_worker_whom_the_log_forgot_has_its_ports_in_the_new_one(cell):
    async with cell.worker(ONE_PLACE, worker_id="w1") as worker:
        life = worker.incarnation
        await cell.broker.delete_stream(cell.names.log_stream)
        await cell.create()
        await cell.notify(worker, "unknown")
        await eventually(cell.kinds)
        assert worker.incarnation == life
        assert await cell.kinds() == [*CLAIMED, "WorkerRegistered"]
        assert set((await cell.holders()).values()) == {life}


async def test_told_unknown_it_claims_only_what_it_lacks(cell):
    async with cell.worker(ONE_PLACE, worker_id="w1") as worker:
        await cell.notify(worker, "unknown", 99)
        await eventually(lambda: worker.revision > len(CLAIMED) + 1)
        assert (await cell.kinds())[5:] == ["WorkerRegistered"]


async def test_a_superseded_worker_lets_its_ports_go_when_it_leaves(cell):
    worker = await cell.worker(ONE_PLACE, worker_id="w1").start()
    async with cell.worker(worker_id="w1"):
        await cell.notify(worker, "superseded")
        error = await asyncio.wait_for(worker.wait_lost(), 10)
        assert isinstance(error, IncarnationSupersededError)
        assert sorted(await cell.holders()) == list(PLACE)
        await worker.stop()
        assert await cell.holders() == {}
        assert worker.ports == {}


async def test_an_old_lifes_release_is_a_conflict(cell):
    async with cell.worker(ONE_PLACE, worker_id="w1") as worker:
        first = worker.incarnation
        old = await cell.claimer.releases([worker.ports["nixl"]])
        await cell.expire_with_ports(worker)
        await cell.notify(worker, "expired")
        await eventually(lambda: worker.incarnation != first)
        with pytest.raises(AppendConflictError):
            await cell.log.append_all(old)
        assert sorted(await cell.holders()) == list(PLACE)


# ---- what cannot be ----------------------------------------------------------------
@pytest.mark.parametrize(
    ("ports", "error"),
    [
        ({"a": 0}, InvalidIdentityError),
        ({"a": -1}, InvalidIdentityError),
        ({"a": "8"}, InvalidIdentityError),
        ({"a": True}, InvalidIdentityError),
        ({"a": 500, "b": 401}, InvalidIdentityError),
        ({"a": 10_002}, InvalidIdentityError),
        ({"": 1}, SettingsError),
        ({7: 1}, SettingsError),
        ([("a", 1)], SettingsError),
    ],
)
async def test_what_nobody_could_have_is_refused_at_once(cell, ports, error):
    with pytest.raises(error):
        cell.worker(ports)
