"""Workers with ports, as processes that are stopped and killed: S13, S24, S25."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from contextlib import asynccontextmanager

import pytest

import controlplane as cp
from controlplane.clock import SystemClock
from controlplane.identifiers import new_uuid7
from events import (
    PortClaimed,
    PortOwner,
    PortReleased,
    WorkerDeregistered,
    WorkerExpired,
    WorkerRegistered,
    WorkerUpdated,
)
from tests.support.ported_worker import HOST, SETTINGS, spec_of
from tests.support.waiting import eventually

FIRST = 24000
LEASE_S = 5.0
pytestmark = pytest.mark.timeout(60)


class Process:
    """A worker process, and what it said."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process

    async def said(self, within_s: float = 20.0) -> dict:
        line = await asyncio.wait_for(self.process.stdout.readline(), within_s)
        return json.loads(line)


@asynccontextmanager
async def ported(plane, worker_id: str, first: int, size: int, **more):
    told = {"worker_id": worker_id, "first": first, "last": first + size - 1}
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "tests.support.ported_worker"),
        json.dumps({**told, "size": size, **more}),
        env={**os.environ, "NATS_URL": plane.server.url},
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        yield Process(process)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


def worker_at(plane, worker_id: str, first: int, size: int):
    """A worker of this process that wants just this block."""
    want = cp.Want("nixl", size, cp.PortRange(first, first + max(size, 2) - 1))
    return plane.worker(
        spec_of(worker_id), ports={"nixl": want}, host=HOST, bind_check=False
    )


async def records(plane):
    return [record async for record in plane.log.read()]


async def holders(plane, first: int, size: int) -> list[str | None]:
    """Which incarnation holds each port of a block, by the fold of the whole log."""
    table = (await plane.log.replay()).ports.ports
    states = [table.get((HOST, port)) for port in range(first, first + size)]
    return [
        state.owner.incarnation if hasattr(state, "owner") else None for state in states
    ]


async def entered(worker, within_s: float):
    """Enter as soon as there is room for its ports."""
    deadline = asyncio.get_running_loop().time() + within_s
    while True:
        try:
            return await worker.start()
        except cp.PortsExhaustedError:
            assert asyncio.get_running_loop().time() < deadline


async def of(plane, kind, worker_id: str):
    """The records of this kind that name the worker."""
    return [
        record
        for record in await records(plane)
        if isinstance(record.event, kind) and record.event.worker_id == worker_id
    ]


def seal():
    return {"event_id": new_uuid7(), "at": SystemClock().now(), "by": "a zombie"}


async def test_a_zombie_has_its_ports_back_or_is_lost_and_touches_nobodys():
    """S13: stopped beyond the lease; another has the ports of one of them by then."""
    robbed, happy = FIRST, FIRST + 100
    async with (
        cp.local(settings=SETTINGS) as plane,
        ported(plane, "robbed", robbed, 4) as first,
        ported(plane, "happy", happy, 4) as second,
    ):
        lives = [(await process.said())["entered"] for process in (first, second)]
        for process in (first, second):
            process.process.send_signal(signal.SIGSTOP)
        x = await entered(worker_at(plane, "x", robbed, 4), LEASE_S + 10)
        assert await holders(plane, robbed, 4) == [x.incarnation] * 4
        # It may have begun later than the other, so that its lease ends later.
        await eventually(
            lambda: of(plane, WorkerExpired, "happy"), within_s=LEASE_S + 10
        )
        for process in (first, second):
            process.process.send_signal(signal.SIGCONT)

        assert await first.said() == {"lost": "LeaseLostError"}
        assert len(await of(plane, WorkerRegistered, "robbed")) == 1
        assert await holders(plane, robbed, 4) == [x.incarnation] * 4

        await eventually(lambda: back(plane), within_s=15)
        claims = await claims_before(plane, await back(plane))
        assert {claim.owner.incarnation for claim in claims} != {lives[1]}
        assert len({claim.owner.incarnation for claim in claims}) == 1
        assert [claim.port for claim in claims] == list(range(happy, happy + 4))
        await old_words_change_nothing(plane, lives[0], robbed, x)
        await in_one_batch(plane, "robbed", 4)
        await x.stop()
        assert await holders(plane, robbed, 4) == [None] * 4


async def back(plane):
    """The second registration of the zombie that has its ports back."""
    registrations = await of(plane, WorkerRegistered, "happy")
    return registrations[1] if len(registrations) > 1 else None


async def claims_before(plane, registration):
    """What was appended in the same batch as a registration, before it."""
    everything = await records(plane)
    place = everything.index(registration)
    return [record.event for record in everything[place - 4 : place]]


async def old_words_change_nothing(plane, life: str, first: int, x) -> None:
    """An update and a release of the old life: conflicts, or ignored."""
    claims = [
        record
        for record in await records(plane)
        if isinstance(record.event, PortClaimed)
        and record.event.owner.incarnation == life
    ]
    release = PortReleased(
        **seal(),
        host=HOST,
        port=first,
        claim_id=claims[0].event.claim_id,
        cause="released",
    )
    update = WorkerUpdated(
        **seal(),
        namespace="prod",
        worker_id="robbed",
        incarnation=life,
        address="http://a:1",
    )
    (registered,) = await of(plane, WorkerRegistered, "robbed")
    for event, expected in (
        (release, claims[0].revision),
        (update, registered.revision),
    ):
        with pytest.raises(cp.AppendConflictError):
            await plane.log.append(event, expected_revision=expected)
    before = (await plane.log.replay()).ports.digest
    await plane.log.append(release)
    state = await plane.log.replay()
    assert state.ports.digest == before
    assert state.fleet.worker("prod", "robbed") is None
    assert await holders(plane, first, 4) == [x.incarnation] * 4


