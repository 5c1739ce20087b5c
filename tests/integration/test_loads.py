"""Loads through the public face: reported, picked by, faded, and stored nowhere."""

from __future__ import annotations

import asyncio
import math
from random import Random

import msgspec
import pytest

import controlplane as cp
from controlplane.server import ServerOptions
from tests.support.waiting import eventually

SETTINGS = cp.Settings(load_every_s=0.01, load_fresh_s=60.0, load_forget_s=120.0)


def spec(worker_id: str, **fields) -> cp.WorkerSpec:
    return cp.WorkerSpec(
        model="llama",
        address=f"http://127.0.0.1/{worker_id}",
        namespace="prod",
        worker_id=worker_id,
        **{"status": "ready", **fields},
    )


@pytest.fixture
async def plane():
    async with cp.local(settings=SETTINGS) as made:
        yield made


def heard(view: cp.RouterView, count: int):
    return lambda: view.tally.heard["taken"] >= count


async def test_routers_pick_the_least_loaded_and_store_nothing_of_it(plane):
    """The log, the digest, the view and the checkpoint are as if nobody had spoken."""
    async with (
        plane.worker(spec("w1")) as one,
        plane.worker(spec("w2")) as two,
        plane.view() as view,
    ):
        await view.synced(10)
        before = view.digest, view.fleet.to_json()
        end = (await plane.log.state()).last_revision
        one.report_load(kv_usage=0.9, running=200, waiting=4)
        await plane.report_load(
            "prod", "w2", incarnation=two.incarnation, kv_usage=0.1, running=3
        )
        await eventually(heard(view, 2))
        picked = [view.pick("llama", policy="least_loaded") for _ in range(20)]
        assert {worker.worker_id for worker in picked} == {"w2"}
        one.report_load(kv_usage=0.0, running=0, waiting=0)
        await eventually(heard(view, 3))
        assert view.pick("llama", policy="least_loaded").worker_id == "w1"
        assert (view.digest, view.fleet.to_json()) == before
        assert (await plane.log.state()).last_revision == end
        await plane.thresholds("llama", busy_kv_usage=0.05)
        await view.synced(10)
        assert {view.pick("llama").worker_id for _ in range(20)} == {"w1"}
        await plane.thresholds("llama")
        await view.synced(10)
        assert {view.pick("llama").worker_id for _ in range(40)} == {"w1", "w2"}
        assert (await plane.log.state()).last_revision == end + 2  # the two settings
        replayed = (await plane.log.replay()).fleet
        assert (replayed.digest, replayed.revision) == (view.digest, view.revision)


async def test_a_report_counts_for_the_life_that_made_it(plane):
    async with plane.view() as view:
        async with plane.worker(spec("w1")) as old:
            await view.synced(10)
            old.report_load(running=0)
            await eventually(heard(view, 1))
            gone = old.incarnation
        old.report_load(running=0)  # it has left: dropped, and no error
        async with plane.worker(spec("w1")), plane.worker(spec("w2")) as other:
            await view.synced(10)
            other.report_load(running=5)
            await plane.report_load("prod", "w1", incarnation=gone, running=0)
            await eventually(lambda: view.tally.heard["other_life"] == 1)
            await eventually(heard(view, 2))
            rng = Random(1)
            picked = [
                view.pick("llama", policy="least_loaded", rng=rng) for _ in range(40)
            ]
            # The new life said nothing yet: it gets its share, and not everything.
            assert {worker.worker_id for worker in picked} == {"w1", "w2"}


async def test_what_can_be_no_load_is_refused_and_a_lost_broker_is_not_waited_for():
    async with cp.connect("nats://127.0.0.1:9", settings=SETTINGS) as plane:
        worker = plane.worker(spec("w1"))
        for wrong in (
            {"kv_usage": math.nan},
            {"kv_usage": 1.5},
            {"running": -1},
            {"waiting": 1.5},
        ):
            with pytest.raises(cp.SettingsError):
                worker.report_load(**wrong)
            with pytest.raises(cp.SettingsError):
                await plane.report_load("prod", "w1", incarnation="x", **wrong)
        async with asyncio.timeout(1):
            worker.report_load(running=1)
            await plane.report_load("prod", "w1", incarnation="x", running=1)
        with pytest.raises(cp.InvalidIdentityError):
            await plane.report_load("no.such", "w1", incarnation="x", running=1)


async def test_a_group_is_of_one_namespace_and_through_the_lens(plane):
    roles = {"needs": [["prefill"]], "role": cp.Role.DECODE}
    lens = cp.NamespaceFilter.generations("prod")
    async with (
        plane.worker(spec("d", **roles)),
        plane.worker(spec("p", role=cp.Role.PREFILL)),
        plane.worker(msgspec.structs.replace(spec("d", **roles), namespace="prod2")),
        plane.worker(
            msgspec.structs.replace(spec("p", role=cp.Role.PREFILL), namespace="prod2")
        ),
        plane.view(lens) as view,
    ):
        await view.synced(10)
        for _ in range(10):
            group = view.pick_group("llama")
            assert set(group) == {cp.Role.DECODE, cp.Role.PREFILL}
            assert {worker.namespace for worker in group.values()} == {"prod"}
        view.eject(group[cp.Role.PREFILL])
        with pytest.raises(cp.ModelUnavailableError) as caught:
            view.pick_group("llama")
        assert caught.value.reasons == {"needs_unmet": 1}


async def test_a_router_that_may_not_hear_of_loads_picks_without(nats_server):
    """Credentials of a router may be older than load reports."""
    denied = 'permissions: { subscribe: { deny: ["cp.*.load.>"] } }'
    users = f"{{ user: a, password: a }}, {{ user: r, password: r, {denied} }}"
    options = ServerOptions(extra_config=f"authorization {{ users: [{users}] }}")
    server = await nats_server(options=options)
    async with cp.connect(server.url.replace("//", "//a:a@")) as plane:
        await plane.init()
        async with (
            cp.Projector(plane, http=None),
            plane.worker(spec("w1")),
            cp.connect(server.url.replace("//", "//r:r@")) as other,
            other.view() as view,
        ):
            await view.synced(10)
            assert view.pick("llama", policy="least_loaded").worker_id == "w1"
