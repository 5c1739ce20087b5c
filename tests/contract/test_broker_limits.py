"""What `Broker` promises of what streams forget, and of entries that lapse."""

import pytest

from controlplane.broker import Broker, Outgoing, StreamSpec
from controlplane.errors import AppendConflictError
from tests.contract.conftest import spec_of
from tests.support.reading import everything, payloads, receive, sequences, take
from tests.support.waiting import eventually

BUCKET = {"max_messages_per_subject": 1}


def on(stream: StreamSpec, rest: str, payload: bytes = b"x", **fields) -> Outgoing:
    return Outgoing(subject=f"{stream.name}.{rest}", payload=payload, **fields)


def entry(stream: StreamSpec, payload: bytes, after: int) -> Outgoing:
    """Create (after 0) or update the bucket's entry."""
    return on(stream, "entry", payload, expect_subject_sequence=after)


async def made(broker: Broker, **fields) -> StreamSpec:
    spec = spec_of(**fields)
    await broker.create_stream(spec)
    return spec


async def gone(broker: Broker, spec: StreamSpec, rest: str = "entry") -> None:
    """Wait until nothing is left on that subject."""

    async def is_gone() -> bool:
        return await broker.last(spec.name, f"{spec.name}.{rest}") is None

    await eventually(is_gone, within_s=10)


# ---- entries of a bucket -------------------------------------------------------
async def test_an_entry_is_created_once_and_updated_by_who_knows_it(broker):
    spec = await made(broker, **BUCKET)
    created = await broker.store(spec.name, entry(spec, b"1", 0))
    updated = await broker.store(spec.name, entry(spec, b"2", created.sequence))
    for stale in (0, created.sequence):
        with pytest.raises(AppendConflictError) as refused:
            await broker.store(spec.name, entry(spec, b"3", stale))
        assert (refused.value.code, refused.value.last) == (10071, updated.sequence)
    found = broker.read(spec.name, last_per_subject=True)
    assert payloads(await everything(found)) == [b"2"]


async def test_an_entry_that_lapsed_can_be_created_and_not_updated(broker):
    spec = await made(broker, **BUCKET, max_age_s=0.3)
    created = await broker.store(spec.name, entry(spec, b"1", 0))
    await gone(broker, spec)
    with pytest.raises(AppendConflictError) as refused:
        await broker.store(spec.name, entry(spec, b"2", created.sequence))
    assert (refused.value.code, refused.value.last) == (10071, 0)
    assert await everything(broker.read(spec.name, last_per_subject=True)) == []
    again = await broker.store(spec.name, entry(spec, b"3", 0))
    assert again.sequence == created.sequence + 1


async def test_an_update_renews_an_entry(broker):
    spec = await made(broker, **BUCKET, max_age_s=1.0)
    last, times = 0, []

    async def outlives_its_age() -> bool:
        nonlocal last
        stored = await broker.store(spec.name, entry(spec, b"still here", last))
        last = stored.sequence
        times.append((await broker.get(spec.name, last)).stored_at)
        return (times[-1] - times[0]).total_seconds() > 1.5

    await eventually(outlives_its_age, within_s=10)


async def test_a_batch_leaves_the_last_of_each_subject_in_a_bucket(broker):
    spec = await made(broker, **BUCKET)
    batch = [on(spec, s, b"%d" % n) for n, s in enumerate(["a", "b", "a"])]
    assert (await broker.store_batch(spec.name, batch)).sequence == 3
    assert payloads(await everything(broker.read(spec.name))) == [b"1", b"2"]
    await broker.store(spec.name, on(spec, "a", expect_subject_sequence=3))


# ---- what a stream forgets -----------------------------------------------------
async def test_a_stream_that_aged_out_goes_on_where_it_was(broker):
    spec = await made(broker, max_age_s=0.3)
    batch = [on(spec, "view", b"%d" % n) for n in range(5)]
    await broker.store_batch(spec.name, batch)
    await gone(broker, spec, "view")
    state = await broker.state(spec.name)
    assert (state.first_sequence, state.last_sequence, state.messages) == (6, 5, 0)
    assert await everything(broker.read(spec.name)) == []
    followed = broker.follow(spec.name, after=2)
    stored = await broker.store(
        spec.name, on(spec, "view", b"next", expect_stream_sequence=5)
    )
    assert stored.sequence == 6
    assert sequences(await take(followed, 1)) == [6]
    await followed.aclose()


async def test_a_batch_makes_room_for_itself_where_old_messages_are_dropped(broker):
    spec = await made(broker, max_bytes=2000)
    for _ in range(12):
        await broker.store(spec.name, on(spec, "old", b"x" * 100))
    batch = [on(spec, "new", b"y" * 100) for _ in range(5)]
    assert (await broker.store_batch(spec.name, batch)).sequence == 17
    kept = sequences(await everything(broker.read(spec.name)))
    assert kept == list(range(kept[0], 18))
    assert kept[0] > 1
    assert (await broker.state(spec.name)).bytes <= 2000


async def test_a_batch_takes_the_same_room_everywhere(broker, stream):
    batch = [on(stream, "a", b"x" * 100) for _ in range(3)]
    await broker.store_batch(stream.name, batch)
    named = 3 * len(batch[0].subject)
    assert (await broker.state(stream.name)).bytes == 679 + named


async def test_a_message_id_is_known_whatever_its_subject(broker, stream):
    await broker.store(stream.name, on(stream, "a", message_id="one"))
    again = await broker.store(stream.name, on(stream, "b", message_id="one"))
    assert (again.sequence, again.duplicate) == (1, True)


async def test_a_message_id_is_known_though_its_message_was_purged(broker, stream):
    await broker.store(stream.name, on(stream, "a", message_id="one"))
    await broker.store(stream.name, on(stream, "b"))
    await broker.purge_stream(stream.name, subject=f"{stream.name}.a")
    again = await broker.store(stream.name, on(stream, "a", message_id="one"))
    assert again.duplicate


# ---- batches and republishing --------------------------------------------------
async def test_only_the_first_of_a_batch_may_expect_where_the_stream_stands(
    broker, stream
):
    for expected, code, last in ((1, 10164, None), (0, 10071, 1), (7, 10071, 1)):
        batch = [on(stream, "a"), on(stream, "b", expect_stream_sequence=expected)]
        with pytest.raises(AppendConflictError) as refused:
            await broker.store_batch(stream.name, batch)
        assert (refused.value.code, refused.value.last) == (code, last)
    assert (await broker.state(stream.name)).last_sequence == 0


async def test_what_was_before_on_a_subject_is_told_while_it_is_there(broker):
    name = spec_of().name
    spec = await made(
        broker,
        name=name,
        subjects=(f"{name}.>",),
        republish=(f"{name}.>", f"live-{name}.>"),
    )
    subscription = await broker.subscribe(f"live-{name}.>")
    await broker.store(name, on(spec, "a"))
    await broker.store(name, on(spec, "b"))
    await broker.purge_stream(name, subject=f"{name}.a")
    await broker.store(name, on(spec, "a"))
    await broker.store(name, on(spec, "b"))
    got = await receive(subscription, 4)
    assert [m.headers["Nats-Last-Sequence"] for m in got] == ["0", "0", "0", "2"]
