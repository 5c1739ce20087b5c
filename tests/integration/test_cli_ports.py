"""``controlplane ports`` and ``replay --ports`` as processes, over a real log."""

import json
import socket
from datetime import datetime

import pytest

import controlplane as cp
from controlplane.broker import Outgoing
from controlplane.playback import replay_ports
from tests.support.commands import command, registration
from tests.support.fleet_builder import (
    claimed,
    given,
    poison,
    released,
    uuid7,
)
from tests.support.servers import unique

A, B = "10.0.0.1", "größe.local"
PORT = "log.port.10%2E0%2E0%2E1.{}"


def history():
    """Two hosts; on one of them nearly every last record misleads."""
    return given(
        claimed("w1", 20000, 8),
        claimed("w2", 20008, 4),
        claimed("w1", 20000, 2, host=B),
        claimed("w3", 20000, claim=uuid7("too late")),
        released(20001, claim=uuid7("of somebody else")),
        poison(PORT.format(20002), b"[]"),
        poison(PORT.format(20900), b'{"type":"port_leased.v1"}'),
        released(20008, 4),
        released(20008, 2),
        poison("log.port.10%2E0%2E0%2E1.more.20000", b"[]"),
    )


@pytest.fixture
async def ported(shared_nats_server):
    """A cell with workers and that history; how commands find it."""
    cell = unique("ports")
    where = {"NATS_URL": shared_nats_server.url, "CP_CELL": cell}
    async with cp.connect(where["NATS_URL"], cell=cell) as plane:
        await plane.init()
        await plane.log.append(registration("w1"))
        story = history()
        names = plane.log.names
        for record, payload in zip(story, story.payloads, strict=True):
            message = Outgoing(subject=names.absolute(record.subject), payload=payload)
            await plane.broker.store(names.log_stream, message)
        await plane.log.append(registration("w2"))
        yield plane, where


async def test_the_records_of_ports_alone_are_enough(ported):
    plane, _ = ported
    whole = await plane.log.replay()
    then = await replay_ports(plane.broker, plane.log)
    assert then.ports == whole.ports
    assert then.revision == whole.revision, "the workers' records are passed by"
    assert then.log_id == whole.log_id
    for host in (A, B, "nobody"):
        part = (await replay_ports(plane.broker, plane.log, host)).ports.ports
        expected = {k: v for k, v in whole.ports.ports.items() if k[0] == host}
        assert dict(part) == expected


async def test_who_holds_what_is_listed_as_the_fold_has_it(ported):
    plane, where = ported
    state = await plane.log.replay()
    listed = await command("ports", "-o", "json", **where)
    assert listed.code == 0, listed
    document = listed.document
    assert (document["cell"], document["revision"]) == (plane.cell, state.revision)
    assert document["digest"] == state.ports.digest
    held = [block for block in document["blocks"] if block["state"] == "held"]
    found = [(b["host"], b["start"], b["end"], b["owner"]["worker_id"]) for b in held]
    assert found == [(A, 20000, 20007, "w1"), (B, 20000, 20001, "w1")]
    unreadable = [b for b in document["blocks"] if b["state"] == "unreadable"]
    assert [(b["host"], b["start"]) for b in unreadable] == [(A, 20900)]
    assert [(h["host"], h["held"]) for h in document["hosts"]] == [(A, 8), (B, 2)]
    lines = await command("ports", "--host", B, "-o", "ndjson", **where)
    assert [json.loads(line) for line in lines.lines] == held[1:]
    table = await command("ports", "--host", B, "--within", "20000-20003", **where)
    assert (
        f"{B}     2        0           0                    2  2 from 20002"
        in (table.lines[1])
    )
    assert "prod/w1" in table.out
    assert A not in table.out


async def test_a_replay_shows_the_ports_of_any_revision_the_same_each_time(ported):
    plane, where = ported
    arguments = ("replay", "--ports", "-o", "json")
    seeds = [await command(*arguments, PYTHONHASHSEED=s, **where) for s in "12"]
    assert seeds[0].code == 0, seeds[0]
    assert seeds[0].out == seeds[1].out
    view = await command("replay", "-o", "json", **where)
    document = seeds[0].document
    ports = document.pop("ports")
    assert document == view.document, "the view is the same, with ports or without"
    listed = (await command("ports", "-o", "json", **where)).document
    assert ports["digest"] == listed["digest"]
    assert ports["within"] == listed["within"]
    for until in (1, 5, 9, 13, 15):
        then = await command(*arguments, "--until", str(until), **where)
        state = await plane.log.replay(until)
        assert then.document["ports"]["digest"] == state.ports.digest
        size = sum(block["size"] for block in then.document["ports"]["blocks"])
        assert size == len(state.ports.ports), "at that moment nothing has rested"
    last = await plane.log.at(listed["revision"])
    assert datetime.fromisoformat(ports["at"]) == last.recorded_at
    lines = await command("replay", "--ports", "-o", "ndjson", **where)
    blocks = [json.loads(line) for line in lines.lines][-len(ports["blocks"]) :]
    assert blocks == ports["blocks"]
    table = await command("replay", "--ports", **where)
    assert f"ports digest {ports['digest'][:12]}" in table.out


async def test_a_cell_without_ports_says_so(shared_nats_server):
    where = {"NATS_URL": shared_nats_server.url, "CP_CELL": unique("bare")}
    assert (await command("init", **where)).code == 0
    for arguments in (("ports",), ("replay", "--ports")):
        ended = await command(*arguments, **where)
        assert ended.code == 0, ended
        assert "no port was ever claimed in this cell" in ended.out
    document = (await command("ports", "-o", "json", **where)).document
    assert (document["blocks"], document["hosts"]) == ([], [])
    assert document["revision"] == 0
    lines = await command("ports", "-o", "ndjson", **where)
    assert (lines.code, lines.out) == (0, "")


async def test_a_log_without_its_beginning_is_refused(ported):
    plane, where = ported
    await plane.broker.purge_stream(plane.log.names.log_stream, up_to=3)
    ended = await command("ports", **where)
    assert ended.code == 65, ended
    assert ended.out == ""


async def test_a_host_is_named_as_one_likes_where_it_is_this_machine(ported):
    plane, where = ported
    block = await plane.ports.claim(2, host=socket.gethostname(), bind_check=False)
    listed = await command("ports", "--host", "localhost", "-o", "ndjson", **where)
    (line,) = [json.loads(line) for line in listed.lines]
    assert (line["host"], line["start"], line["size"]) == (block.host, block.start, 2)
    refused = await command("ports", "--host", "255.255.255.255", **where)
    assert refused.code == 64
    assert "wildcard" in refused.err
