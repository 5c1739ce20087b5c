"""`controlplane run` with real engines, a real broker, and real signals."""

import asyncio
import os
import signal
import sys

import pytest

from events import PortClaimed, WorkerDeregistered, WorkerRegistered
from tests.support.commands import COMMAND
from tests.support.sidecars import END_S, ENGINE, HEALTH, WORKER, is_alive, sidecar
from tests.support.waiting import eventually

ENDED_CODE = 7


async def test_an_engine_lives_as_a_worker_from_claim_to_release(cell):
    ports = ("--ports", "kv_events=1,nixl_side_channel=2")
    json_argument = '--kv={"at":{"port":"{kv_events}"}}'
    arguments = (*ports, *HEALTH, "--", *ENGINE, json_argument, "{{http}}")
    old = {"VLLM_NIXL_SIDE_CHANNEL_PORT": "5600"}
    async with sidecar(cell, *arguments, **old) as run:
        await run.says("starting", "ready")
        told = await run.ask("told")
        ended = await run.terminated()
    assert ended.code == ENDED_CODE, ended
    await run.says("starting", "ready", "draining", "drained")
    events = await run.events()
    claims = [event for event in events if isinstance(event, PortClaimed)]
    first = {event.reason: event.block_start for event in claims}
    assert events[: len(claims)] == claims, "claimed before anything else"
    assert isinstance(events[len(claims)], WorkerRegistered)
    address = f"http://{claims[0].host}:{first['http']}"
    assert events[len(claims)].address == address
    assert sum(isinstance(event, WorkerDeregistered) for event in events) == 1
    assert await run.ports_held() == 0
    kv, side = str(first["kv_events"]), str(first["nixl_side_channel"])
    kv_argument = json_argument.replace("{kv_events}", kv)
    assert told["argv"] == [str(first["http"]), kv_argument, "{http}"]
    assert (
        told["environ"].items()
        >= {
            "CP_PORT_HTTP": str(first["http"]),
            "CP_PORT_KV_EVENTS": kv,
            "CP_PORT_NIXL_SIDE_CHANNEL": side,
            "CP_PORT_NIXL_SIDE_CHANNEL_SIZE": "2",
            "DYN_VLLM_KV_EVENT_PORT": kv,
            "VLLM_NIXL_SIDE_CHANNEL_PORT": side,
            "VLLM_NIXL_SIDE_CHANNEL_HOST": claims[0].host,
            "CP_HOST": claims[0].host,
            "CP_WORKER_ID": "w1",
        }.items()
    )


async def test_an_ill_engine_is_starting_and_a_recovered_one_ready(cell):
    async with sidecar(cell, *HEALTH, "--", *ENGINE, "loading") as run:
        await run.address()
        await eventually(lambda: probed(run, 2), 5.0)
        await run.says("starting")
        await run.ask("well")
        await run.says("starting", "ready")
        await run.ask("sick")
        await run.says("starting", "ready", "starting")
        await run.ask("well")
        await run.says("starting", "ready", "starting", "ready")
        assert (await run.terminated()).code == ENDED_CODE


async def probed(run, times: int) -> bool:
    return (await run.ask("told"))["probes"] >= times


async def test_a_probe_that_fails_now_and_then_changes_nothing(cell):
    async with sidecar(cell, *HEALTH, "--", *ENGINE, "flapping") as run:
        await run.says("starting", "ready")
        await eventually(lambda: probed(run, 20), 10.0)
        await run.says("starting", "ready")


@pytest.mark.parametrize(
    ("command", "reason"),
    [("/nowhere/vllm", "No such file"), (__file__, "Permission denied")],
)
async def test_a_command_that_cannot_be_run_is_75_and_keeps_no_ports(
    cell, command, reason
):
    async with sidecar(cell, "--", command) as run:
        ended = await run.ended()
    assert ended.code == 75, ended
    assert f"cannot start '{command}': {reason}" in ended.err
    assert await run.ports_held() == 0
    assert isinstance((await run.events())[-2], WorkerDeregistered)


