"""``controlplane projector`` and ``demo`` as processes."""

import json
import signal

from tests.support.commands import command, register, running
from tests.support.servers import unique
from tests.support.waiting import eventually


async def test_a_projector_leaves_a_view_that_is_good_until_the_log_goes_on(
    shared_nats_server,
):
    url, cell = shared_nats_server.url, unique("proj")
    where = {"NATS_URL": url, "CP_CELL": cell}
    assert (await command("init", **where)).code == 0
    async with running(
        "projector", "--http", "127.0.0.1:0", "--name", "pa", **where
    ) as projector:
        await register(url, "w1", cell=cell)
        seen = await command("models", **where)
        assert seen.code == 0, seen
        ended = await projector.end(signal.SIGTERM)
    assert ended.code == 0, ended
    started = json.loads(ended.err.splitlines()[0])
    assert (started["event"], started["projector"]) == ("projector started", "pa")
    assert started["http"].startswith("http://127.0.0.1:")
    left = await command("models", "-o", "json", **where)
    assert left.code == 0, left
    assert left.document["revision"] == 1
    await register(url, "w2", cell=cell)
    behind = await command("models", **where)
    assert behind.code == 75, behind
    assert "revision 1, the log ends at 2" in behind.err
    assert f"controlplane projector --cell {cell}" in behind.err


async def test_the_demo_answers_with_its_document_alone(tmp_path):
    ended = await command("demo", "-o", "json", "--store-dir", str(tmp_path))
    assert ended.code == 0, ended
    assert ended.err == ""
    document = ended.document
    assert list(document) == sorted(document)
    assert document["ok"] is True
    assert len(set(document["digests"].values())) == 1
    assert {"router-a", "router-b", "replay"} <= set(document["digests"])
    assert (document["failed_picks"], document["picks_to_dead"]) == (0, 0)
    assert document["picks"] > 0


async def test_a_demo_is_ended_by_a_signal_without_a_word(tmp_path):
    async with running("demo", "--store-dir", str(tmp_path)) as demo:
        await demo.line_with("nats-server")
        ended = await demo.end(signal.SIGINT)
    assert ended.code == 128 + signal.SIGINT, ended
    assert ended.err == ""
    await eventually(lambda: not list(tmp_path.glob("nats-server_*.ports")))
