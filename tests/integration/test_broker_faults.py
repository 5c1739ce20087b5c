"""The real adapter under a real server's faults: kills, stops, losses, restores."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import aclosing

import pytest

from controlplane.broker import Message, Outgoing, Stored, StreamSpec
from controlplane.broker.jetstream import JetStreamBroker
from controlplane.errors import (
    AppendOutcomeUnknownError,
    HistoryForkedError,
    LogUnavailableError,
    SettingsError,
)
from controlplane.server import EmbeddedServer, ServerOptions
from tests.support.reading import everything, payloads, sequences, take
from tests.support.servers import StoreMark, consumers_of, frozen, raw_client
from tests.support.waiting import eventually

SPEC = StreamSpec(name="LOG", subjects=("log.>",), allow_atomic=True)


def event(n: int) -> Outgoing:
    return Outgoing(subject=f"log.{n % 5}", payload=b"%d" % n, message_id=f"id-{n}")


async def insist(broker: JetStreamBroker, message: Outgoing) -> Stored:
    """Repeat the same bytes until there is a definite answer."""
    while True:
        try:
            return await broker.store("LOG", message, timeout_s=1)
        except (AppendOutcomeUnknownError, LogUnavailableError):
            continue


class Log:
    """What a follower has seen, and how often it had to resume."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.resumptions = 0

    async def fill(self, batches: AsyncIterator[list[Message]], count: int) -> None:
        """Read until ``count`` messages have been seen."""
        async with asyncio.timeout(60), aclosing(batches):
            async for batch in batches:
                self.messages += batch
                self.resumptions += not batch
                if len(self.messages) >= count:
                    return


@pytest.fixture
async def server(nats_server) -> EmbeddedServer:
    return await nats_server()


@pytest.fixture
async def broker(server, broker_factory) -> JetStreamBroker:
    broker = await broker_factory(server.url)
    await broker.create_stream(SPEC)
    return broker


async def test_a_killed_server_costs_a_follower_nothing(server, broker, broker_factory):
    reader = await broker_factory(server.url)
    log, count = Log(), 3_000

    async def publish() -> None:
        for start in range(0, count, 50):
            async with asyncio.TaskGroup() as group:
                for n in range(start, start + 50):
                    group.create_task(insist(broker, event(n)))

    async with asyncio.TaskGroup() as group:
        group.create_task(log.fill(reader.follow("LOG"), count))
        group.create_task(publish())
        for part in (1, 2, 3):
            await eventually(
                lambda part=part: len(log.messages) > part * count // 5, within_s=30
            )
            await server.kill()
            await server.start()
    assert sequences(log.messages) == list(range(1, count + 1))
    assert sorted(map(int, payloads(log.messages))) == list(range(count))
    assert log.resumptions == 3


async def test_a_deleted_consumer_is_noticed_at_once(server, broker):
    await broker.store("LOG", event(0))
    async with aclosing(broker.follow("LOG")) as batches:
        await take(batches, 1)
        [consumer] = await consumers_of(server.url, "LOG")
        async with raw_client(server.url) as call:
            await call(f"CONSUMER.DELETE.LOG.{consumer}")
        async with asyncio.timeout(1.5):
            assert await anext(batches) == []
        await broker.store("LOG", event(1))
        assert sequences(await take(batches, 1)) == [2]


@pytest.mark.parametrize("which", [b"2", b"4"], ids=["in the middle", "the last"])
async def test_a_lost_delivery_is_noticed_and_fetched_again(broker, monkeypatch, which):
    from controlplane.broker.consumer import Consumer  # noqa: PLC0415  # patched here

    honest = Consumer._on_message
    lost = []

    def lossy(consumer, raw):
        if raw.payload == which and not lost:
            lost.append(raw)
            return
        honest(consumer, raw)

    monkeypatch.setattr(Consumer, "_on_message", lossy)
    log = Log()
    async with asyncio.TaskGroup() as group:
        group.create_task(log.fill(broker.follow("LOG"), 5))
        for n in range(5):
            await broker.store("LOG", event(n))
    assert lost
    assert sequences(log.messages) == [1, 2, 3, 4, 5]
    assert log.resumptions == 1