async def test_an_engine_that_is_never_healthy_is_75_with_its_last_answer(cell):
    arguments = (*HEALTH, "--health-timeout", "2", "--stop-timeout", "0.3")
    async with sidecar(
        cell, *arguments, "--", *ENGINE, "loading", "deaf", "parent"
    ) as run:
        told = await run.ask("told")
        ended = await run.ended()
    assert ended.code == 75, ended
    assert "503 Service Unavailable: loading the model" in ended.err
    assert not is_alive(told["pid"]), "though it ignores SIGTERM"
    assert not is_alive(told["kin"]), "and what it started, too"
    assert await run.ports_held() == 0


@pytest.mark.parametrize(
    ("program", "code"),
    [
        ("raise SystemExit(3)", 3),
        ("import os; os.kill(os.getpid(), 9)", 128 + signal.SIGKILL),
    ],
)
async def test_it_ends_as_its_child_does(cell, program, code):
    async with sidecar(cell, "--", sys.executable, "-c", program) as run:
        ended = await run.ended()
    assert ended.code == code, ended
    assert "child ended" in ended.err or "killed by SIGKILL" in ended.err
    assert await run.ports_held() == 0


async def test_what_a_crashed_engine_left_behind_ends_before_the_ports_go(cell):
    async with sidecar(cell, *HEALTH, "--", *ENGINE, "parent") as run:
        told = await run.ask("told")
        os.kill(told["pid"], signal.SIGKILL)
        ended = await run.ended()
    assert ended.code == 128 + signal.SIGKILL, ended
    assert not is_alive(told["kin"])
    assert await run.ports_held() == 0


@pytest.fixture
def hangup():
    """SIGHUP as it is by default: whoever began the tests may have had it ignored."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.usefixtures("hangup")
async def test_signals_are_passed_on_and_mean_nothing_to_the_sidecar(cell):
    async with sidecar(cell, "--", *ENGINE) as run:
        await run.says("starting", "ready")
        for number in (signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
            run.signal(number)

        async def passed_on() -> bool:
            said = (await run.ask("told"))["signals"]
            return sorted(said) == ["SIGHUP", "SIGUSR1", "SIGUSR2"]

        await eventually(passed_on, 5.0)
        assert (await run.terminated()).code == ENDED_CODE


async def test_each_further_signal_hastens_the_end(cell):
    patient = ("--drain-timeout", "60", "--stop-timeout", "60")
    async with sidecar(cell, *HEALTH, *patient, "--", *ENGINE, "deaf") as run:
        await run.says("starting", "ready")
        await run.ask("busy/1")
        run.signal(signal.SIGINT)
        await run.says("starting", "ready", "draining")
        assert (await run.ask("told"))["signals"] == []
        run.signal(signal.SIGINT)

        async def heard() -> bool:
            return (await run.ask("told"))["signals"] == ["SIGINT"]

        await eventually(heard, 5.0)
        run.signal(signal.SIGTERM)
        ended = await run.ended()
    assert ended.code == 128 + signal.SIGKILL, ended
    assert await run.ports_held() == 0


async def test_an_engine_that_ignores_its_signal_is_killed_in_time(cell):
    async with sidecar(cell, *HEALTH, "--", *ENGINE, "deaf") as run:
        await run.says("starting", "ready")
        ended = await run.terminated()
    assert ended.code == 128 + signal.SIGKILL, ended
    assert "nothing in flight" in ended.err


async def test_an_engine_dies_with_its_sidecar(cell):
    async with sidecar(cell, "--", *ENGINE, "deaf") as run:
        told = await run.ask("told")
        run.process.kill()
        await eventually(lambda: not is_alive(told["pid"]), 5.0)


async def test_without_any_stdin_the_engine_reads_nothing_and_its_code_counts(cell):
    engine = f"import sys; sys.exit({ENDED_CODE} if sys.stdin.read() == '' else 1)"
    process = await asyncio.create_subprocess_exec(
        *("/bin/sh", "-c", 'exec "$0" "$@" <&-', *COMMAND, "run", *WORKER),
        *("--health", "none", "--", sys.executable, "-c", engine),
        env={**os.environ, "NATS_URL": cell.broker.url, "CP_CELL": cell.cell},
    )
    async with asyncio.timeout(END_S):
        assert await process.wait() == ENDED_CODE
