"""The example router as a program, before workers that are programs too."""

import asyncio
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path

import httpx
import pytest

import controlplane as cp
from controlplane.demo.speech import CHAT
from controlplane.server import die_with
from tests.support.routed import EXAMPLE, MESSAGES, events
from tests.support.waiting import eventually

ROOT = Path(__file__).parents[2]
UP_S = 20.0
WORKER = ("-m", "controlplane.demo.worker", "--model", "llama", "--answer-s", "0.1")


@contextmanager
def started(log: Path, *command: str, **environ: str) -> Iterator[subprocess.Popen]:
    """A program of ours; it dies with the test."""
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, *command],
            cwd=ROOT,
            env={**os.environ, **environ},
            stdout=output,
            stderr=output,
            preexec_fn=die_with(os.getpid()),  # noqa: PLW1509 - one syscall
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@pytest.mark.timeout(60)
async def test_the_program_routes_to_workers_of_its_namespace_until_its_end(tmp_path):
    log = tmp_path / "router.log"
    async with cp.local() as plane, AsyncExitStack() as stack:
        where = {"NATS_URL": plane.url, "CP_CELL": "default"}
        for name, namespace in (("w1", "prod-v1"), ("w2", "prod2")):
            worker = (*WORKER, "--namespace", namespace, "--worker-id", name)
            stack.enter_context(started(tmp_path / name, *worker, **where))
        program = (str(EXAMPLE), "--port", "0", "--name", "r1")
        arguments = ("--checkpoint", str(tmp_path / "r1.ckpt"), "--max-stale-s", "30")
        where["CP_NAMESPACE_PREFIX"] = "prod"
        router = stack.enter_context(started(log, *program, *arguments, **where))
        found = await eventually(
            lambda: re.search(r"running on (http://\S+)", log.read_text()), UP_S
        )
        client = httpx.AsyncClient(base_url=found[1], timeout=10.0, trust_env=False)
        await stack.enter_async_context(client)

        async def serves() -> bool:
            models = (await client.get("/v1/models")).json()["data"]
            return [card["id"] for card in models] == ["llama"]

        await eventually(serves, UP_S)
        body = {"model": "llama", "messages": MESSAGES, "stream": True}
        body["stream_options"] = {"include_usage": True}
        answers = await asyncio.gather(
            *(client.post(CHAT, json=body) for _ in range(10))
        )
        for answer in answers:
            first, *_, usage, done = events(answer.content)
            assert first["choices"][0]["delta"]["role"] == "assistant"
            assert (usage["usage"]["completion_tokens"], done) == (3, "[DONE]")
            assert b"w1" in answer.content, "prod2 is no generation of prod"
        assert [seen.presence.name for seen in await plane.routers()] == ["r1"]

        answering = asyncio.create_task(client.post(CHAT, json=body))
        assert (await client.get("/health")).json()["source"] == "live"
        router.send_signal(signal.SIGTERM)
        assert (await answering).content.endswith(b"[DONE]\n\n")
        await asyncio.to_thread(router.wait, 10.0)
        assert await plane.routers() == (), "it said goodbye"
        assert "Traceback" not in log.read_text()


async def test_the_program_says_in_one_line_what_it_cannot_use(tmp_path):
    log = tmp_path / "log"
    environ = {"CP_NAMESPACE": "no namespace"}
    with started(log, str(EXAMPLE), **environ) as program:
        code = await asyncio.to_thread(program.wait, UP_S)
    (line,) = log.read_text().splitlines()
    assert code == 1
    assert line.startswith("openai_router: ")
    assert "CP_NAMESPACE" in line
