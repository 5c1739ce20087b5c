"""What `Broker` promises about streams and reading them, of every adapter alike."""

import asyncio
from contextlib import aclosing
from datetime import UTC, datetime, timedelta

import pytest

from controlplane.broker import Outgoing
from controlplane.errors import (
    HistoryForkedError,
    LogUnavailableError,
    SettingsError,
    TopologyDriftError,
)
from tests.contract.conftest import Bench, spec_of
from tests.support.reading import everything, sequences, take


async def fill(broker, stream, subjects: str, *, size: int = 1) -> None:
    """Append one message on each of the one-letter ``subjects``."""
    for letter in subjects:
        subject = f"{stream.name}.{letter}"
        await broker.store(stream.name, Outgoing(subject=subject, payload=b"x" * size))


# ---- streams -------------------------------------------------------------------
async def test_creating_an_identical_stream_again_is_fine(broker):
    spec = spec_of(max_age_s=60, max_bytes=10_000, discard_new=True, deny_delete=True)
    assert await broker.stream_differences(spec) is None
    await broker.create_stream(spec)
    await fill(broker, spec, "a")
    await broker.create_stream(spec)
    assert await broker.stream_differences(spec) == ()
    assert (await broker.state(spec.name)).messages == 1


async def test_messages_are_counted_by_their_subjects(broker):
    spec = spec_of()
    await broker.create_stream(spec)
    assert await broker.count(spec.name, f"{spec.name}.>") == 0
    await fill(broker, spec, "aabac")
    for pattern, held in (("a", 3), ("b", 1), ("d", 0), ("*", 5), (">", 5)):
        assert await broker.count(spec.name, f"{spec.name}.{pattern}") == held
    await broker.purge_stream(spec.name, up_to=3)
    assert await broker.count(spec.name, f"{spec.name}.a") == 1
    with pytest.raises(LogUnavailableError):
        await broker.count("NONESUCH", "a")


async def test_other_metadata_is_no_drift_and_is_kept(broker):
    spec = spec_of(metadata={"log_id": "first"})
    await broker.create_stream(spec)
    other = spec_of(name=spec.name, subjects=spec.subjects, metadata={"log_id": "2nd"})
    assert await broker.stream_differences(other) == ()
    await broker.create_stream(other)
    assert (await broker.state(spec.name)).metadata == {"log_id": "first"}


async def test_drift_is_named_difference_by_difference(broker):
    spec = spec_of(republish=None)
    await broker.create_stream(spec)
    other = spec_of(
        name=spec.name,
        subjects=spec.subjects,
        max_bytes=5_000,
        max_messages_per_subject=1,
        description="other",
        republish=(f"{spec.name}.>", f"live-{spec.name}.>"),
    )
    with pytest.raises(TopologyDriftError) as drift:
        await broker.create_stream(other)
    assert len(drift.value.differences) == 4
    assert all(spec.name in difference for difference in drift.value.differences)
    assert "max_bytes is -1, should be 5000" in str(drift.value)
    assert await broker.stream_differences(other) == drift.value.differences


async def test_two_streams_cannot_share_a_subject(broker, stream):
    with pytest.raises(SettingsError, match="overlap"):
        await broker.create_stream(spec_of(subjects=(f"{stream.name}.a.*",)))


async def test_a_configuration_that_cannot_be_is_a_mistake(broker):
    name = spec_of().name
    spec = spec_of(name=name, subjects=(f"{name}.>",), republish=(f"{name}.>", "live"))
    with pytest.raises(SettingsError):
        await broker.create_stream(spec)


async def test_deleting_a_stream_twice_is_fine(broker, stream):
    await broker.delete_stream(stream.name)
    await broker.delete_stream(stream.name)
    assert await broker.stream_differences(stream) is None


async def test_a_missing_stream_is_unavailable(broker):
    with pytest.raises(LogUnavailableError):
        await broker.state("NONE")
    with pytest.raises(LogUnavailableError):
        await broker.get("NONE", 1)
    with pytest.raises(LogUnavailableError):
        await broker.last("NONE", "a")
    with pytest.raises(LogUnavailableError):
        await broker.purge_stream("NONE")
    with pytest.raises(LogUnavailableError):
        await everything(broker.read("NONE"))
    with pytest.raises(LogUnavailableError):
        await everything(broker.read("NONE", last_per_subject=True))


async def test_the_state_of_a_new_stream(broker):
    spec = spec_of(metadata={"log_id": "x"})
    await broker.create_stream(spec)
    state = await broker.state(spec.name)
    assert (state.first_sequence, state.last_sequence, state.messages) == (1, 0, 0)
    assert (state.bytes, state.max_bytes, state.replicas) == (0, -1, 1)
    assert state.metadata == {"log_id": "x"}
    assert state.now.tzinfo is UTC
    assert abs(state.now - datetime.now(UTC)) < timedelta(seconds=10)


