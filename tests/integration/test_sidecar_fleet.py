"""A sidecar and the rest of the fleet: drains, loads, outages, and losing its life."""

import signal

import pytest

import controlplane as cp
from controlplane.beats import WireNotice, encode_signal
from controlplane.broker.jetstream import JetStreamBroker
from controlplane.loads import decode_load
from events import WorkerRegistered, WorkerStatusChanged
from tests.support.cells import projected_cell
from tests.support.commands import command
from tests.support.sidecars import ENGINE, HEALTH, WORKER, is_alive, sidecar
from tests.support.waiting import eventually

ENDED_CODE = 7


async def notify(run, kind: str) -> None:
    """Tell its current life something, as a leader would."""
    registered = next(e for e in await run.events() if isinstance(e, WorkerRegistered))
    records = await run.cell.records()
    notice = WireNotice(
        incarnation=registered.incarnation,
        kind=kind,
        reason="the test says so",
        revision=records[-1].revision,
    )
    subject = run.cell.names.notice("prod", "w1")
    await run.cell.broker.publish(subject, encode_signal(notice))


async def test_an_operators_drain_ends_when_nothing_is_in_flight(cell):
    async with sidecar(cell, *HEALTH, "--", *ENGINE) as run:
        await run.says("starting", "ready")
        await run.ask("busy/2")
        await notify(run, "drain_requested")
        await run.says("starting", "ready", "draining")
        await run.ask("sick")  # whoever drains is not asked whether he is well
        await run.ask("busy/0")
        await run.says("starting", "ready", "draining", "drained")
        told = await run.ask("told")
        assert told["signals"] == []
        assert await run.ports_held() == 1, "the engine still listens there"
        ended = await run.terminated()
    assert ended.code == ENDED_CODE, ended
    await run.says("starting", "ready", "draining", "drained")
    assert await run.ports_held() == 0


async def test_a_resumed_worker_serves_again(cell):
    async with (
        cp.connect(cell.broker.url, cell=cell.cell) as plane,
        sidecar(cell, *HEALTH, "--", *ENGINE) as run,
    ):
        await run.says("starting", "ready")
        await plane.request_drain("prod", "w1")
        await notify(run, "drain_requested")
        drained = ("starting", "ready", "draining", "drained")
        await run.says(*drained)
        await plane.resume("prod", "w1")
        await run.says(*drained, "starting", "ready")
        assert (await run.terminated()).code == ENDED_CODE


async def test_a_drain_without_an_end_ends_by_its_deadline(cell):
    arguments = (*HEALTH, "--drain-timeout", "1")
    async with sidecar(cell, *arguments, "--", *ENGINE) as run:
        await run.says("starting", "ready")
        await run.ask("busy/2")
        ended = await run.terminated()
    assert ended.code == ENDED_CODE, ended
    said = [e.reason for e in await run.events() if isinstance(e, WorkerStatusChanged)]
    assert said == ["", "SIGTERM", "time was up, 2 in flight"]


async def test_the_engines_load_reaches_whoever_listens(cell):
    subject = cell.names.load("prod", "w1")
    loads = await cell.broker.subscribe(subject)
    async with sidecar(cell, *HEALTH, "--", *ENGINE) as run:
        await run.says("starting", "ready")
        await run.ask("busy/3")

        async def heard() -> bool:
            load = decode_load((await anext(aiter(loads))).payload)
            assert load is not None
            return (load.running, load.waiting, load.kv_usage) == (3, 0, 0.25)

        await eventually(heard, 10.0)
        await run.ask("busy/0")
        await run.terminated()
    await loads.close()


async def test_adapters_that_the_engine_lists_are_the_workers(cell):
    url = ("--adapters-url", "http://127.0.0.1:{http}/v1/models", "--adapter", "base")
    async with sidecar(cell, *HEALTH, *url, "--", *ENGINE) as run:

        async def said(*names: str) -> bool:
            fleet = (await plane.log.replay()).fleet
            return fleet.worker("prod", "w1").adapters == names

        async with cp.connect(cell.broker.url, cell=cell.cell) as plane:
            await run.says("starting", "ready")
            await run.ask("load/sql")
            await run.ask("load/chat")
            await eventually(lambda: said("base", "chat", "sql"), 5.0)
            await run.ask("unload/chat")
            await eventually(lambda: said("base", "sql"), 5.0)
        assert (await run.terminated()).code == ENDED_CODE


async def test_a_superseded_sidecar_ends_its_engine_and_says_78(cell):
    async with sidecar(cell, *HEALTH, "--", *ENGINE) as run:
        await run.says("starting", "ready")
        told = await run.ask("told")
        other = cell.life("w1")
        await other.register()
        await notify(run, "superseded")
        ended = await run.ended()
    assert ended.code == 78, ended
    assert "was superseded" in ended.err
    assert "another worker_id" in ended.err
    assert not is_alive(told["pid"])
    assert await run.ports_held() == 0


# ---- without a broker --------------------------------------------------------------
@pytest.fixture
async def outage(nats_server, broker_factory):
    """A server of one's own, to break, with a cell on it."""
    server = await nats_server()
    broker: JetStreamBroker = await broker_factory(server.url)
    async with projected_cell(broker) as made:
        yield server, made


async def test_a_broker_that_is_away_at_first_is_waited_for(outage):
    server, cell = outage
    await server.kill()
    async with sidecar(cell, "--", *ENGINE, url=server.url) as run:
        line = b""
        while b"waiting for the broker" not in line:
            line = await run.process.stderr.readline()
            assert line, "it ended"
        assert server.url.encode() in line
        await server.start()
        await run.address()
        await run.says("starting", "ready")
        assert (await run.terminated()).code == ENDED_CODE


async def test_who_waits_for_a_broker_ends_by_a_signal(outage):
    server, cell = outage
    await server.kill()
    async with sidecar(cell, "--", *ENGINE, url=server.url) as run:
        assert b"waiting for" in await run.process.stderr.readline()
        ended = await run.terminated()
    assert ended.code == 128 + signal.SIGTERM, ended


async def test_a_required_broker_that_is_away_is_69():
    nowhere = "nats://127.0.0.1:9"
    ended = await command(
        "run", *WORKER, "--require-broker", "--", "true", NATS_URL=nowhere
    )
    assert ended.code == 69, ended
    assert nowhere in ended.err


async def test_a_cell_that_is_not_there_is_78(shared_nats_server):
    where = {"NATS_URL": shared_nats_server.url, "CP_CELL": "nobody"}
    ended = await command("run", *WORKER, "--", "true", **where)
    assert ended.code == 78, ended
    assert "controlplane init" in ended.err


async def test_an_engine_outlives_an_outage_and_what_it_was_is_told_later(outage):
    server, cell = outage
    async with sidecar(cell, *HEALTH, "--", *ENGINE, url=server.url) as run:
        await run.says("starting", "ready")
        at = await run.address()
        await server.kill()
        told = await run.ask_at(at, "told")
        await run.ask_at(at, "sick")

        async def probed() -> bool:
            return (await run.ask_at(at, "told"))["probes"] > told["probes"] + 5

        await eventually(probed, 10.0)
        assert is_alive(told["pid"])
        await server.start()
        await run.says("starting", "ready", "starting")
        assert (await run.ask_at(at, "told"))["pid"] == told["pid"]
        assert (await run.terminated()).code == ENDED_CODE
