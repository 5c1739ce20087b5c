"""The proxy by itself: before a server that echoes, and before a real nats-server."""

import asyncio
from contextlib import asynccontextmanager

import pytest

from controlplane.broker import Outgoing, StreamSpec
from controlplane.errors import AppendOutcomeUnknownError
from tests.support.nats_proxy import NatsProxy
from tests.support.proxy import Proxy
from tests.support.servers import unique
from tests.support.waiting import eventually

DELAY_S = 0.2


@asynccontextmanager
async def echo_server():
    """Says everything back; yields its port and what it heard."""
    heard = bytearray()

    async def serve(reader, writer):
        while piece := await reader.read(1 << 16):
            heard.extend(piece)
            writer.write(piece)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1], heard
    finally:
        server.close()


@pytest.fixture
async def echo():
    """A proxy before an echo, a client of it, and what the server heard."""
    async with echo_server() as (port, heard), Proxy(port) as proxy:
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        await eventually(lambda: proxy.open == 1)
        yield proxy, reader, writer, heard
        writer.close()


async def says(reader, count=5):
    async with asyncio.timeout(5):
        return await reader.readexactly(count)


async def is_silent(reader, for_s=0.1):
    """Whether nothing comes for so long; what does come is kept."""
    try:
        async with asyncio.timeout(for_s):
            return not await reader.read(1)
    except TimeoutError:
        return True


async def test_all_passes_and_is_counted(echo):
    proxy, reader, writer, heard = echo
    big = bytes(range(256)) * 8192
    writer.write(big)
    assert await says(reader, len(big)) == big
    assert bytes(heard) == big
    assert proxy.to_server.bytes == proxy.to_client.bytes == len(big)
    assert (proxy.connections, proxy.open, proxy.refused) == (1, 1, 0)
    writer.close()
    await eventually(lambda: proxy.open == 0)


async def test_each_direction_pauses_by_itself_and_nothing_is_lost(echo):
    proxy, reader, writer, heard = echo
    proxy.to_client.pause()
    writer.write(b"first")
    await eventually(lambda: bytes(heard) == b"first")
    assert await is_silent(reader)
    proxy.to_client.resume()
    assert await says(reader) == b"first"
    proxy.to_server.pause()
    writer.write(b"again")
    assert await is_silent(reader)
    assert bytes(heard) == b"first"
    proxy.to_server.resume()
    assert await says(reader) == b"again"
    proxy.pause()
    writer.write(b"third")
    assert await is_silent(reader)
    proxy.resume()
    assert await says(reader) == b"third"


async def test_what_is_late_keeps_its_distances(echo):
    """Two pieces at once are both that late, not one after the other."""
    proxy, reader, writer, heard = echo
    loop = asyncio.get_running_loop()
    proxy.to_client.delay_s = DELAY_S
    began = loop.time()
    for count in range(1, 6):
        writer.write(b"x")
        await eventually(lambda count=count: len(heard) == count)
    assert await says(reader) == b"xxxxx"
    took_s = loop.time() - began
    assert DELAY_S < took_s < 3 * DELAY_S
    proxy.delay_s = 0.0
    writer.write(b"quick")
    assert await says(reader) == b"quick"


async def test_broken_connections_end_also_while_nothing_passes(echo):
    proxy, reader, writer, _ = echo
    proxy.pause()
    writer.write(b"lost!")
    proxy.drop()
    with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
        await says(reader)
    assert proxy.open == 0
    proxy.resume()


async def test_who_is_refused_is_reset_until_it_is_over(echo):
    proxy, *_ = echo
    proxy.refusing = True
    reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
    with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
        await says(reader)
    writer.close()
    proxy.refusing = False
    reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
    writer.write(b"whole")
    assert await says(reader) == b"whole"
    writer.close()
    assert (proxy.connections, proxy.refused) == (2, 1)


async def test_a_server_that_is_not_there_refuses():
    async with echo_server() as (port, _):
        pass
    async with Proxy(port) as proxy:
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
            await says(reader)
        assert proxy.refused == 1
        writer.close()