async def in_one_batch(plane, worker_id: str, size: int) -> None:
    """The expiry and all its releases stand side by side."""
    everything = await records(plane)
    (expiry,) = await of(plane, WorkerExpired, worker_id)
    place = everything.index(expiry)
    released = [record.event for record in everything[place + 1 : place + 1 + size]]
    assert [type(event) for event in released] == [PortReleased] * size
    assert {event.cause for event in released} == {"expired"}


async def test_a_block_is_not_given_away_while_its_holder_shuts_down():
    """S24: nor right after it let go."""
    async with cp.local(settings=SETTINGS) as plane:
        holder = await worker_at(plane, "holder", FIRST, 8).start()
        await holder.drain("rollout")
        other = worker_at(plane, "other", FIRST, 8)
        with pytest.raises(cp.PortsExhaustedError) as refused:
            await other.start()
        assert (refused.value.free, refused.value.resting) == (0, 0)
        await holder.stop()
        with pytest.raises(cp.PortsExhaustedError) as refused:
            await other.start()
        assert (refused.value.free, refused.value.resting) == (0, 8)
        await entered(other, 10)
        releases = [
            record.recorded_at
            for record in await records(plane)
            if isinstance(record.event, PortReleased)
        ]
        claims = [
            record.recorded_at
            for record in await records(plane)
            if isinstance(record.event, PortClaimed)
            and record.event.owner.incarnation == other.incarnation
        ]
        rested_s = (min(claims) - max(releases)).total_seconds()
        assert rested_s >= SETTINGS.port_cooldown_s
        await other.stop()
        last = (await records(plane))[-9:]
        assert isinstance(last[0].event, WorkerDeregistered)
        assert all(isinstance(r.event, PortReleased) for r in last[1:])


async def test_ranks_have_a_port_each_and_a_crash_leaks_none():
    """S25: dp=2, tp=4; a crash between claim and registration; a fragmented range."""
    async with (
        cp.local(settings=SETTINGS) as plane,
        ported(plane, "crash", FIRST, 8, crash=True) as crash,
    ):
        assert await crash.process.wait() == 9
        held = await holders(plane, FIRST, 8)
        assert len(set(held)) == 1
        assert held[0] is not None
        assert not await of(plane, WorkerRegistered, "crash")
        worker = plane.worker(spec_of("ranks"), ports={"kv_events": 1, "nixl": 2 * 4})
        async with worker:
            assert {name: len(block) for name, block in worker.ports.items()} == {
                "kv_events": 1,
                "nixl": 8,
            }
            block = worker.ports["nixl"]
            assert list(block) == list(range(block.start, block.start + 8))
            assert not set(block) & set(worker.ports["kv_events"])
        await fragmented(plane)
        await eventually(lambda: of(plane, WorkerExpired, "crash"), LEASE_S + 10)
        await in_one_batch(plane, "crash", 8)
        after = await entered(worker_at(plane, "after", FIRST, 8), 10)
        assert await holders(plane, FIRST, 8) == [after.incarnation] * 8
        await after.stop()


async def fragmented(plane) -> None:
    """60 % are free, but not in a row."""
    first, owner = (
        FIRST + 200,
        PortOwner(namespace="prod", worker_id="raw", incarnation=new_uuid7()),
    )
    for port in (first + 2, first + 5, first + 8, first + 9):
        claim = PortClaimed(
            **seal(),
            host=HOST,
            port=port,
            claim_id=new_uuid7(),
            block_start=port,
            block_size=1,
            owner=owner,
            reason="raw",
            lease_ttl_s=3600.0,
        )
        await plane.log.append(claim, expected_revision=0)
    want = cp.Want("nixl", 4, cp.PortRange(first, first + 9))
    worker = plane.worker(
        spec_of("large"), ports={"nixl": want}, host=HOST, bind_check=False
    )
    with pytest.raises(cp.PortsExhaustedError, match="fragmented") as refused:
        await worker.start()
    error = refused.value
    assert (error.wanted, error.free, error.largest_hole) == (4, 6, 2)
    assert not await of(plane, WorkerRegistered, "large")


@pytest.mark.parametrize(
    ("ports", "error"),
    [
        ({"a": 0}, cp.InvalidIdentityError),
        ({"a": 500, "b": 401}, cp.InvalidIdentityError),
        ({"a": True}, cp.InvalidIdentityError),
        ({"": 1}, cp.SettingsError),
        ([("a", 1)], cp.SettingsError),
        ({"a": 10_002}, cp.InvalidIdentityError),
    ],
)
def test_what_nobody_could_have_is_refused_at_once(ports, error):
    with pytest.raises(error):
        cp.connect("nats://127.0.0.1:9").worker(spec_of("w"), ports=ports)
