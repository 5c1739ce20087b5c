"""The whole path through the public face: a worker's event becomes a router's view."""

from __future__ import annotations

import asyncio
import random
import time

import pytest

import controlplane as cp
from controlplane.server import ServerOptions
from tests.support.waiting import eventually

SPEC = cp.WorkerSpec(model="llama", address="http://127.0.0.1:8000", namespace="prod")


def spec(worker_id: str, **fields) -> cp.WorkerSpec:
    return cp.WorkerSpec(
        model=fields.pop("model", "llama"),
        address=f"http://127.0.0.1/{worker_id}",
        namespace=fields.pop("namespace", "prod"),
        worker_id=worker_id,
        **fields,
    )


async def test_a_worker_s_event_becomes_a_router_s_view_and_a_replay():
    async with cp.local() as plane, plane.view(name="router-a") as view:
        await view.synced(10)
        assert (view.revision, view.source) == (0, "live")
        assert view.fleet.models == {}
        with pytest.raises(cp.ModelNotFoundError):
            view.pick("llama")
        async with plane.worker(spec("w1")) as worker:
            await view.wait_for(worker.revision)
            with pytest.raises(cp.ModelUnavailableError) as unavailable:
                view.pick("llama")
            assert unavailable.value.reasons == {"starting": 1}
            await worker.ready()
            await view.synced(10)
            assert view.pick("llama").address == "http://127.0.0.1/w1"
            assert view.fleet.worker("prod", "w1").routable
            result = await plane.wait(view.revision, timeout_s=10)
            assert result == cp.WaitResult(reached=True, missing=())
        await view.synced(10)
        with pytest.raises(cp.ModelUnavailableError) as gone:
            view.pick("llama")
        assert gone.value.reasons == {}
        assert view.fleet.known_models == ("llama",)
        replayed = await plane.log.replay()
        assert (replayed.revision, replayed.fleet.digest) == (3, view.digest)
        records = [record async for record in plane.log.read()]
        assert cp.replay(records).digest == view.digest
        state = cp.PlaneState()
        for record in records:
            state = cp.fold(state, record)
        assert state.fleet == replayed.fleet


async def test_views_and_replay_are_the_same_document_byte_for_byte():
    async with cp.local() as plane, plane.view() as one, plane.view() as two:
        worker = await plane.worker(spec("w1", status="ready")).start()
        await worker.update(labels={"zone": "b", "arch": "x"})
        await asyncio.gather(one.synced(10), two.synced(10))
        (document,) = {one.fleet.to_json(), two.fleet.to_json()}
        shown = cp.Fleet.from_json(document)
        assert shown.to_json() == document
        replayed = (await plane.log.replay()).fleet
        assert replayed.epoch is None
        assert replayed.document() == shown.document() | {"epoch": None}
        await worker.stop()


async def test_two_routers_with_one_seed_pick_alike():
    async with cp.local() as plane, plane.view() as one, plane.view() as two:
        workers = [
            await plane.worker(spec(f"w{n}", status="ready")).start() for n in range(5)
        ]
        await asyncio.gather(one.synced(10), two.synced(10))
        picked = []
        for view in (one, two):
            rng = random.Random(7)
            picked.append([view.pick("llama", rng=rng).worker_id for _ in range(50)])
        assert picked[0] == picked[1]
        assert len(set(picked[0])) == 5
        await asyncio.gather(*(worker.stop() for worker in workers))


async def test_a_store_directory_keeps_the_log(tmp_path):
    async with cp.local(tmp_path) as plane:
        async with plane.worker(spec("w1", status="ready")):
            before = (await plane.log.replay()).fleet
        log_id = (await plane.log.state()).log_id
    async with cp.local(tmp_path) as plane, plane.view() as view:
        await view.synced(10)
        assert (await plane.log.state()).log_id == log_id
        assert (await plane.log.replay(until=1)).fleet == before
        assert view.revision == 2


