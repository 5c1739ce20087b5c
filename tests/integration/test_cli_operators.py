"""Operators' commands as processes: what they say, and the code that a script sees."""

from __future__ import annotations

import asyncio
import getpass

import pytest

import controlplane as cp
from tests.support.commands import command, running

SETTINGS = cp.Settings(presence_ttl_s=2.0)
BY = ("--by", "alice", "--reason", "rollout")


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
    async with cp.local(settings=SETTINGS) as plane:
        yield plane


async def drains(worker: cp.WorkerHandle) -> None:
    await worker.drain_requested.wait()
    await worker.drain(reason="asked")
    await worker.drained()


async def test_a_drain_ends_when_it_is_safe_to_delete_or_at_its_deadline(plane):
    """S39, as a script does it before it deletes a pod."""
    where = {"NATS_URL": plane.url}
    async with plane.worker(spec("w1")) as w1, plane.worker(spec("stuck")):
        draining = asyncio.create_task(drains(w1))
        done, late = await asyncio.gather(
            command("drain", "prod/w1", "--wait", *BY, "-o", "json", **where),
            command("drain", "prod/stuck", "--wait", "--timeout", "0.5", **where),
        )
        await draining
    assert done.code == 0, done
    revision = done.document["revision"]
    assert done.document == {
        "decision": "drain",
        "worker": "prod/w1",
        "revision": revision,
        "by": "alice",
        "reason": "rollout",
        "notes": [],
        "state": "drained",
        "safe_to_delete": True,
        "said": "",
    }
    assert late.code == 1, late
    assert late.lines[0].startswith("asked prod/stuck to drain: revision ")
    assert late.lines[1] == "not drained within 0.5 s: prod/stuck is ready"
    event = (await plane.log.at(revision)).event
    assert (event.drain, event.by, event.reason) == (True, "alice", "rollout")


async def test_why_a_worker_calls_itself_drained_is_said(plane):
    """It may have had a deadline of its own, with requests in flight."""
    async with plane.worker(spec("w1")) as worker:
        await worker.drain()
        await worker.set_status(cp.Status.DRAINED, "time was up, 5 in flight")
        done = await command("drain", "prod/w1", "--wait", NATS_URL=plane.url)
    assert done.code == 0, done
    assert done.lines[1:] == [
        "drained: prod/w1 is safe to delete",
        "  it said: time was up, 5 in flight",
    ]


async def test_holds_and_weights_say_what_they_come_to(plane):
    where = {"NATS_URL": plane.url}
    async with plane.worker(spec("w1")):
        held, weighed = await asyncio.gather(
            command("hold", "prod/w2", **where),
            command("weight", "prod", "llama", "0.5", "-o", "json", **where),
        )
        resumed = await command("resume", "prod/w2", *BY, **where)
    assert held.code == 0, held
    assert held.lines[0].startswith("held prod/w2: revision ")
    assert f", by {getpass.getuser()}@" in held.lines[0]
    assert "no worker of this name" in held.lines[1]
    assert (weighed.code, weighed.document["weight"]) == (0, 0.5), weighed
    assert weighed.document["notes"] == ["it has 100% of the traffic of llama now"]
    assert resumed.code == 0, resumed
    assert "it was not held" not in resumed.out


async def test_a_name_in_use_or_never_seen_is_not_forgotten(plane):
    where = {"NATS_URL": plane.url}
    async with plane.worker(spec("w1")):
        used, never = await asyncio.gather(
            command("forget", "llama", **where), command("forget", "lama", **where)
        )
    assert (used.code, used.out) == (1, ""), used
    assert "prod/w1" in used.err
    assert "drain them" in used.err
    assert never.code == 1, never


async def test_the_gate_of_a_deployment_is_a_code_and_one_document(plane):
    where = {"NATS_URL": plane.url}
    of_two = ("--namespace", "prod", "--model", "llama", "--min-ready", "2")
    async with plane.worker(spec("w1")), plane.worker(spec("w2")):
        nobody = await command("wait", *of_two, "--timeout", "0", **where)
        async with plane.view(name="router-a"):
            open_, shut = await asyncio.gather(
                command("wait", *of_two, "-o", "json", **where),
                command("wait", *of_two[:-1], "3", "--timeout", "0", **where),
            )
    assert nobody.code == 1, nobody
    assert "no router is live" in nobody.out
    assert open_.code == 0, open_
    assert open_.document == {"reached": True, "missing": []}
    assert shut.code == 1, shut
    assert shut.lines == [
        "not reached within 0 s: llama in prod, 2 of 3 ready",
        "  missing: router-a",
    ]


async def test_what_is_decided_of_an_adapter_s_name_is_refused(plane):
    where = {"NATS_URL": plane.url}
    async with plane.worker(spec("w1", adapters=["sql"])):
        refused = await asyncio.gather(
            command("weight", "prod", "sql", "0", **where),
            command("thresholds", "sql", "--busy-running", "2", **where),
        )
        taken = await command("weight", "prod", "llama", "-0.0", **where)
    for ended in refused:
        assert (ended.code, ended.out) == (1, ""), ended
        assert "'sql' is an adapter of 'llama'" in ended.err
        assert "set it there" in ended.err
    assert taken.code == 0, taken
    assert taken.lines[0].startswith("weight of prod for llama is 0: revision ")


async def test_a_mistyped_name_is_not_safe_to_delete(plane):
    never = await command("drain", "prod/typo", "--wait", NATS_URL=plane.url)
    assert never.code == 1, never
    assert never.lines[-2] == "never seen: no record of the log names prod/typo"
    assert "controlplane resume prod/typo" in never.lines[-1]


async def test_a_decision_is_shown_before_anything_is_looked_up():
    """Without a projector the look takes its time, and a reader should not wait."""
    async with cp.EmbeddedServer() as server, cp.connect(server.url) as plane:
        await plane.init()
        where = {"NATS_URL": server.url}
        async with running("hold", "prod/w1", *BY, **where) as held:
            await held.line_with("held prod/w1: revision ")
            assert held.process.returncode is None
            await held.line_with("no router sees it before a projector runs")
            assert await asyncio.wait_for(held.process.wait(), 10) == 0