async def test_answers_are_dropped_and_questions_arrive(echo):
    proxy, reader, writer, heard = echo
    writer.write(b"heard")
    await proxy.drop_answers()
    assert bytes(heard) == b"heard"
    assert proxy.to_client.swallowed == 5
    with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
        await says(reader)
    reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
    writer.write(b"whole")
    assert await says(reader) == b"whole"
    writer.close()


# ---- before a real nats-server -----------------------------------------------------
@pytest.fixture
async def stream(broker_factory):
    """A stream of one's own and the broker that made it."""
    broker = await broker_factory()
    name = unique("KIT")
    spec = StreamSpec(name=name, subjects=(f"{name}.>",), allow_atomic=True)
    await broker.create_stream(spec)
    yield broker, name
    await broker.delete_stream(name)


def messages(name, *numbers):
    return [
        Outgoing(subject=f"{name}.{n}", payload=b"%d" % n, message_id=f"{name}-{n}")
        for n in numbers
    ]


async def test_a_store_whose_acknowledgement_is_lost_is_stored_all_the_same(
    stream, broker_factory, shared_nats_server
):
    """The connection lives on: only that one answer never comes."""
    direct, name = stream
    async with NatsProxy(shared_nats_server.port) as proxy:
        broker = await broker_factory(proxy.url)
        [one, two, three] = messages(name, 1, 2, 3)
        await broker.store(name, one)
        proxy.lose_answers(2, name)
        with pytest.raises(AppendOutcomeUnknownError, match="no answer in time"):
            await broker.store(name, two, timeout_s=0.3)
        with pytest.raises(AppendOutcomeUnknownError, match="no answer in time"):
            await broker.store_batch(name, messages(name, 4, 5), timeout_s=0.3)
        assert (await direct.state(name)).last_sequence == 4
        again = await broker.store(name, two)
        assert (again.sequence, again.duplicate) == (2, True)
        assert (await broker.store(name, three)).sequence == 5
        assert proxy.lost == 2
        assert proxy.connections == 1
        await broker.stop()


async def test_a_store_is_stored_though_its_connection_breaks_before_the_answer(
    stream, broker_factory, shared_nats_server
):
    direct, name = stream
    async with NatsProxy(shared_nats_server.port) as proxy:
        broker = await broker_factory(proxy.url)
        one, two = messages(name, 1, 2)
        proxy.lose_answers(1, name, breaking=True)
        with pytest.raises(AppendOutcomeUnknownError, match="connection was lost"):
            await broker.store(name, one)
        assert (await direct.state(name)).last_sequence == 1
        await broker.wait_connected(5)
        proxy.to_client.pause()
        storing = asyncio.ensure_future(broker.store(name, two))

        async def stored():
            return (await direct.state(name)).last_sequence == 2

        await eventually(stored)
        await proxy.drop_answers()
        proxy.to_client.resume()
        with pytest.raises(AppendOutcomeUnknownError, match="connection was lost"):
            await storing
        await broker.wait_connected(5)
        for sequence, message in enumerate((one, two), 1):
            again = await broker.store(name, message)
            assert (again.sequence, again.duplicate) == (sequence, True)
        await broker.stop()


async def test_messages_are_recognised_however_they_are_cut(
    stream, broker_factory, shared_nats_server
):
    """Some of many are lost, with and without headers, large and small."""
    _, name = stream
    async with NatsProxy(shared_nats_server.port) as proxy:
        broker = await broker_factory(proxy.url)
        subject = name.replace("KIT", "core")
        heard = await broker.subscribe(f"{subject}.>")
        proxy.lose(lambda _, payload: payload.startswith(b"lose"), count=100)
        for n in range(200):
            word = b"lose" if n % 2 else b"keep"
            await broker.publish(f"{subject}.x", word + b"%06d" % n + b"." * 7000)
        found = aiter(heard)
        async with asyncio.timeout(10):
            numbers = [int((await anext(found)).payload[4:10]) for _ in range(100)]
        assert numbers == list(range(0, 200, 2))
        await broker.publish(f"{subject}.x", b"lose no more")
        assert (await anext(found)).payload == b"lose no more"
        assert proxy.lost == 100
        await broker.stop()
