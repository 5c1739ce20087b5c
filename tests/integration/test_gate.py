"""S41: a roll-out gate opens when every live router has it, and names who has not."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack

import msgspec
import pytest

import controlplane as cp
from controlplane.gate import NOTE_S, Unseen, glimpse
from controlplane.presence import say_presence
from controlplane.projector.leadership import Leadership
from tests.support.waiting import eventually

V2 = "prod-v2"
SETTINGS = cp.Settings(presence_ttl_s=1.0, presence_lapse_s=1.0)


def spec(worker_id: str, **fields) -> cp.WorkerSpec:
    return cp.WorkerSpec(
        model="llama",
        address=f"http://127.0.0.1/{worker_id}",
        namespace=fields.pop("namespace", V2),
        worker_id=worker_id,
        **{"status": "ready", **fields},
    )


@pytest.fixture
async def plane():
    async with cp.local(settings=SETTINGS) as plane:
        yield plane


@pytest.fixture
async def enter():
    async with AsyncExitStack() as stack:
        yield stack.enter_async_context


async def say_as_dead(plane: cp.Plane, view: cp.RouterView, name: str) -> None:
    """A router of that name spoke once, where ``view`` stands, and never again."""
    said = msgspec.structs.replace(view.presence, name=name)
    await say_presence(plane.broker, plane.names, said)


async def test_it_opens_when_each_router_has_so_many_ready(plane, enter):
    for name in ("router-a", "router-b"):
        await (await enter(plane.view(name=name))).synced(10)
    await enter(plane.worker(spec("old", namespace="prod")))
    w1 = await enter(plane.worker(spec("w1", status="starting")))
    await enter(plane.worker(spec("w2")))
    gate = asyncio.create_task(plane.wait_ready(V2, "llama", 2, timeout_s=10))
    early = await plane.wait_ready(V2, "llama", 2, timeout_s=0.2)
    assert early == cp.ReadyResult(
        reached=False,
        missing=("router-a", "router-b"),
        ready=1,
        blockers={"starting": 1},
    )
    assert not gate.done()
    await w1.ready()
    assert await gate == cp.ReadyResult(reached=True, ready=2)


async def test_a_router_that_is_dead_holds_the_gate_until_it_lapsed(plane, enter):
    view = await enter(plane.view(name="router-a"))
    await view.synced(10)
    await say_as_dead(plane, view, "router-dead")
    started = time.monotonic()
    worker = await enter(plane.worker(spec("w1")))
    closed = await plane.wait_ready(V2, "llama", 1, timeout_s=0.3)
    assert (closed.reached, closed.missing) == (False, ("router-dead",))
    some = await plane.wait_ready(V2, "llama", 1, routers=1, timeout_s=5)
    assert some.reached
    behind = await plane.wait(worker.revision, timeout_s=0)
    assert behind.missing == ("router-dead",)
    opened = await plane.wait_ready(V2, "llama", 1, timeout_s=10)
    assert opened.reached
    assert time.monotonic() - started > SETTINGS.presence_ttl_s
    assert [seen.presence.name for seen in await plane.routers()] == ["router-a"]


async def test_without_a_router_it_stays_shut(plane, enter):
    await enter(plane.worker(spec("w1")))
    shut = await plane.wait_ready(V2, "llama", 1, timeout_s=0.2)
    assert shut == cp.ReadyResult(reached=False, missing=(), ready=1)


async def test_what_keeps_workers_away_is_named(plane, enter):
    await enter(plane.view(name="router-a"))
    await enter(plane.worker(spec("w1", role="decode", needs=[["prefill"]])))
    held = await enter(plane.worker(spec("w2", role="decode", needs=[["prefill"]])))
    await plane.hold(V2, "w2")
    shut = await plane.wait_ready(V2, "llama", 1, timeout_s=0)
    assert (shut.ready, shut.blockers) == (0, {"held": 1, "needs_unmet": 2})
    await enter(plane.worker(spec("p1", role="prefill")))
    opened = await plane.wait_ready(V2, "llama", 1, timeout_s=10)
    assert (opened.reached, opened.ready, opened.blockers) == (True, 1, {"held": 1})
    prefill = await plane.wait_ready(V2, "llama", 1, role="prefill", timeout_s=10)
    assert prefill.reached
    await plane.weight(V2, "llama", 0)
    cordoned = await plane.wait_ready(V2, "llama", 1, timeout_s=0)
    assert cordoned.blockers == {"held": 1, "weight_zero": 2}
    await held.drain()


async def test_it_shuts_again_when_workers_go_while_routers_are_asked(plane, enter):
    """A gate is held to what routers have, not to what was once there."""
    view = await enter(plane.view(name="router-a"))
    await view.synced(10)
    await say_as_dead(plane, view, "router-slow")
    worker = await plane.worker(spec("w1")).start()
    gate = asyncio.create_task(plane.wait_ready(V2, "llama", 1, timeout_s=2.6))
    # Another that began later has seen the worker, so this one has.
    assert (await plane.wait_ready(V2, "llama", 1, routers=1, timeout_s=5)).reached
    await worker.stop()
    await eventually(lambda: not view.fleet.models)
    result = await gate
    assert (result.reached, result.ready) == (False, 0)
    assert result.missing == ("router-a",)


# ---- a glimpse ---------------------------------------------------------------------
async def glimpsed(plane: cp.Plane) -> object:
    hasty = msgspec.structs.replace(plane.settings, connect_timeout_s=0.2)
    return await glimpse(
        plane.view(announce=False), plane.broker, plane.names, settings=hasty
    )


async def test_none_leads_and_none_is_up_to_date_are_two_answers():
    async with cp.EmbeddedServer() as server, cp.connect(server.url) as plane:
        await plane.init()
        assert await glimpsed(plane) is Unseen.NO_PROJECTOR
        leader = Leadership(plane.broker, plane.names, name="slow", ttl_s=30.0)
        assert await leader.acquire(0.0)
        assert await glimpsed(plane) is Unseen.BEHIND


def test_a_leader_has_two_heads_in_which_to_be_heard():
    assert 2 * cp.Settings().head_every_s <= NOTE_S
