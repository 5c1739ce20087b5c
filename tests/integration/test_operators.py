"""Operators' decisions through the public face: held, drained, weighed, forgotten."""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter

import pytest

import controlplane as cp
from controlplane.departure import GONE_S
from tests.support.waiting import eventually

NOBODY = ("prod", "nobody")


def spec(worker_id: str, **fields) -> cp.WorkerSpec:
    return cp.WorkerSpec(
        model=fields.pop("model", "llama"),
        address=f"http://127.0.0.1/{worker_id}",
        namespace=fields.pop("namespace", "prod"),
        worker_id=worker_id,
        **{"status": "ready", **fields},
    )


async def blockers_of(view: cp.RouterView, worker_id: str) -> tuple[str, ...]:
    await view.synced(10)
    worker = view.fleet.worker("prod", worker_id)
    return worker.blockers


async def drains(worker: cp.WorkerHandle) -> None:
    """What a well-behaved process does when it is asked."""
    await worker.drain_requested.wait()
    await worker.drain(reason="asked")
    await worker.drained()


async def test_a_drain_outlives_the_worker_and_a_rebuild_until_resume():
    """S38: held by the stable id, whatever becomes of its processes and of the view."""
    async with cp.local() as plane:
        async with plane.view() as view:
            async with plane.worker(spec("w1")) as worker:
                asked = await plane.request_drain("prod", "w1", "rollout")
                await asyncio.wait_for(drains(worker), 5)
                notice = await anext(worker.notices())
                assert notice == cp.Notice("drain_requested", "rollout", asked.revision)
                assert await blockers_of(view, "w1") == ("drained", "held")
            async with plane.worker(spec("w1")):
                assert await blockers_of(view, "w1") == ("held",)
        async with plane.worker(spec("w1")) as again, plane.view() as view:
            rebuilt = await plane.log.replay()
            assert rebuilt.fleet.worker("prod", "w1").blockers == ("held",)
            await asyncio.wait_for(again.drain_requested.wait(), 5)
            assert await blockers_of(view, "w1") == ("held",)
            await plane.resume("prod", "w1", "rolled out")
            assert await blockers_of(view, "w1") == ()
            assert view.pick("llama").worker_id == "w1"


async def test_no_router_picks_who_drains_and_its_deletion_waits_for_it():
    """S39: in-flight work ends first; the deadline bounds who does not answer."""
    async with cp.local() as plane, plane.view(name="router-a") as view:
        async with (
            plane.worker(spec("w1")) as w1,
            plane.worker(spec("w2")) as w2,
        ):
            asked = await plane.request_drain("prod", "w1")
            await view.wait_for(asked.revision)
            picked = Counter(view.pick("llama").worker_id for _ in range(50))
            assert picked == {"w2": 50}
            silent = await plane.wait_drained("prod", "w1", timeout_s=0)
            assert silent == cp.DrainResult(safe_to_delete=False, state="ready")
            in_flight = asyncio.Event()

            async def finish():
                await w1.drain_requested.wait()
                await w1.drain()
                await in_flight.wait()
                await w1.drained()

            finishing = asyncio.create_task(finish())
            await eventually(lambda: w1.status is cp.Status.DRAINING)
            busy = await plane.wait_drained("prod", "w1", timeout_s=0.2)
            assert busy == cp.DrainResult(safe_to_delete=False, state="draining")
            in_flight.set()
            done = await plane.wait_drained("prod", "w1", timeout_s=5)
            assert done == cp.DrainResult(safe_to_delete=True, state="drained")
            await finishing
            assert not w2.drain_requested.is_set()
        gone = await plane.wait_drained("prod", "w1", timeout_s=5)
        assert gone == cp.DrainResult(safe_to_delete=True, state="gone")


async def test_who_drained_and_is_ready_again_can_be_asked_again():
    async with cp.local() as plane, plane.worker(spec("w1", status="starting")) as w1:
        for _ in range(2):
            await plane.request_drain("prod", "w1")
            await asyncio.wait_for(w1.drain_requested.wait(), 5)
            await w1.ready()
            assert w1.drain_requested.is_set()  # it got ready, and has not drained
            await w1.drain()
            await w1.drained()
            await plane.resume("prod", "w1")
            await w1.ready()
            assert not w1.drain_requested.is_set()