async def test_a_stream_recreated_by_others_is_a_fork(server, broker, broker_factory):
    other = await broker_factory(server.url)
    batches = broker.follow("LOG")
    for n in range(3):
        await broker.store("LOG", event(n))
    await take(batches, 3)
    await other.delete_stream("LOG")
    await other.create_stream(SPEC)
    with pytest.raises(HistoryForkedError) as forked:
        async with asyncio.timeout(5):
            await anext(batches)
    assert forked.value.revision == 3


async def test_a_store_restored_from_an_older_copy_is_a_fork(server, broker):
    await broker.store("LOG", event(0))
    mark = await StoreMark(server).take()
    await insist(broker, event(1))
    batches = broker.follow("LOG")
    await take(batches, 2)
    await mark.roll_back()
    with pytest.raises(HistoryForkedError, match="ends at 1 now"):
        async with asyncio.timeout(10):
            await anext(batches)


async def test_a_stopped_server_is_noticed_and_everything_arrives_once(
    server, broker, broker_factory
):
    reader = await broker_factory(server.url)
    log = Log()
    async with asyncio.TaskGroup() as group:
        group.create_task(log.fill(reader.follow("LOG"), 3))
        await broker.store("LOG", event(0))
        await eventually(lambda: log.messages)
        with frozen(server):
            assert broker.connected
            with pytest.raises(AppendOutcomeUnknownError):
                await broker.store("LOG", event(1), timeout_s=0.2)
            await eventually(lambda: not broker.connected, within_s=8)
        await broker.wait_connected(10)
        await insist(broker, event(1))
        await insist(broker, event(2))
    assert payloads(log.messages) == [b"0", b"1", b"2"]


async def test_a_store_interrupted_by_a_crash_has_an_unknown_outcome(server, broker):
    with frozen(server):
        storing = asyncio.ensure_future(broker.store("LOG", event(0), timeout_s=30))
        batch = [event(1), event(2)]
        batching = asyncio.ensure_future(broker.store_batch("LOG", batch, timeout_s=30))
        await asyncio.wait([storing, batching], timeout=0.1)
        os.kill(server.pid, signal.SIGKILL)
        for pending in (storing, batching):
            with pytest.raises(AppendOutcomeUnknownError, match="connection was lost"):
                async with asyncio.timeout(5):
                    await pending
    await server.kill()


async def test_a_slow_follower_leaves_its_backlog_at_the_server(server, broker):
    count = 30_000
    await broker.store("LOG", event(0))
    async with aclosing(broker.follow("LOG")) as batches:
        await take(batches, 1)
        for start in range(1, count, 1000):
            some = [event(n) for n in range(start, min(start + 1000, count))]
            await broker.store_batch("LOG", some)
        [consumer] = await consumers_of(server.url, "LOG")
        async with raw_client(server.url) as call:
            info = await call(f"CONSUMER.INFO.LOG.{consumer}")
        assert info["num_pending"] > count // 2
        assert sequences(await take(batches, count - 1)) == list(range(2, count + 1))


async def test_no_consumer_is_left_behind(server, broker):
    for n in range(10):
        await broker.store("LOG", event(n))
    await everything(broker.read("LOG"))
    async with aclosing(broker.read("LOG", last_per_subject=True)) as batches:
        await anext(batches)
    follow = broker.follow("LOG")
    await take(follow, 10)
    waiting = asyncio.ensure_future(anext(follow))
    assert len(await consumers_of(server.url, "LOG")) == 1
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting

    async def none_left() -> bool:
        return not await consumers_of(server.url, "LOG")

    await eventually(none_left)