async def test_the_state_counts_what_is_there(broker, stream):
    await fill(broker, stream, "ab", size=100)
    state = await broker.state(stream.name)
    assert (state.first_sequence, state.last_sequence, state.messages) == (1, 2, 2)
    assert state.bytes == 2 * (100 + len(stream.name) + 2 + 30)


async def test_a_purge_moves_the_first_sequence(broker, stream):
    await fill(broker, stream, "abc")
    await broker.purge_stream(stream.name, up_to=3)
    state = await broker.state(stream.name)
    assert (state.first_sequence, state.last_sequence, state.messages) == (3, 3, 1)
    await broker.purge_stream(stream.name)
    state = await broker.state(stream.name)
    assert (state.first_sequence, state.last_sequence, state.messages) == (4, 3, 0)
    await fill(broker, stream, "a")
    assert (await broker.state(stream.name)).last_sequence == 4


async def test_a_purge_of_a_subject_frees_it(broker, stream):
    await fill(broker, stream, "aab")
    await broker.purge_stream(stream.name, subject=f"{stream.name}.a")
    assert sequences(await everything(broker.read(stream.name))) == [3]
    fresh = Outgoing(subject=f"{stream.name}.a", payload=b"", expect_subject_sequence=0)
    assert (await broker.store(stream.name, fresh)).sequence == 4


async def test_a_purge_may_be_of_a_subject_up_to_a_sequence(broker, stream):
    await fill(broker, stream, "abab")
    await broker.purge_stream(stream.name, subject=f"{stream.name}.a", up_to=3)
    assert sequences(await everything(broker.read(stream.name))) == [2, 3, 4]


# ---- single messages -----------------------------------------------------------
async def test_get_answers_none_for_a_hole(broker, stream):
    await fill(broker, stream, "aba")
    await broker.purge_stream(stream.name, subject=f"{stream.name}.b")
    assert (await broker.get(stream.name, 1)).sequence == 1
    assert await broker.get(stream.name, 2) is None
    assert await broker.get(stream.name, 4) is None
    assert await broker.get(stream.name, 0) is None


async def test_last_answers_the_newest_of_a_subject(broker, stream):
    await fill(broker, stream, "abac")
    assert (await broker.last(stream.name, f"{stream.name}.a")).sequence == 3
    assert (await broker.last(stream.name, f"{stream.name}.*")).sequence == 4
    assert await broker.last(stream.name, f"{stream.name}.z") is None


# ---- read ----------------------------------------------------------------------
async def test_reading_an_empty_stream_ends_at_once(broker, stream):
    assert await everything(broker.read(stream.name)) == []
    assert await everything(broker.read(stream.name, last_per_subject=True)) == []
    assert await everything(broker.read(stream.name, after=5)) == []


async def test_a_read_is_bounded_on_both_sides(broker, stream):
    await fill(broker, stream, "abcabc")

    async def read(**bounds) -> list[int]:
        return sequences(await everything(broker.read(stream.name, **bounds)))

    assert await read() == [1, 2, 3, 4, 5, 6]
    assert await read(after=4) == [5, 6]
    assert await read(after=2, until=4) == [3, 4]
    assert await read(until=1) == [1]
    assert await read(after=6) == []
    assert await read(after=4, until=4) == []
    assert await read(until=100) == [1, 2, 3, 4, 5, 6]
    assert await read(subject=f"{stream.name}.b") == [2, 5]
    assert await read(subject=f"{stream.name}.b", after=2, until=4) == []
    assert await read(subject=f"{stream.name}.b", until=4) == [2]
    assert await read(subject=f"{stream.name}.z") == []


async def test_a_read_passes_over_holes(broker, stream):
    await fill(broker, stream, "abababcb")
    await broker.purge_stream(stream.name, subject=f"{stream.name}.b")
    assert sequences(await everything(broker.read(stream.name))) == [1, 3, 5, 7]
    read = broker.read(stream.name, after=1, until=6)
    assert sequences(await everything(read)) == [3, 5]
    await broker.purge_stream(stream.name, up_to=5)
    assert sequences(await everything(broker.read(stream.name))) == [5, 7]


async def test_a_read_of_the_last_per_subject(broker, stream):
    await fill(broker, stream, "abcab")

    async def read(**bounds) -> list[int]:
        found = broker.read(stream.name, last_per_subject=True, **bounds)
        return sequences(await everything(found))

    assert await read() == [3, 4, 5]
    assert await read(after=3) == [4, 5]
    assert await read(until=4) == [3, 4]
    assert await read(subject=f"{stream.name}.a") == [4]
    assert await read(subject=f"{stream.name}.z") == []


async def test_a_read_ends_though_others_append(bench: Bench, broker, stream):
    await fill(broker, stream, "a")
    other = await bench.broker()
    async with aclosing(broker.read(stream.name)) as batches:
        first = await anext(batches)
        await fill(other, stream, "aaa")
        rest = await everything(batches)
    assert sequences(first + rest) == [1]


