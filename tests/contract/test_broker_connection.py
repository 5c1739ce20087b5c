"""What `Broker` promises about connections and core messages, of every adapter."""

import asyncio
from contextlib import aclosing

import pytest

from controlplane.broker import Outgoing
from controlplane.errors import LogUnavailableError, SettingsError
from tests.contract.conftest import Bench, spec_of
from tests.support.reading import everything, payloads, receive, sequences, take
from tests.support.waiting import eventually


# ---- coming and going ----------------------------------------------------------
async def test_a_broker_connects_in_the_background(bench: Bench):
    broker = bench.make(4.0)
    assert not broker.connected
    await broker.start()
    await broker.wait_connected(5)
    assert broker.connected
    assert broker.server_id
    assert broker.url
    await broker.stop()
    assert not broker.connected
    assert broker.server_id is None


async def test_stopping_twice_is_fine_and_calls_fail_afterwards(bench: Bench):
    broker = await bench.broker()
    await broker.stop()
    await broker.stop()
    with pytest.raises(LogUnavailableError, match="stopped"):
        await broker.state("ANY")
    with pytest.raises(LogUnavailableError):
        await broker.wait_connected(1)
    with pytest.raises(LogUnavailableError):
        await anext(broker.follow("ANY"))


async def test_every_call_fails_in_time_while_disconnected(fragile: Bench):
    broker = await fragile.broker(connect_timeout_s=0.2)
    spec = spec_of()
    await broker.create_stream(spec)
    await fragile.cut(broker)
    await eventually(lambda: not broker.connected)
    message = Outgoing(subject=f"{spec.name}.a", payload=b"")
    calls = [
        broker.wait_connected(0.2),
        broker.create_stream(spec),
        broker.stream_differences(spec),
        broker.delete_stream(spec.name),
        broker.purge_stream(spec.name),
        broker.state(spec.name),
        broker.store(spec.name, message),
        broker.store_batch(spec.name, [message, message]),
        broker.get(spec.name, 1),
        broker.last(spec.name, message.subject),
        everything(broker.read(spec.name)),
        everything(broker.read(spec.name, last_per_subject=True)),
    ]
    async with asyncio.timeout(5):
        results = await asyncio.gather(*calls, return_exceptions=True)
    assert {type(result) for result in results} == {LogUnavailableError}


async def test_nothing_given_while_disconnected_is_kept_for_later(fragile: Bench):
    broker = await fragile.broker(connect_timeout_s=0.1)
    spec = spec_of()
    await broker.create_stream(spec)
    await fragile.cut(broker)
    await eventually(lambda: not broker.connected)
    with pytest.raises(LogUnavailableError):
        await broker.store(spec.name, Outgoing(subject=f"{spec.name}.a", payload=b""))
    await broker.publish(f"{spec.name}.a", b"core")
    await fragile.mend(broker)
    await broker.wait_connected(10)
    stored = await broker.store(
        spec.name, Outgoing(subject=f"{spec.name}.b", payload=b"")
    )
    assert stored.sequence == 1


async def test_a_call_waits_for_a_connection_that_comes_in_time(fragile: Bench):
    broker = await fragile.broker()
    spec = spec_of()
    await broker.create_stream(spec)
    await fragile.cut(broker)
    await eventually(lambda: not broker.connected)
    async with asyncio.TaskGroup() as group:
        state = group.create_task(broker.state(spec.name))
        await fragile.mend(broker)
    assert state.result().last_sequence == 0


async def test_listeners_are_told_of_each_change(fragile: Bench):
    broker = await fragile.broker()
    heard, deaf = [], []
    broker.on_connection(heard.append)
    stop = broker.on_connection(deaf.append)
    stop()
    await fragile.cut(broker)
    await eventually(lambda: heard == [False])
    await fragile.mend(broker)
    await eventually(lambda: heard == [False, True], within_s=10)
    await broker.stop()
    assert heard == [False, True, False]
    assert deaf == []


async def test_a_read_cut_off_in_the_middle_raises(fragile: Bench):
    broker = await fragile.broker(connect_timeout_s=0.5)
    spec = spec_of()
    await broker.create_stream(spec)
    message = Outgoing(subject=f"{spec.name}.a", payload=b"x" * 200)
    for _ in range(30):
        await broker.store_batch(spec.name, [message] * 1000)
    async with aclosing(broker.read(spec.name)) as batches:
        await anext(batches)
        await fragile.cut(broker)
        with pytest.raises(LogUnavailableError):
            await everything(batches)


async def test_a_follow_waits_and_resumes_with_an_empty_list(fragile: Bench):
    broker = await fragile.broker(connect_timeout_s=0.2)
    spec = spec_of()
    await broker.create_stream(spec)
    message = Outgoing(subject=f"{spec.name}.a", payload=b"")
    await broker.store(spec.name, message)
    async with aclosing(broker.follow(spec.name)) as batches:
        await take(batches, 1)
        for expected in (2, 3):
            await fragile.cut(broker)
            await eventually(lambda: not broker.connected)
            pending = asyncio.ensure_future(anext(batches))
            await fragile.mend(broker)
            async with asyncio.timeout(10):
                assert await pending == []
            await broker.store(spec.name, message)
            assert sequences(await take(batches, 1)) == [expected]


