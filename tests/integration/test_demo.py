"""The demo, once, with real processes; and its processes by themselves."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec
import pytest

from controlplane.demo import DemoEvent, run_demo
from controlplane.demo.picks import Answered, Unreachable, read_notes
from controlplane.demo.process import Announcement
from controlplane.demo.web import ask
from controlplane.errors import SettingsError
from controlplane.plane import connect
from controlplane.server import EmbeddedServer
from controlplane.serving import local
from projections import Fleet
from tests.support.waiting import eventually

ROOT = Path(__file__).parents[2]
MODEL = "meta-llama/Llama-3.1-8B-Instruct"
UP_S = 20.0
"""A Python process that imports the project, on a machine that does much else."""

SILENT = """
import asyncio, sys
from pathlib import Path
from controlplane.demo import run_demo

def show(event):
    print(event.kind, flush=True)

asyncio.run(run_demo(store_dir=Path(sys.argv[1]), on_event=show))
"""

CAN_RUN = """
from controlplane.demo.example import example_can_run
print(example_can_run())
"""


def processes_of(directory: Path) -> set[int]:
    """Processes of a demo whose server or output lives in ``directory``."""
    found = set()
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            files = {str(link.readlink()) for link in (process / "fd").iterdir()}
            if any(file.startswith(str(directory)) for file in files):
                found.add(int(process.name))
    return found - {os.getpid()}


@contextmanager
def running(
    *arguments: str, url: str = "", cwd: Path = ROOT
) -> Iterator[subprocess.Popen]:
    """Run python; at the end it is killed."""
    process = subprocess.Popen(
        [sys.executable, *arguments],
        cwd=cwd,
        env={**os.environ, "NATS_URL": url, "CP_CELL": "default"},
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def process(url: str, module: str, *arguments: str, cwd: Path = ROOT):
    """A process of the demo."""
    return running("-m", f"controlplane.demo.{module}", *arguments, url=url, cwd=cwd)


# ---- the whole -------------------------------------------------------------------
@pytest.mark.timeout(90)
async def test_the_demo_ends_in_agreement_and_its_log_can_be_replayed(tmp_path):
    events: list[DemoEvent] = []
    result = await run_demo(store_dir=tmp_path, on_event=events.append)
    assert result.ok, (result.problems, events)

    document = result.document()
    (digest,) = set(document["digests"].values())
    assert set(document["digests"]) == {"projector", "router-a", "router-b", "replay"}
    assert document["failed_picks"] == document["picks_to_dead"] == 0
    assert document["picks"] > 200
    who = [row.who for row in result.rows]
    assert who == ["projector-a", "projector-b", "router-a", "router-b", "replay"]
    assert {(row.revision, row.digest) for row in result.rows} == {
        (document["revision"], digest)
    }

    assert any("by way of examples/openai_router.py" in one.text for one in events)
    kinds = {event.kind for event in events}
    assert kinds >= {"start", "phase", "kill", "takeover", "restart", "expiry", "end"}
    assert not kinds & {"problem", "output"}

    # The rolling update cost nobody an answer: only the killed worker was missed.
    notes = [
        note for path in tmp_path.glob("demo/*.notes") for note in read_notes(path)
    ]
    missed = {note.worker for note in notes if isinstance(note, Unreachable)}
    assert missed <= {"prod-v1/qwen-4"}

    assert not processes_of(tmp_path)
    async with EmbeddedServer(tmp_path) as server, connect(server.url) as plane:
        state = await plane.log.replay()
        assert (state.revision, state.fleet.digest) == (document["revision"], digest)
    with pytest.raises(SettingsError, match="holds a log already"):
        await run_demo(store_dir=tmp_path, on_event=events.append)
    assert not processes_of(tmp_path)


@pytest.mark.timeout(60)
async def test_no_process_outlives_a_demo_that_is_killed(tmp_path):
    with running("-c", SILENT, str(tmp_path)):
        await eventually(
            lambda: len(list(tmp_path.glob("demo/llama-*.out"))) > 1, within_s=UP_S
        )
        assert len(processes_of(tmp_path)) > 2
    await eventually(lambda: not processes_of(tmp_path), within_s=10.0)


@pytest.mark.timeout(60)
async def test_a_demo_that_is_cancelled_leaves_nothing_running(tmp_path):
    demo = asyncio.create_task(run_demo(store_dir=tmp_path, on_event=lambda _: None))
    await eventually(lambda: any(tmp_path.glob("demo/router-b.out")), within_s=UP_S)
    demo.cancel()
    with pytest.raises(asyncio.CancelledError):
        await demo
    assert not processes_of(tmp_path)


@pytest.mark.timeout(60)
async def test_a_process_that_dies_by_itself_fails_the_demo_and_is_named(tmp_path):
    events: list[DemoEvent] = []

    def show(event: DemoEvent) -> None:
        events.append(event)
        if "send real requests" in event.text:
            line = (tmp_path / "demo" / "qwen-2.out").read_bytes()
            os.kill(msgspec.json.decode(line, type=Announcement).pid, signal.SIGKILL)

    result = await run_demo(store_dir=tmp_path, on_event=show)
    assert result.document()["ok"] is False
    assert result.problems == ("qwen-2 ended unexpectedly",)
    assert result.output_dir == str(tmp_path / "demo")
    shown = [event.text for event in events if event.kind == "output"]
    assert any("worker registered" in text for text in shown)
    assert not processes_of(tmp_path)


# ---- its processes alone ---------------------------------------------------------
async def up(process: subprocess.Popen) -> Announcement:
    """What it says when it is up."""
    async with asyncio.timeout(UP_S):
        line = await asyncio.to_thread(process.stdout.readline)
    return msgspec.json.decode(line, type=Announcement)


async def end(process: subprocess.Popen) -> int:
    """Its exit code after SIGTERM."""
    process.send_signal(signal.SIGTERM)
    return await asyncio.to_thread(process.wait, UP_S)


async def test_a_router_by_itself_shows_a_worker_until_it_has_drained(tmp_path):
    where = ("--namespace", "prod-v1", "--port", "0")
    async with local() as plane:
        url, address = plane.url, "http://{hostname}:{port}"
        with (
            process(url, "router", "--name", "r", "--http", "127.0.0.1:0") as router,
            process(
                url, "worker", "--model", MODEL, "--address", address, *where
            ) as worker,
        ):
            pages = (await up(router)).url
            told = await up(worker)

            async def page(path: str) -> tuple[int, bytes]:
                return await ask("GET", f"{pages}{path}")

            async def picked() -> dict | None:
                status, body = await page(f"/pick?model={MODEL}")
                return msgspec.json.decode(body) if status == 200 else None

            found = await eventually(picked, within_s=10.0)
            assert found["incarnation"] == told.incarnation
            assert found["address"] == told.url
            assert (await page("/healthz"))[0] == (await page("/readyz"))[0] == 200
            assert b"controlplane_router_picks_total 1.0" in (await page("/metrics"))[1]

            async def shows_its_revision() -> bool:
                return (
                    b"controlplane_router_revision 2.0" in (await page("/metrics"))[1]
                )

            await eventually(shows_its_revision)
            status, view = await page("/view")
            assert Fleet.from_json(view).worker("prod-v1", found["worker_id"])
            assert (await page("/pick"))[0] == 400
            assert (await page("/pick?model=nobody"))[0] == 404

            assert await end(worker) == 0
            status, _ = await page(f"/pick?model={MODEL}")
            assert status == 503
            assert (await ask("GET", f"{pages}/readyz"))[0] == 200
            assert await end(router) == 0
        kinds = [type(record.event).__name__ async for record in plane.log.read()]
    assert kinds == [
        "WorkerRegistered",
        *["WorkerStatusChanged"] * 3,
        "WorkerDeregistered",
    ]


async def test_without_the_example_a_router_picks_and_asks_by_itself(tmp_path):
    """As in an installed package, beside which there are no examples."""
    for package in ("controlplane", "projections", "events"):
        (tmp_path / package).symlink_to(ROOT / package)
    notes = tmp_path / "notes"
    asking = ("--name", "r", "--http", "127.0.0.1:0", "--model", MODEL)
    async with local() as plane:
        with (
            process(plane.url, "worker", "--model", MODEL) as worker,
            process(
                plane.url, "router", *asking, "--notes", str(notes), cwd=tmp_path
            ) as router,
        ):
            await up(worker)
            await up(router)

            def answered() -> bool:
                return any(isinstance(note, Answered) for note in read_notes(notes))

            await eventually(answered, within_s=10.0)
            assert await end(router) == 0
    with running("-c", CAN_RUN, cwd=tmp_path) as asked:
        assert await asyncio.to_thread(asked.stdout.read) == b"False\n"


async def test_a_worker_that_is_told_to_end_answers_what_it_has_begun(tmp_path):
    async with local() as plane:
        slow = ("--model", MODEL, "--answer-s", "1.5")
        with process(plane.url, "worker", *slow) as worker:
            base = (await up(worker)).url
            body = msgspec.json.encode({"model": MODEL, "messages": []})

            async def statuses() -> list[str]:
                events = [record.event async for record in plane.log.read()]
                said = [getattr(event, "status", None) for event in events]
                return ["gone" if status is None else status.value for status in said]

            async with asyncio.TaskGroup() as tasks:
                url = f"{base}/v1/chat/completions"
                answer = tasks.create_task(ask("POST", url, body))
                # In flight once a second request has gone through after it.
                assert (await ask("GET", f"{base}/health"))[0] == 200
                worker.send_signal(signal.SIGTERM)
            assert answer.result()[0] == 200
            assert await statuses() == ["starting", "ready", "draining"]
            assert await asyncio.to_thread(worker.wait, UP_S) == 0
            assert (await statuses())[3:] == ["drained", "gone"]


async def test_a_worker_answers_as_an_openai_server_does(tmp_path):
    async with local() as plane:
        with process(plane.url, "worker", "--model", MODEL) as worker:
            base = (await up(worker)).url
            status, body = await ask("GET", f"{base}/v1/models")
            assert msgspec.json.decode(body)["data"][0]["id"] == MODEL
            asked = {"model": MODEL, "messages": [{"role": "user", "content": "hi"}]}

            async def complete(**fields) -> tuple[int, dict]:
                body = msgspec.json.encode({**asked, **fields})
                status, answer = await ask("POST", f"{base}/v1/chat/completions", body)
                return status, msgspec.json.decode(answer)

            status, answer = await complete()
            assert (status, answer["object"]) == (200, "chat.completion")
            assert answer["choices"][0]["message"]["role"] == "assistant"
            assert (await complete(model="another"))[0] == 404
            assert (await complete(model=7))[0] == 400
            assert (await ask("GET", f"{base}/nowhere"))[0] == 404
            assert (await ask("GET", f"{base}/health"))[0] == 200
            assert await end(worker) == 0