async def test_a_broker_started_before_its_server_connects_later(broker_factory):
    async with EmbeddedServer() as server:
        url, port = server.url, server.port
    broker = await broker_factory(url, wait=False)
    with pytest.raises(LogUnavailableError):
        await broker.wait_connected(0.3)
    async with EmbeddedServer(port=port):
        await broker.wait_connected(5)


async def test_one_of_several_servers_is_enough(server, broker_factory):
    async with EmbeddedServer() as gone:
        dead = gone.url
    broker = await broker_factory(f"{dead},{server.url}")
    assert broker.url == f"{dead},{server.url}"


async def test_credentials_are_used_and_never_shown(nats_server, broker_factory):
    options = ServerOptions(
        extra_config="authorization { user: u, password: 's3cret' }"
    )
    server = await nats_server(options=options)
    good = server.url.replace("//", "//u:s3cret@")
    broker = await broker_factory(good)
    assert "s3cret" not in broker.url
    wrong = await broker_factory(server.url.replace("//", "//u:no@"), wait=False)
    with pytest.raises(SettingsError, match="credentials") as refused:
        await wrong.wait_connected(5)
    assert ":no@" not in str(refused.value)


async def test_an_account_without_jetstream_is_a_mistake(nats_server, broker_factory):
    options = ServerOptions(
        extra_config="accounts { A { users: [{user: a, password: a}] } }"
    )
    server = await nats_server(options=options)
    broker = await broker_factory(server.url.replace("//", "//a:a@"), wait=False)
    with pytest.raises(SettingsError, match="JetStream"):
        await broker.wait_connected(5)
    assert broker.connected


async def test_credentials_that_may_not_hear_answers_are_a_mistake(
    nats_server, broker_factory
):
    options = ServerOptions(
        extra_config="""authorization { users: [{
          user: u, password: p, permissions: { subscribe: { allow: ["other.>"] } }
        }] }"""
    )
    server = await nats_server(options=options)
    broker = await broker_factory(server.url.replace("//", "//u:p@"), wait=False)
    with pytest.raises(SettingsError, match="_INBOX"):
        await broker.wait_connected(5)


async def test_an_unavailable_broker_says_why(broker_factory):
    async with EmbeddedServer() as server:
        url = server.url
    broker = await broker_factory(url, wait=False)
    with pytest.raises(LogUnavailableError, match="Connect call failed"):
        await broker.wait_connected(0.3)


async def test_a_server_too_old_is_a_mistake(broker_factory):
    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b'INFO {"version":"2.11.9","headers":true,"max_payload":1000}\r\n')
        while line := await reader.readline():
            if line.startswith(b"PING"):
                writer.write(b"PONG\r\n")
        writer.close()

    fake = await asyncio.start_server(greet, "127.0.0.1", 0)
    port = fake.sockets[0].getsockname()[1]
    broker = await broker_factory(f"nats://127.0.0.1:{port}", wait=False)
    with pytest.raises(SettingsError, match=r"2\.11\.9"):
        await broker.wait_connected(5)
    await broker.stop()
    fake.close()


async def test_giving_up_on_a_call_does_not_harm_the_connection(server, broker):
    for _ in range(20):
        hasty = asyncio.ensure_future(broker.subscribe("log.>"))
        await asyncio.wait([hasty], timeout=0)
        hasty.cancel()
        slow = asyncio.ensure_future(broker.store("LOG", event(0)))
        await asyncio.wait([slow], timeout=0)
        slow.cancel()
        await asyncio.wait([hasty, slow])
    server_id = broker.server_id
    assert (await broker.store("LOG", event(1))).sequence > 1
    assert broker.server_id == server_id


async def test_stopping_while_connecting_ends_at_once(broker_factory):
    async with EmbeddedServer() as server:
        url = server.url
    async with asyncio.timeout(20):
        for turn in range(200):
            broker = await broker_factory(url, wait=False)
            for _ in range(turn % 20):  # any step of connecting
                await asyncio.wait([asyncio.ensure_future(asyncio.sleep(0))])
            await broker.stop()
