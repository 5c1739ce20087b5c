"""The store of a real server goes back: logs end lower, sequences come again."""

import asyncio

import pytest

from controlplane.broker import Outgoing, StreamSpec
from controlplane.errors import LogUnavailableError
from tests.support.reading import everything, payloads
from tests.support.servers import StoreMark
from tests.support.waiting import eventually


@pytest.fixture
async def server(nats_server):
    return await nats_server()


@pytest.fixture
async def broker(server, broker_factory):
    broker = await broker_factory(server.url)
    for name in ("ONE", "TWO"):
        spec = StreamSpec(name=name, subjects=(f"{name}.>",), allow_atomic=True)
        await broker.create_stream(spec)
    return broker


async def store(broker, stream, *texts):
    messages = [Outgoing(subject=f"{stream}.x", payload=text) for text in texts]
    return (await broker.store_batch(stream, messages)).sequence


async def holds(broker, stream):
    return payloads(await everything(broker.read(stream)))


async def test_a_log_ends_lower_and_its_sequences_come_again(server, broker):
    assert await store(broker, "ONE", b"a", b"b") == 2
    mark = await StoreMark(server).take()
    assert broker.connected
    assert await store(broker, "ONE", b"c", b"d") == 4
    await mark.roll_back()
    await broker.wait_connected(10)
    assert (await broker.state("ONE")).last_sequence == 2
    assert await holds(broker, "ONE") == [b"a", b"b"]
    assert await store(broker, "ONE", b"e") == 3
    assert await holds(broker, "ONE") == [b"a", b"b", b"e"]


async def test_a_mark_serves_more_than_once_and_of_a_killed_server_too(server, broker):
    await store(broker, "ONE", b"a")
    await server.kill()
    mark = await StoreMark(server).take()
    await server.start()
    for text in (b"b", b"c"):
        await broker.wait_connected(10)
        assert await store(broker, "ONE", text) == 2
        await mark.roll_back()
    await broker.wait_connected(10)
    assert await holds(broker, "ONE") == [b"a"]


async def test_one_stream_goes_back_alone(server, broker):
    await store(broker, "ONE", b"a")
    mark = await StoreMark(server).take()
    await store(broker, "ONE", b"b")
    await store(broker, "TWO", b"b")
    await broker.create_stream(StreamSpec(name="NEW", subjects=("NEW.>",)))
    await mark.roll_back("ONE")
    await broker.wait_connected(10)
    assert await holds(broker, "ONE") == [b"a"]
    assert await holds(broker, "TWO") == [b"b"]
    await mark.roll_back("NEW")
    await broker.wait_connected(10)
    with pytest.raises(LogUnavailableError):
        await broker.state("NEW")
    assert await holds(broker, "TWO") == [b"b"]


async def test_a_mark_under_load_has_all_that_was_acknowledged(server, broker):
    """And whole: no batch is in it by half."""
    acknowledged = 0

    async def write():
        nonlocal acknowledged
        while True:
            acknowledged = await store(broker, "ONE", b"x", b"y", b"z")

    writing = asyncio.create_task(write())
    for _ in range(3):
        goal = acknowledged + 90
        await eventually(lambda goal=goal: acknowledged > goal)
        before = acknowledged
        mark = await StoreMark(server).take()
        after = acknowledged
    writing.cancel()
    await mark.roll_back()
    await broker.wait_connected(10)
    last = (await broker.state("ONE")).last_sequence
    assert before <= last <= after + 2 * 3
    assert last % 3 == 0