async def test_calls_say_in_time_that_the_broker_is_away():
    settings = cp.Settings(connect_timeout_s=0.5)
    async with cp.connect("nats://127.0.0.1:1", settings=settings) as plane:
        started = time.monotonic()
        for call in (plane.init, plane.log.state, plane.worker(SPEC).start):
            with pytest.raises(cp.LogUnavailableError) as away:
                await call()
            assert "nats://127.0.0.1:1" in str(away.value)
            assert "controlplane up" in str(away.value)
        assert time.monotonic() - started < 5
        async with plane.view() as view:
            assert (view.source, view.revision, view.epoch) == ("none", 0, None)
            with pytest.raises(TimeoutError):
                await view.synced(0.2)


async def test_a_broker_without_the_cell_is_told_from_one_that_is_away(nats_server):
    server = await nats_server()
    async with cp.connect(server.url) as plane:
        with pytest.raises(cp.StreamMissingError, match="controlplane init"):
            await plane.log.state()
        assert await plane.init()
        assert (await plane.log.state()).last_revision == 0


async def test_a_broker_without_jetstream_is_refused_by_name(nats_server):
    server = await nats_server(
        options=ServerOptions(
            extra_config='accounts: {PLAIN: {users: [{user: "a", password: "b"}]}}'
            "\nno_auth_user: a\n"
        )
    )
    async with cp.connect(server.url) as plane:
        with pytest.raises(cp.SettingsError, match="JetStream"):
            await plane.init()


async def test_a_view_is_filtered_by_namespace_but_its_digest_is_the_cell_s():
    async with cp.local() as plane:
        lens = cp.NamespaceFilter.generations("prod")
        async with plane.view(lens) as some, plane.view() as everything:
            kept = [
                await plane.worker(
                    spec(f"w-{ns}", namespace=ns, status="ready")
                ).start()
                for ns in ("prod", "prod-v2", "prod2", "other")
            ]
            await asyncio.gather(some.synced(10), everything.synced(10))
            (model,) = some.fleet.models.values()
            shown = {key.namespace for key in model.worker_sets}
            assert shown == {"prod", "prod-v2"}
            assert some.digest == everything.digest
            assert some.fleet.worker("prod2", "w-prod2") is None
            picked = {some.pick("llama").namespace for _ in range(100)}
            assert picked == {"prod", "prod-v2"}
            await asyncio.gather(*(worker.stop() for worker in kept))


async def test_a_change_is_told_as_it_happens():
    async with cp.local() as plane, plane.view() as view:
        await view.synced(10)
        told: list[tuple[str, str]] = []

        async def listen() -> None:
            async for change in view.changes():
                worker = change.worker or change.before
                told.append((change.kind, f"{worker.worker_id} {worker.status.value}"))

        listener = asyncio.create_task(listen())
        async with plane.worker(spec("w1")) as worker:
            await eventually(lambda: ("added", "w1 starting") in told)
            await worker.ready()
            await eventually(lambda: ("changed", "w1 ready") in told)
        await eventually(lambda: told[-1][0] == "removed")
        listener.cancel()
        await asyncio.wait({listener})


async def test_a_newcomer_with_another_card_is_told_that_it_is_quarantined():
    """S07: the incumbents serve on; when they are gone the newcomer takes over."""
    async with cp.local() as plane, plane.view() as view:
        first = await plane.worker(spec("w1", status="ready")).start()
        card = cp.ModelCard(context_length=4096)
        async with plane.worker(spec("w2", status="ready", card=card)) as second:
            notices = second.notices()
            notice = await asyncio.wait_for(anext(notices), 10)
            assert (notice.kind, notice.revision) == ("quarantined", second.revision)
            await view.synced(10)
            newcomer = view.fleet.worker("prod", "w2")
            assert newcomer.blockers == ("checksum_mismatch",)
            (worker_set,) = view.fleet.models["llama"].worker_sets.values()
            assert newcomer.checksum in notice.reason
            assert worker_set.checksum in notice.reason
            assert {view.pick("llama").worker_id for _ in range(50)} == {"w1"}
            await first.stop()
            await view.synced(10)
            assert view.pick("llama").worker_id == "w2"


@pytest.mark.parametrize("name", sorted(cp.__all__))
def test_every_public_name_is_there(name):
    assert getattr(cp, name).__doc__


def test_replay_is_the_function():
    assert cp.replay([]).revision == 0
