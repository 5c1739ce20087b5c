"""What the memory server adds for tests and simulations: its clock and its faults."""

from datetime import UTC, datetime, timedelta

import pytest

from controlplane.broker import Outgoing, StreamSpec
from controlplane.broker.memory import MemoryBroker, MemoryServer
from controlplane.errors import AppendOutcomeUnknownError
from tests.support.reading import everything, sequences

START = datetime(2026, 1, 1, tzinfo=UTC)


class Clock:
    """A clock that moves when told to."""

    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> datetime:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def broker(clock) -> MemoryBroker:
    broker = MemoryBroker(MemoryServer(clock))
    await broker.start()
    return broker


def lease(expected: int) -> Outgoing:
    return Outgoing(subject="kv.lease", payload=b"me", expect_subject_sequence=expected)


async def test_age_is_judged_by_the_given_clock(broker, clock):
    spec = StreamSpec(
        name="KV", subjects=("kv.>",), max_age_s=2.0, max_messages_per_subject=1
    )
    await broker.create_stream(spec)
    await broker.store("KV", lease(0))
    clock.advance(1.5)
    assert (await broker.store("KV", lease(1))).sequence == 2
    clock.advance(1.999)
    assert (await broker.last("KV", "kv.lease")).sequence == 2
    clock.advance(0.001)
    assert await broker.last("KV", "kv.lease") is None
    assert (await broker.store("KV", lease(0))).sequence == 3


async def test_stored_times_and_now_come_from_the_given_clock(broker, clock):
    await broker.create_stream(StreamSpec(name="KV", subjects=("kv.>",)))
    await broker.store("KV", lease(0))
    clock.advance(60)
    assert (await broker.get("KV", 1)).stored_at == START
    assert (await broker.state("KV")).now == START + timedelta(seconds=60)


async def test_the_duplicate_window_is_judged_by_the_given_clock(broker, clock):
    await broker.create_stream(StreamSpec(name="KV", subjects=("kv.>",)))
    message = Outgoing(subject="kv.a", payload=b"", message_id="1")
    await broker.store("KV", message)
    clock.advance(119)
    assert (await broker.store("KV", message)).duplicate
    clock.advance(1)
    assert not (await broker.store("KV", message)).duplicate


async def test_a_lost_answer_leaves_the_message_stored(broker):
    await broker.create_stream(StreamSpec(name="KV", subjects=("kv.>",)))
    broker.answers_to_lose = 1
    with pytest.raises(AppendOutcomeUnknownError):
        await broker.store("KV", lease(0))
    assert sequences(await everything(broker.read("KV"))) == [1]
    await broker.store("KV", lease(1))


async def test_the_same_calls_give_the_same_messages():
    async def play() -> list[object]:
        broker = MemoryBroker(MemoryServer(Clock()))
        await broker.start()
        await broker.create_stream(
            StreamSpec(name="KV", subjects=("kv.>",), allow_atomic=True)
        )
        await broker.store("KV", lease(0))
        some = [Outgoing(subject=f"kv.{n}", payload=b"%d" % n) for n in range(5)]
        await broker.store_batch("KV", some)
        return await everything(broker.read("KV"))

    assert await play() == await play()
