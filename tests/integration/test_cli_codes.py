"""Exit codes of real processes against brokers that are not as they should be."""

import asyncio
import os
import socket

import pytest

from controlplane.server import EmbeddedServer, ServerOptions
from tests.support.commands import Ended, command, spawn
from tests.support.servers import raw_client, unique

CONNECT_S = 5.0
"""A broker that is away is reported in less; on a free machine it takes 3 s…"""
SLACK_S = 3.0
"""…but here two processes start while every other test runs on the same cores."""
READING = (
    ("models",),
    ("workers", "-o", "json"),
    ("routers",),
    ("ports",),
    ("watch",),
    ("pick", "llama"),
    ("wait", "--revision", "1"),
    ("log", "tail"),
    ("replay",),
    ("replay", "--ports"),
    ("diff", "1", "2"),
    ("explain", "prod/w1"),
    ("bisect", "--first", "True"),
)
SERVING = (("init",), ("projector", "--http", "127.0.0.1:0"))


def one_line(ended: Ended) -> str:
    """The line that a command without --debug leaves on stderr."""
    assert ended.out == ""
    assert ended.err.startswith("controlplane: "), ended
    assert ended.err.count("\n") == 1, ended
    return ended.err


@pytest.fixture
def nowhere():
    """A URL at which nothing listens, and nothing will."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"nats://127.0.0.1:{taken.getsockname()[1]}"


@pytest.mark.parametrize(
    "arguments", [("models",), ("ports",), SERVING[1]], ids=" ".join
)
async def test_a_broker_that_is_away_is_named_in_time(arguments, nowhere):
    ended = await command(*arguments, NATS_URL=nowhere)
    assert ended.code == 69, ended
    said = one_line(ended)
    assert nowhere in said
    assert "controlplane up" in said
    assert ended.seconds < CONNECT_S + SLACK_S


async def test_a_broker_that_never_answers_is_away_too():
    async def silent(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter):
        await hold.wait()
        writer.close()

    hold = asyncio.Event()
    listener = await asyncio.start_server(silent, "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    ended = await command("replay", NATS_URL=f"nats://127.0.0.1:{port}")
    hold.set()
    listener.close()
    assert ended.code == 69, ended
    assert str(port) in one_line(ended)
    assert ended.seconds < CONNECT_S + SLACK_S


@pytest.mark.parametrize("arguments", [("models",), *SERVING], ids=" ".join)
async def test_jetstream_disabled_is_configuration(arguments):
    options = ServerOptions(
        extra_config="accounts { A { users: [{user: a, password: a}] } }"
    )
    async with EmbeddedServer(options=options) as server:
        url = server.url.replace("//", "//a:a@")
        ended = await command(*arguments, NATS_URL=url)
    assert ended.code == 78, ended
    assert "JetStream" in one_line(ended)
    assert "a:a" not in ended.err, "no credentials in what is printed"


@pytest.mark.parametrize("version", ["2.10.1", "2.11.11", "2.12.0"])
async def test_a_server_too_old_is_configuration(version):
    async def old(reader: asyncio.StreamReader, writer: asyncio.StreamWriter):
        writer.write(
            b'INFO {"server_id":"OLD","version":"%s","proto":1,"headers":true,'
            b'"max_payload":1048576,"jetstream":true}\r\n' % version.encode()
        )
        while line := await reader.readline():
            if line.startswith(b"PING"):
                writer.write(b"PONG\r\n")
        writer.close()

    listener = await asyncio.start_server(old, "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    ended = await command("models", NATS_URL=f"nats://127.0.0.1:{port}")
    listener.close()
    assert ended.code == 78, ended
    said = one_line(ended)
    assert version in said
    assert "2.12.1" in said


async def test_credentials_that_are_no_file_are_configuration(shared_nats_server):
    ended = await command(
        "models", "--creds", "/nowhere", NATS_URL=shared_nats_server.url
    )
    assert ended.code == 78, ended
    assert "/nowhere" in one_line(ended)


@pytest.mark.parametrize("arguments", [*READING, SERVING[1]], ids=" ".join)
async def test_a_missing_cell_says_how_to_create_it(arguments, shared_nats_server):
    cell = unique("none")
    ended = await command(*arguments, "--cell", cell, NATS_URL=shared_nats_server.url)
    assert ended.code == 78, ended
    assert f"controlplane init --cell {cell}" in one_line(ended)


async def test_a_cell_without_a_projector_says_to_start_one(shared_nats_server):
    where = {"NATS_URL": shared_nats_server.url, "CP_CELL": unique("idle")}
    assert (await command("init", **where)).code == 0
    again = await command("init", **where)
    assert again.code == 0
    assert "is as it should be" in again.out
    ended = await command("models", **where)
    assert ended.code == 75, ended
    said = one_line(ended)
    assert "controlplane projector" in said
    assert "controlplane replay" in said
    empty = await command("replay", "-o", "json", **where)
    assert empty.code == 0, "the log needs no projector"
    assert empty.document["revision"] == 0
    assert (await command("ports", **where)).code == 0, "nor do the ports"


async def test_a_drifted_stream_is_named(shared_nats_server):
    cell = unique("drift")
    where = {"NATS_URL": shared_nats_server.url, "CP_CELL": cell}
    assert (await command("init", **where)).code == 0
    stream = f"CP_{cell.upper()}_VIEW"
    async with raw_client(shared_nats_server.url) as call:
        config = (await call(f"STREAM.INFO.{stream}"))["config"]
        await call(f"STREAM.UPDATE.{stream}", {**config, "max_bytes": 1 << 20})
    for arguments in SERVING:
        ended = await command(*arguments, **where)
        assert ended.code == 78, ended
        said = one_line(ended)
        assert stream in said
        assert "max_bytes is 1048576" in said
    async with raw_client(shared_nats_server.url) as call:
        await call(f"STREAM.DELETE.{stream}")
        await call(f"STREAM.DELETE.CP_{cell.upper()}_LOG")


async def test_usage_is_64_also_as_a_process(shared_nats_server):
    ended = await command(
        "pick", "m", "--namespace", "a.b", NATS_URL=shared_nats_server.url
    )
    assert ended.code == 64, ended
    assert "namespace 'a.b'" in one_line(ended)


@pytest.mark.parametrize("arguments", ["schema", "--version", "--help"])
async def test_whoever_stops_reading_ends_it_quietly(arguments):
    read_end, write_end = os.pipe()
    os.close(read_end)
    process = await spawn(arguments, stdout=write_end)
    os.close(write_end)
    async with asyncio.timeout(30):
        _, err = await process.communicate()
    assert err == b""
    assert process.returncode == 0