async def test_a_follow_begun_while_disconnected_is_no_resumption(fragile: Bench):
    broker = await fragile.broker()
    spec = spec_of()
    await broker.create_stream(spec)
    await broker.store(spec.name, Outgoing(subject=f"{spec.name}.a", payload=b""))
    await fragile.cut(broker)
    await eventually(lambda: not broker.connected)
    async with aclosing(broker.follow(spec.name)) as batches:
        pending = asyncio.ensure_future(anext(batches))
        await fragile.mend(broker)
        async with asyncio.timeout(10):
            assert sequences(await pending) == [1]


# ---- core ----------------------------------------------------------------------
async def test_core_messages_arrive_in_order(bench: Bench):
    sender, reader = await bench.broker(), await bench.broker()
    name = spec_of().name
    subscription = await reader.subscribe(f"{name}.*")
    others = await reader.subscribe(f"{name}.*.deep")
    for n in range(100):
        await sender.publish(f"{name}.{n % 3}", b"%d" % n)
    await sender.publish(f"{name}.a.deep", b"deep")
    got = await receive(subscription, 100)
    assert payloads(got) == [b"%d" % n for n in range(100)]
    assert [m.subject for m in got[:2]] == [f"{name}.0", f"{name}.1"]
    assert payloads(await receive(others, 1)) == [b"deep"]


async def test_a_subscription_is_in_force_when_it_returns(bench: Bench):
    sender, reader = await bench.broker(), await bench.broker()
    name = spec_of().name
    for n in range(200):
        subscription = await reader.subscribe(f"{name}.{n}")
        await sender.publish(f"{name}.{n}", b"")
        await receive(subscription, 1)


async def test_closing_a_subscription_ends_its_iteration(bench: Bench):
    broker = await bench.broker()
    subscription = await broker.subscribe("anything.here")

    async def listen() -> list[object]:
        return [message async for message in subscription]

    async with asyncio.TaskGroup() as group:
        listening = group.create_task(listen())
        await broker.publish("anything.else", b"")
        await subscription.close()
        await subscription.close()
    assert listening.result() == []


async def test_stopping_a_broker_ends_its_iterations(bench: Bench):
    broker = await bench.broker()
    subscription = await broker.subscribe("anything.here")
    await broker.stop()
    async with asyncio.timeout(5):
        assert [message async for message in subscription] == []


async def test_a_slow_reader_loses_the_oldest_and_knows_how_many(bench: Bench):
    broker = await bench.broker()
    name = spec_of().name
    slow = await broker.subscribe(name, limit=10)
    quick = await broker.subscribe(name)
    for n in range(25):
        await broker.publish(name, b"%d" % n)
    await receive(quick, 25)
    await eventually(lambda: slow.lost == 15)
    assert payloads(await receive(slow, 10)) == [b"%d" % n for n in range(15, 25)]
    assert quick.lost == 0


async def test_a_subscription_survives_reconnections(fragile: Bench):
    broker = await fragile.broker()
    subscription = await broker.subscribe("a.>")
    await fragile.cut(broker)
    await eventually(lambda: not broker.connected)
    late = await broker.subscribe("a.b")
    await fragile.mend(broker)
    await broker.wait_connected(10)
    await broker.publish("a.b", b"again")
    assert payloads(await receive(subscription, 1)) == [b"again"]
    assert payloads(await receive(late, 1)) == [b"again"]


# ---- permissions ---------------------------------------------------------------
async def test_a_refused_permission_is_a_mistake_in_the_set_up(bench: Bench):
    broker = await bench.restricted("*.Secret.>")
    spec = spec_of(subjects=("open.>", "x.Secret.>"))
    await broker.create_stream(spec)
    secret = Outgoing(subject="x.Secret.a", payload=b"")
    allowed = Outgoing(subject="open.a", payload=b"")
    with pytest.raises(SettingsError, match=r"x\.Secret\.a"):
        await broker.store(spec.name, secret, timeout_s=10)
    with pytest.raises(SettingsError, match=r"x\.Secret"):
        await broker.subscribe("x.Secret.>")
    await broker.publish("x.Secret.a", b"dropped")
    assert (await broker.store(spec.name, allowed)).sequence == 1


async def test_a_refused_permission_fails_the_batch(bench: Bench):
    broker = await bench.restricted("*.Secret.>")
    spec = spec_of(subjects=("open.>", "x.Secret.>"))
    await broker.create_stream(spec)
    secret = Outgoing(subject="x.Secret.a", payload=b"")
    allowed = Outgoing(subject="open.a", payload=b"")
    for batch in ([allowed, secret], [secret, allowed]):
        with pytest.raises(SettingsError, match=r"x\.Secret\.a"):
            await broker.store_batch(spec.name, batch, timeout_s=10)
    assert (await broker.state(spec.name)).last_sequence == 0