async def test_a_long_read_is_complete_and_in_order(broker, stream):
    for start in range(0, 12_000, 1000):
        await broker.store_batch(
            stream.name,
            [
                Outgoing(subject=f"{stream.name}.s{n % 7}", payload=b"%d" % n)
                for n in range(start, start + 1000)
            ],
        )
    read = await everything(broker.read(stream.name))
    assert sequences(read) == list(range(1, 12_001))
    assert [int(m.payload) for m in read] == list(range(12_000))
    some = await everything(broker.read(stream.name, subject=f"{stream.name}.s3"))
    assert [int(m.payload) for m in some] == list(range(3, 12_000, 7))


async def test_large_messages_are_read_too(broker, stream):
    large = Outgoing(subject=f"{stream.name}.a", payload=b"x" * 900_000)
    for _ in range(40):
        await broker.store(stream.name, large)
    assert len(await everything(broker.read(stream.name))) == 40


# ---- follow --------------------------------------------------------------------
async def test_a_follow_yields_what_is_there_and_then_what_comes(broker, stream):
    await fill(broker, stream, "abc")
    async with aclosing(broker.follow(stream.name)) as batches:
        assert sequences(await take(batches, 3)) == [1, 2, 3]
        await fill(broker, stream, "a")
        assert sequences(await take(batches, 1)) == [4]
        await fill(broker, stream, "b")
        assert sequences(await take(batches, 1)) == [5]


async def test_a_follow_may_start_anywhere_and_filter(broker, stream):
    await fill(broker, stream, "abab")
    async with aclosing(broker.follow(stream.name, after=3)) as batches:
        assert sequences(await take(batches, 1)) == [4]
    filtered = broker.follow(stream.name, after=1, subject=f"{stream.name}.a")
    async with aclosing(filtered) as batches:
        assert sequences(await take(batches, 1)) == [3]
        await fill(broker, stream, "ba")
        assert sequences(await take(batches, 1)) == [6]


async def test_a_follow_of_an_empty_stream_waits(broker, stream):
    async with aclosing(broker.follow(stream.name)) as batches:
        first = asyncio.ensure_future(anext(batches))
        await broker.state(stream.name)
        assert not first.done()
        await fill(broker, stream, "a")
        async with asyncio.timeout(5):
            assert sequences(await first) == [1]


async def test_a_follow_passes_over_holes(broker, stream):
    await fill(broker, stream, "abab")
    await broker.purge_stream(stream.name, subject=f"{stream.name}.b")
    async with aclosing(broker.follow(stream.name)) as batches:
        assert sequences(await take(batches, 2)) == [1, 3]
        await fill(broker, stream, "b")
        assert sequences(await take(batches, 1)) == [5]


async def test_following_a_missing_stream_is_a_fork(broker):
    with pytest.raises(HistoryForkedError, match="missing"):
        await anext(broker.follow("NONE"))


async def test_following_from_beyond_the_end_is_a_fork(broker, stream):
    await fill(broker, stream, "a")
    with pytest.raises(HistoryForkedError) as forked:
        await anext(broker.follow(stream.name, after=2))
    assert forked.value.revision == 2


async def test_deleting_a_followed_stream_is_a_fork(broker, stream):
    await fill(broker, stream, "ab")
    batches = broker.follow(stream.name)
    await take(batches, 2)
    await broker.delete_stream(stream.name)
    with pytest.raises(HistoryForkedError) as forked:
        async with asyncio.timeout(5):
            await anext(batches)
    assert forked.value.revision == 2


async def test_a_shorter_stream_in_its_place_is_a_fork(broker, stream):
    await fill(broker, stream, "ab")
    batches = broker.follow(stream.name)
    await take(batches, 2)
    await broker.delete_stream(stream.name)
    await broker.create_stream(stream)
    await fill(broker, stream, "a")
    with pytest.raises(HistoryForkedError):
        async with asyncio.timeout(5):
            await anext(batches)


async def test_another_stream_as_long_in_its_place_shows_as_a_resumption(
    broker, stream
):
    await fill(broker, stream, "ab")
    async with aclosing(broker.follow(stream.name)) as batches:
        await take(batches, 2)
        await broker.delete_stream(stream.name)
        await broker.create_stream(stream)
        await fill(broker, stream, "abc")
        async with asyncio.timeout(5):
            assert await anext(batches) == []
        assert sequences(await take(batches, 1)) == [3]


async def test_a_follow_whose_consumer_is_deleted_goes_on_at_once(
    bench: Bench, broker, stream
):
    """The server says so; who waited for missing heartbeats would take a second."""
    await fill(broker, stream, "a")
    async with aclosing(broker.follow(stream.name)) as batches:
        await take(batches, 1)
        await bench.drop_consumers(stream.name)
        await fill(broker, stream, "b")
        async with asyncio.timeout(0.9):
            batch = await anext(batches)
            while not batch:
                batch = await anext(batches)
    assert sequences(batch) == [2]