async def test_who_was_never_there_is_not_gone_and_not_waited_for():
    async with cp.local() as plane:
        await plane.request_drain("prod", "typo")
        started = time.monotonic()
        never = await plane.wait_drained("prod", "typo", timeout_s=60)
        assert never == cp.DrainResult(safe_to_delete=False, state="never_seen")
        assert time.monotonic() - started < 30


async def test_between_two_lives_a_worker_is_away_and_gone_when_it_stays_so():
    async with cp.local() as plane:
        async with plane.worker(spec("w1")):
            await plane.request_drain("prod", "w1")
        away = await plane.wait_drained("prod", "w1", timeout_s=0)
        assert away == cp.DrainResult(safe_to_delete=False, state="away")
        gate = asyncio.create_task(plane.wait_drained("prod", "w1", timeout_s=30))
        async with plane.worker(spec("w1")) as again:
            await again.drain_requested.wait()
        started = time.monotonic()
        assert await gate == cp.DrainResult(safe_to_delete=True, state="gone")
        assert time.monotonic() - started > GONE_S / 2


async def test_a_crash_that_says_drained_is_no_end_before_it_stays_so():
    """A sidecar whose engine crashed says so, and is started again by whoever does."""
    async with cp.local() as plane:
        async with plane.worker(spec("w1")) as w1:
            await w1.drained(reason="the child ended with exit code 1")
            crashed = await plane.wait_drained("prod", "w1", timeout_s=0)
            assert crashed == cp.DrainResult(safe_to_delete=False, state="drained")
        away = await plane.wait_drained("prod", "w1", timeout_s=0)
        assert away == cp.DrainResult(safe_to_delete=False, state="away")
        async with plane.worker(spec("w1")) as again:
            await again.drained()
            stayed = await plane.wait_drained("prod", "w1", timeout_s=30)
            assert stayed == cp.DrainResult(safe_to_delete=True, state="drained")


async def test_a_hold_takes_back_the_request_but_not_the_traffic():
    async with cp.local() as plane, plane.view() as view:
        await plane.request_drain("prod", "w1", "early")
        await plane.hold("prod", "w1", "looking into it", by="alice")
        async with plane.worker(spec("w1")) as worker, plane.worker(spec("w2")) as w2:
            await plane.request_drain("prod", "w2")
            await asyncio.wait_for(w2.drain_requested.wait(), 5)
            assert not worker.drain_requested.is_set()
            assert await blockers_of(view, "w1") == ("held",)
        (record,) = [r async for r in plane.log.read(after=1, until=2)]
        assert record.event.by == "alice"
        assert record.event.reason == "looking into it"


async def test_weights_share_traffic_and_cordon():
    async with (
        cp.local() as plane,
        plane.view() as view,
        plane.worker(spec("w1")),
        plane.worker(spec("w2", namespace="prod-v2")),
    ):
        await plane.weight("prod", "llama", 3)
        await view.synced(10)
        counts = Counter(view.pick("llama").namespace for _ in range(4000))
        assert 0.70 < counts["prod"] / 4000 < 0.80
        await plane.weight("prod", "*", 0.5, "for all others")
        cordoned = await plane.weight("prod-v2", "llama", 0, "not yet")
        await view.wait_for(cordoned.revision)
        assert {view.pick("llama").namespace for _ in range(50)} == {"prod"}
        blockers = view.fleet.worker("prod-v2", "w2").blockers
        assert blockers == ("weight_zero",)


async def test_thresholds_are_events_that_replace_each_other():
    async with cp.local() as plane:
        await plane.thresholds("llama", busy_kv_usage=0.9, busy_running=64)
        await plane.thresholds("llama", busy_waiting=8, reason="queues", by="bob")
        state = (await plane.log.replay()).fold_state.fleet_state
        (found,) = state.settings.values()
        assert (found.busy_kv_usage, found.busy_running) == (None, None)
        assert (found.busy_waiting, found.reason, found.by) == (8, "queues", "bob")


async def test_a_name_is_forgotten_once_nobody_serves_it():
    async with cp.local() as plane, plane.view() as view:
        async with plane.worker(spec("w1")) as worker:
            await worker.load_adapter("sql")
            for name in ("llama", "sql"):
                with pytest.raises(cp.ModelInUseError, match="prod/w1") as used:
                    await plane.forget(name)
                assert used.value.workers == ("prod/w1",)
        for name in ("llama", "sql"):
            await plane.forget(name, "retired")
            with pytest.raises(cp.ModelNotFoundError):
                await plane.forget(name)
        await view.synced(10)
        assert view.fleet.known_models == ()
        with pytest.raises(cp.ModelNotFoundError):
            view.pick("llama")


