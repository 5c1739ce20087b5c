"""``controlplane up`` as a process, and commands from a second terminal."""

import asyncio
import json
import os
import signal
from pathlib import Path

import pytest

import controlplane as cp
from tests.support.commands import Running, command, register, running
from tests.support.waiting import eventually


def up(directory: Path):
    return running(
        "up", "--port", "0", "--http", "127.0.0.1:0", "--store-dir", str(directory)
    )


async def url_of(process: Running) -> str:
    """The URL that it says to use."""
    line = await process.line_with("next  NATS_URL=")
    return line.split("NATS_URL=")[1].split()[0]


def children(pid: int) -> list[int]:
    """The processes that ``pid`` started."""
    return [
        int(child)
        for task in Path(f"/proc/{pid}/task").iterdir()
        for child in (task / "children").read_text().split()
    ]


async def test_it_serves_a_second_terminal_stops_cleanly_and_resumes(tmp_path):
    async with up(tmp_path / "data") as first:
        url = await url_of(first)
        assert "(new, empty)" in first.seen
        empty = await command("models", NATS_URL=url)
        assert empty.code == 0, empty
        assert "no model was ever registered" in empty.out
        revision = await register(url, "w1", "w2")
        before = await command("models", "-o", "json", NATS_URL=url)
        assert before.document["revision"] == revision
        (server,) = children(first.process.pid)
        ended = await first.end(signal.SIGINT)
        assert ended.code == 0, ended
        assert str(tmp_path / "data") in ended.out
        assert ended.err == ""
        await eventually(lambda: not Path(f"/proc/{server}").exists())
    async with up(tmp_path / "data") as second:
        url = await url_of(second)
        assert f"resumed at revision {revision}" in second.seen
        after = await command("models", "-o", "json", NATS_URL=url)
        assert after.out == before.out, "the same view, byte by byte"
        ended = await second.end(signal.SIGTERM)
        assert ended.code == 0, ended


async def test_a_server_that_dies_under_it_is_started_again(tmp_path):
    async with up(tmp_path) as process:
        url = await url_of(process)
        revision = await register(url, "w1")
        (server,) = children(process.process.pid)
        os.kill(server, signal.SIGKILL)
        await eventually(lambda: children(process.process.pid) not in ([], [server]))
        found = await command("wait", "--revision", "1", "--timeout", "0", NATS_URL=url)
        assert found.code == 1, "it answers: no router is there"
        view = await command("models", "-o", "json", NATS_URL=url)
        assert view.document["revision"] == revision, view
        assert (await process.end()).code == 0


async def test_a_store_in_use_or_a_port_in_use_is_one_line(tmp_path):
    async with up(tmp_path) as process:
        url = await url_of(process)
        same = await command("up", "--port", "0", "--store-dir", str(tmp_path))
        assert same.code == 78, same
        assert "in use" in same.err
        port = url.rpartition(":")[2]
        taken = await command("up", "--port", port, "--store-dir", str(tmp_path / "b"))
        assert taken.code == 78, taken
        assert f"port {port}" in taken.err
        assert "--port 0" in taken.err
        assert (await process.end()).code == 0


@pytest.fixture(scope="module")
def fleet_url(tmp_path_factory):
    """An ``up`` of this module with two workers; its URL."""
    loop = asyncio.new_event_loop()

    async def begin():
        context = up(tmp_path_factory.mktemp("up"))
        process = await context.__aenter__()
        url = await url_of(process)
        await register(url, "w1", "w2")
        return context, process, url

    context, process, url = loop.run_until_complete(begin())
    yield url
    loop.run_until_complete(process.end())
    loop.run_until_complete(context.__aexit__(None, None, None))
    loop.close()


async def test_a_replay_is_what_the_view_is(fleet_url):
    view = await command("models", "-o", "json", "--url", fleet_url)
    replay = await command("replay", "-o", "json", "--url", fleet_url)
    again = await command("replay", "-o", "json", "--url", fleet_url)
    assert replay.out == again.out, "equal views are equal bytes"
    assert replay.document["epoch"] is None
    assert {**view.document, "epoch": None} == replay.document
    async with cp.connect(fleet_url) as plane:
        state = await plane.log.replay()
    assert replay.out == state.fleet.to_json() + "\n"


