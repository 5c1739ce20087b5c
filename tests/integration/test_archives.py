"""S55, and exports and imports of real processes that are killed as they work."""

import asyncio
import random
import signal
from datetime import UTC, datetime

import pytest

from controlplane.archive import read_archive
from controlplane.broker import Outgoing
from controlplane.eventlog import EventLog
from controlplane.settings import Settings
from controlplane.topology import init
from events import Status
from tests.support.commands import command, spawn
from tests.support.dating import dated
from tests.support.fleet_builder import (
    C2,
    claimed,
    deregistered,
    expired,
    given,
    poison,
    ready,
    registered,
    released,
    silent_for,
)
from tests.support.servers import unique
from tests.support.waiting import eventually

STORY = given(
    *(registered(f"w{n}", status=Status.STARTING) for n in range(4)),
    ready("w1"),
    registered("w5", card=C2),
    claimed("w1", 20000, 3),
    poison("log.worker.prod.w2", b'{"type":"later.v1","event_id":"e"}'),
    poison("log.worker.prod.w3", b"\xff\xfe"),
    poison("log.port.10%2E0%2E0%2E1.20001", b"x" * 900_000),
    silent_for(s=3600),
    expired("w1"),
    released(20000),
    deregistered("w2"),
)
LONG = 20_000
KILLS = 2
NOWHERE = "nats://127.0.0.1:1"


@pytest.fixture
async def cells(broker):
    """Makes cells: ``log = await cells(records)``, told in batches."""

    async def make(records=()):
        name = unique("arch")
        await init(broker, name, Settings())
        log = EventLog(broker, name, Settings())
        messages = [
            Outgoing(
                subject=log.names.absolute(subject),
                payload=payload,
                headers=dated(at, place),
            )
            for place, (at, subject, payload) in enumerate(records, 1)
        ]
        while messages:
            now = messages[:1] if len(messages[0].payload) > 500_000 else messages[:500]
            now = now if len(now) == 1 else _small(now)
            await broker.store_batch(log.names.log_stream, now)
            messages = messages[len(now) :]
        return log

    return make


def _small(messages):
    size = (i for i, m in enumerate(messages) if len(m.payload) > 500_000)
    return messages[: next(size, len(messages)) or 1]


def told(story):
    return [
        (record.recorded_at, record.subject, payload)
        for record, payload in zip(story, story.payloads, strict=True)
    ]


def long_log():
    """Many records that say little: what matters is how many there are."""
    at = datetime(2026, 1, 1, tzinfo=UTC)
    tag = b'{"type":"later.v1","event_id":"%d"}'
    return [(at, f"log.worker.prod.w{n % 100}", tag % n) for n in range(LONG)]


async def stored(log):
    return [r async for batch in log.read_stored() for r in batch]


async def test_s55_a_cell_in_a_file_is_the_same_cell(cells, broker, tmp_path):
    one, two = await cells(told(STORY)), await cells()
    url, path = broker.url, str(tmp_path / "log.jsonl.zst")
    here = {"NATS_URL": url, "CP_CELL": one.names.cell}
    there = {"NATS_URL": url, "CP_CELL": two.names.cell}
    exported = await command("log", "export", path, "-o", "json", **here)
    assert exported.code == 0, exported
    assert exported.document["manifest"]["records"] == len(STORY)
    before, away, taken, full = await asyncio.gather(
        command("replay", "-o", "json", "--ports", **here),
        command(
            *("replay", "-o", "json", "--ports", "--from-archive", path),
            NATS_URL=NOWHERE,
        ),
        command("log", "import", path, **there),
        command("log", "import", path, **here),
    )
    assert before.out == away.out, "without a broker it is the same, byte for byte"
    assert taken.code == 0, taken
    assert f"imported {len(STORY)} records" in taken.out
    assert full.code == 1, full
    assert "is not empty" in full.err
    assert await stored(two) == await stored(one), "times and payloads survive"
    after = await command("replay", "-o", "json", "--ports", **there)
    same = ("revision", "digest", "models", "ports", "anomalies")
    for key in same:
        assert after.document[key] == before.document[key]


async def test_an_export_that_is_killed_again_and_again_comes_to_its_end(
    cells, broker, tmp_path
):
    log, path = await cells(long_log()), tmp_path / "log.jsonl.zst"
    part = tmp_path / "log.jsonl.zst.part"
    where = {"NATS_URL": broker.url, "CP_CELL": log.names.cell}
    chance, killed = random.Random(55), 0
    for _ in range(KILLS):
        size = part.stat().st_size if part.exists() else 0
        size += chance.randrange(20_000)
        process = await spawn("log", "export", str(path), **where)
        await eventually(
            lambda p=process, s=size: p.returncode is not None or _size(part, path) > s,
            within_s=20,
            poll_s=0.0005,
        )
        if process.returncode is None:
            process.send_signal(signal.SIGKILL)
            killed += 1
        await process.communicate()
    ended = await command("log", "export", str(path), **where)
    assert ended.code == 0, ended
    assert killed
    assert list(read_archive(path)) == [r async for r in log.read()]
    assert not part.exists()


def _size(*paths):
    return sum(path.stat().st_size for path in paths if path.exists())


async def test_an_import_that_is_killed_is_named_until_it_is_whole(
    cells, broker, tmp_path
):
    log, other = await cells(long_log()), await cells()
    path = str(tmp_path / "log.jsonl.zst")
    here = {"NATS_URL": broker.url, "CP_CELL": log.names.cell}
    there = {"NATS_URL": broker.url, "CP_CELL": other.names.cell}
    assert (await command("log", "export", path, **here)).code == 0
    least = 1

    async def reached():
        return (await other.state()).last_revision >= least

    process = await spawn("log", "import", path, **there)
    await eventually(reached, within_s=20, poll_s=0.0005)
    process.send_signal(signal.SIGINT)
    said = (await process.communicate())[1].decode()
    assert process.returncode == 130, said
    assert said.startswith("controlplane: interrupted: ")
    assert said.endswith("; the same command goes on\n")
    assert said.count("\n") == 1
    least = (await other.state()).last_revision + random.Random(56).randrange(1, 5000)
    process = await spawn("log", "import", path, **there)
    await eventually(reached, within_s=20, poll_s=0.0005)
    process.send_signal(signal.SIGKILL)
    await process.communicate()
    last = (await other.state()).last_revision
    assert least <= last < LONG
    part = await command("replay", **there)
    assert part.code == 65, part
    assert f"the log holds {last} of {LONG} records of an archive" in part.err
    ended = await command("log", "import", path, **there)
    assert ended.code == 0, ended
    assert f"it went on after record {last:,}" in ended.out
    assert await stored(other) == await stored(log)