async def test_a_decision_needs_the_log_only():
    settings = cp.Settings(connect_timeout_s=0.4)
    async with (
        cp.EmbeddedServer() as server,
        cp.connect(server.url, settings=settings) as plane,
    ):
        await plane.init()
        await plane.hold(*NOBODY)
        with pytest.raises(cp.ModelNotFoundError):
            await plane.forget("llama")
        unknown = await plane.wait_drained(*NOBODY, timeout_s=0)
        assert unknown == cp.DrainResult(safe_to_delete=False, state="unknown")
        ready = await plane.wait_ready("prod", "llama", 1, timeout_s=0)
        assert ready == cp.ReadyResult(reached=False)


REFUSED = [
    (lambda p: p.weight("prod", "m", math.nan), cp.SettingsError, "weight nan"),
    (lambda p: p.weight("prod", "m", math.inf), cp.SettingsError, "weight inf"),
    (lambda p: p.weight("prod", "m", -1), cp.SettingsError, "weight -1"),
    (lambda p: p.weight("prod", "m", 1e-7), cp.SettingsError, "from 1e-06 to 1e"),
    (lambda p: p.weight("prod", "m", "1"), cp.SettingsError, "weight '1'"),
    (lambda p: p.weight("prod", "m", weight=True), cp.SettingsError, "weight True"),
    (lambda p: p.weight("prod", "m", 1e9), cp.SettingsError, "weight 1000000000.0"),
    (lambda p: p.weight("prod", "", 1), cp.InvalidIdentityError, "model ''"),
    (lambda p: p.thresholds("*"), cp.InvalidIdentityError, "stands for all"),
    (lambda p: p.thresholds("m", busy_kv_usage=0), cp.SettingsError, "busy_kv_usage 0"),
    (lambda p: p.thresholds("m", busy_kv_usage=90), cp.SettingsError, "at most 1"),
    (lambda p: p.thresholds("m", busy_running=0), cp.SettingsError, "busy_running 0"),
    (lambda p: p.thresholds("m", busy_waiting=1.5), cp.SettingsError, "whole number"),
    (lambda p: p.hold("a.b", "w1"), cp.InvalidIdentityError, "namespace 'a.b'"),
    (lambda p: p.resume("prod", ""), cp.InvalidIdentityError, "worker_id ''"),
    (lambda p: p.request_drain("prod", "w" * 129), cp.InvalidIdentityError, "128"),
    (lambda p: p.hold("prod", "w", "x" * 1025), cp.InvalidIdentityError, "reason"),
    (lambda p: p.hold("prod", "w", "a\nb"), cp.InvalidIdentityError, "reason"),
    (lambda p: p.hold("prod", "w", by=""), cp.InvalidIdentityError, "by ''"),
    (lambda p: p.forget("*"), cp.InvalidIdentityError, "model '\\*'"),
    (lambda p: p.wait("x"), cp.SettingsError, "revision 'x'"),
    (lambda p: p.wait(1.5), cp.SettingsError, "revision 1.5"),
    (lambda p: p.wait(revision=True), cp.SettingsError, "revision True"),
    (lambda p: p.wait(-1), cp.SettingsError, "revision -1"),
    (lambda p: p.wait(1, "some"), cp.SettingsError, "routers 'some'"),
    (lambda p: p.wait(1, timeout_s=math.nan), cp.SettingsError, "timeout_s nan"),
    (lambda p: p.wait_ready("a.b", "m", 1), cp.InvalidIdentityError, "namespace"),
    (lambda p: p.wait_ready("prod", "m", 0), cp.SettingsError, "min_ready 0"),
    (lambda p: p.wait_ready("p", "m", 1, role="x"), cp.InvalidIdentityError, "role"),
    (lambda p: p.wait_ready("p", "m", 1, 0), cp.SettingsError, "routers 0"),
    (lambda p: p.wait_drained("prod", "w", -1), cp.SettingsError, "timeout_s -1"),
]


@pytest.mark.parametrize(("call", "error", "said"), REFUSED)
async def test_what_cannot_be_is_refused_before_anything_is_sent(call, error, said):
    async with cp.connect("nats://127.0.0.1:1") as plane:
        with pytest.raises(error, match=said):
            await call(plane)