async def test_a_replay_ends_where_it_is_told(fleet_url):
    first = await command("replay", "--until", "1", "-o", "json", NATS_URL=fleet_url)
    assert first.document["revision"] == 1
    workers = first.document["models"][0]["worker_sets"][0]["workers"]
    assert [worker["worker_id"] for worker in workers] == ["w1"]
    async with cp.connect(fleet_url) as plane:
        records = [record async for record in plane.log.read()]
    moment = records[0].recorded_at.isoformat()
    timed = await command("replay", "--until", moment, "-o", "json", NATS_URL=fleet_url)
    assert timed.out == first.out


async def test_listings_have_their_documents(fleet_url):
    where = {"NATS_URL": fleet_url}
    workers = await command("workers", "-o", "json", **where)
    assert [worker["worker_id"] for worker in workers.document] == ["w1", "w2"]
    lines = await command("workers", "-o", "ndjson", **where)
    assert [json.loads(line) for line in lines.lines] == workers.document
    models = await command("models", "-o", "ndjson", **where)
    assert [json.loads(line)["name"] for line in models.lines] == ["llama"]
    tail = await command("log", "tail", "-n", "1", "-o", "json", **where)
    assert [record["revision"] for record in tail.document] == [2]
    assert tail.document[0]["event"]["type"] == "worker_registered.v1"
    table = await command("log", "tail", "-n", "1", **where)
    assert len(table.lines) == 3, "a heading, a day, a record"


async def test_a_pick_is_a_worker_or_a_no(fleet_url):
    where = {"NATS_URL": fleet_url}
    picked = await command("pick", "llama", "-o", "json", **where)
    assert picked.document["worker_id"] in {"w1", "w2"}
    assert picked.document["routable"]
    many = await command("pick", "llama", "-n", "50", **where)
    assert {line.split()[0] for line in many.lines[1:]} == {"prod/w1", "prod/w2"}
    unknown = await command("pick", "nobody", **where)
    assert (unknown.code, unknown.out) == (1, "")
    assert "'nobody'" in unknown.err
    nowhere = await command("pick", "llama", "--namespace", "other", **where)
    assert (nowhere.code, nowhere.out) == (1, "")


async def test_waiting_for_routers_is_a_gate(fleet_url):
    where = {"NATS_URL": fleet_url}
    nobody = await command("wait", "--revision", "1", "--timeout", "0.1", **where)
    assert nobody.code == 1
    assert "no router is live" in nobody.out
    async with cp.connect(fleet_url) as plane, plane.view(name="router-a") as view:
        await view.synced(10)
        arguments = ("wait", "--revision", "2", "-o", "json")
        reached = await command(*arguments, **where)
        assert reached.code == 0, reached
        assert reached.document == {"reached": True, "missing": []}
        ahead = await command(*arguments[:2], "999", "--timeout", "0.2", **where)
        assert ahead.code == 1
        assert "router-a" in ahead.out
        table = await command("routers", **where)
        assert "router-a  live" in table.out


async def test_what_happens_is_followed_until_a_signal(fleet_url):
    where = {"NATS_URL": fleet_url}
    async with (
        running("watch", "-o", "ndjson", **where) as watch,
        running("log", "tail", "-n", "0", "--follow", **where) as tail,
    ):
        await watch.line_with('"worker_id":"w2"')
        await tail.line_with("REVISION")
        routers = await command("routers", "-o", "json", **where)
        assert routers.document == [], "a passer-by is no router"
        held = cp.WorkerHeld(
            event_id="0190b5a0-0000-7000-8000-000000000001",
            at="2026-01-01T00:00:00Z",
            by="test",
            namespace="prod",
            worker_id="w9",
        )
        async with cp.connect(fleet_url) as plane:
            await plane.log.append(held)
        assert "prod/w9" in await tail.line_with("worker_held")
        await register(fleet_url, "w3")
        added = json.loads(await watch.line_with('"worker_id":"w3"'))
        assert (added["kind"], added["before"]) == ("added", None)
        for process in (watch, tail):
            ended = await process.end(signal.SIGINT)
            assert ended.code == 0, ended
            assert ended.err == ""
