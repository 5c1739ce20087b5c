"""What `Broker` promises about storing, of every adapter alike."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from controlplane.broker import Broker, Outgoing, StreamSpec
from controlplane.errors import (
    AppendConflictError,
    LogFullError,
    LogUnavailableError,
    SettingsError,
)
from tests.contract.conftest import Bench, spec_of
from tests.support.reading import everything, payloads, receive, sequences
from tests.support.waiting import eventually


def on(stream: StreamSpec, rest: str, payload: bytes = b"x", **fields) -> Outgoing:
    return Outgoing(subject=f"{stream.name}.{rest}", payload=payload, **fields)


# ---- one message ---------------------------------------------------------------
async def test_sequences_count_from_one(broker: Broker, stream: StreamSpec):
    stored = [await broker.store(stream.name, on(stream, "a")) for _ in range(3)]
    assert [s.sequence for s in stored] == [1, 2, 3]
    assert not any(s.duplicate for s in stored)


async def test_a_stored_message_comes_back_as_it_was(broker, stream):
    before = datetime.now(UTC)
    message = on(stream, "a", b"\x00\xff", message_id="id", headers={"K": "a: b"})
    await broker.store(stream.name, message)
    found = await broker.get(stream.name, 1)
    assert (found.subject, found.payload) == (message.subject, b"\x00\xff")
    assert found.headers["K"] == "a: b"
    assert found.headers["Nats-Msg-Id"] == "id"
    assert found.stored_at.tzinfo is UTC
    assert abs(found.stored_at - before) < timedelta(seconds=10)
    [read] = await everything(broker.read(stream.name))
    assert read == found == await broker.last(stream.name, message.subject)


async def test_a_message_without_headers_has_none(broker, stream):
    await broker.store(stream.name, on(stream, "a"))
    assert (await broker.get(stream.name, 1)).headers is None
    [read] = await everything(broker.read(stream.name))
    assert read.headers is None


async def test_an_expectation_of_zero_means_a_new_subject(broker, stream):
    await broker.store(stream.name, on(stream, "a", expect_subject_sequence=0))
    with pytest.raises(AppendConflictError) as conflict:
        await broker.store(stream.name, on(stream, "a", expect_subject_sequence=0))
    error = conflict.value
    assert (error.code, error.expected, error.last) == (10071, 0, 1)
    assert error.subject == f"{stream.name}.a"


async def test_a_subject_expectation_looks_at_that_subject_only(broker, stream):
    await broker.store(stream.name, on(stream, "a"))
    await broker.store(stream.name, on(stream, "b"))
    await broker.store(stream.name, on(stream, "a", expect_subject_sequence=1))
    with pytest.raises(AppendConflictError):
        await broker.store(stream.name, on(stream, "a", expect_subject_sequence=2))


async def test_a_stream_expectation_looks_at_the_whole_stream(broker, stream):
    await broker.store(stream.name, on(stream, "a", expect_stream_sequence=0))
    await broker.store(stream.name, on(stream, "b", expect_stream_sequence=1))
    with pytest.raises(AppendConflictError) as conflict:
        await broker.store(stream.name, on(stream, "a", expect_stream_sequence=1))
    assert (conflict.value.code, conflict.value.last) == (10071, 2)


async def test_a_known_message_id_is_a_duplicate(broker, stream):
    await broker.store(stream.name, on(stream, "a", message_id="one"))
    await broker.store(stream.name, on(stream, "a", message_id="two"))
    again = await broker.store(stream.name, on(stream, "a", message_id="one"))
    assert (again.sequence, again.duplicate) == (1, True)
    assert (await broker.state(stream.name)).last_sequence == 2


async def test_an_expectation_is_checked_before_the_message_id(broker, stream):
    first = on(stream, "a", message_id="one", expect_subject_sequence=0)
    await broker.store(stream.name, first)
    with pytest.raises(AppendConflictError) as conflict:
        await broker.store(stream.name, first)
    assert conflict.value.code == 10071
    same_id = on(stream, "a", message_id="one", expect_subject_sequence=1)
    assert (await broker.store(stream.name, same_id)).duplicate


async def test_a_message_id_is_forgotten_after_the_window(broker):
    spec = spec_of(duplicate_window_s=0.1)
    await broker.create_stream(spec)
    await broker.store(spec.name, on(spec, "a", message_id="one"))

    async def stored_anew() -> bool:
        again = await broker.store(spec.name, on(spec, "a", message_id="one"))
        return not again.duplicate

    await eventually(stored_anew, within_s=10)


async def test_many_may_be_in_flight_at_once(broker, stream):
    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(broker.store(stream.name, on(stream, f"s{n}", b"%d" % n)))
            for n in range(1000)
        ]
    by_sequence = {task.result().sequence: n for n, task in enumerate(tasks)}
    assert sorted(by_sequence) == list(range(1, 1001))
    for message in await everything(broker.read(stream.name)):
        assert int(message.payload) == by_sequence[message.sequence]


async def test_of_racing_claims_on_one_subject_one_wins(bench: Bench, broker, stream):
    other = await bench.broker()

    async def claim(client: Broker) -> bool:
        try:
            message = on(stream, "a", expect_subject_sequence=0)
            await client.store(stream.name, message)
        except AppendConflictError:
            return False
        return True

    won = await asyncio.gather(*(claim(c) for c in [broker, other] * 20))
    assert won.count(True) == 1


async def test_a_subject_that_no_stream_listens_on_was_not_stored(broker, stream):
    with pytest.raises(LogUnavailableError, match="no stream listens"):
        await broker.store(stream.name, Outgoing(subject="nowhere.a", payload=b""))


async def test_a_subject_of_another_stream_is_a_mistake(broker, stream):
    other = spec_of()
    await broker.create_stream(other)
    with pytest.raises(SettingsError, match=other.name):
        await broker.store(stream.name, on(other, "a"))


async def test_a_full_stream_refuses_and_keeps_what_it_has(broker):
    spec = spec_of(max_bytes=2000, discard_new=True)
    await broker.create_stream(spec)

    async def fill() -> None:
        for _ in range(100):
            await broker.store(spec.name, on(spec, "a", b"x" * 100))

    with pytest.raises(LogFullError) as full:
        await fill()
    assert full.value.stream == spec.name
    state = await broker.state(spec.name)
    assert state.first_sequence == 1
    assert 0 < state.bytes <= state.max_bytes == 2000
    assert state.messages == state.last_sequence


async def test_a_stream_that_discards_old_drops_the_first(broker):
    spec = spec_of(max_bytes=2000)
    await broker.create_stream(spec)
    for _ in range(100):
        await broker.store(spec.name, on(spec, "a", b"x" * 100))
    state = await broker.state(spec.name)
    assert state.last_sequence == 100
    assert state.first_sequence == 101 - state.messages > 1
    assert await broker.get(spec.name, 1) is None


async def test_a_stream_may_keep_one_message_per_subject(broker):
    spec = spec_of(max_messages_per_subject=1)
    await broker.create_stream(spec)
    for rest in ("a", "b", "a"):
        await broker.store(spec.name, on(spec, rest))
    kept = await everything(broker.read(spec.name))
    assert sequences(kept) == [2, 3]
    assert (await broker.state(spec.name)).messages == 2
    await broker.store(spec.name, on(spec, "a", expect_subject_sequence=3))


async def test_an_aged_out_message_frees_its_subject(broker):
    spec = spec_of(max_age_s=0.2, max_messages_per_subject=1)
    await broker.create_stream(spec)
    await broker.store(spec.name, on(spec, "lease", expect_subject_sequence=0))

    async def free() -> bool:
        return await broker.last(spec.name, f"{spec.name}.lease") is None

    await eventually(free, within_s=10)
    taken = await broker.store(spec.name, on(spec, "lease", expect_subject_sequence=0))
    assert taken.sequence == 2
    await eventually(free, within_s=10)
    state = await broker.state(spec.name)
    assert (state.first_sequence, state.last_sequence, state.messages) == (3, 2, 0)


# ---- batches -------------------------------------------------------------------
@pytest.mark.parametrize("size", [1, 10, 500, 1000])
async def test_a_batch_gets_consecutive_sequences(broker, stream, size):
    await broker.store(stream.name, on(stream, "before"))
    messages = [
        on(stream, f"n{n}", b"%d" % n, message_id=f"{n}", expect_subject_sequence=0)
        for n in range(size)
    ]
    stored = await broker.store_batch(stream.name, messages)
    assert stored.sequence == size + 1
    read = await everything(broker.read(stream.name, after=1))
    assert sequences(read) == list(range(2, size + 2))
    assert payloads(read) == [b"%d" % n for n in range(size)]


@pytest.mark.parametrize("size", [0, 1001])
async def test_a_batch_has_one_to_a_thousand_messages(broker, stream, size):
    with pytest.raises(SettingsError):
        await broker.store_batch(stream.name, [on(stream, "a")] * size)
    assert (await broker.state(stream.name)).last_sequence == 0


async def test_one_failed_expectation_refuses_the_whole_batch(broker, stream):
    await broker.store(stream.name, on(stream, "b"))
    batch = [on(stream, s, expect_subject_sequence=0) for s in ("a", "b", "c")]
    with pytest.raises(AppendConflictError) as conflict:
        await broker.store_batch(stream.name, batch)
    assert (conflict.value.code, conflict.value.last) == (10071, 1)
    assert (await broker.state(stream.name)).last_sequence == 1


async def test_a_batch_may_expect_where_the_stream_stands(broker, stream):
    await broker.store(stream.name, on(stream, "a"))
    wrong = [on(stream, "b", expect_stream_sequence=0), on(stream, "c")]
    with pytest.raises(AppendConflictError) as conflict:
        await broker.store_batch(stream.name, wrong)
    assert (conflict.value.code, conflict.value.expected) == (10071, 0)
    right = [on(stream, "b", expect_stream_sequence=1), on(stream, "c")]
    assert (await broker.store_batch(stream.name, right)).sequence == 3


@pytest.mark.parametrize("first_expects", [0, None])
async def test_expecting_a_subject_twice_in_a_batch(broker, stream, first_expects):
    batch = [
        on(stream, "a", expect_subject_sequence=first_expects),
        on(stream, "a", expect_subject_sequence=0),
    ]
    with pytest.raises(AppendConflictError) as conflict:
        await broker.store_batch(stream.name, batch)
    assert conflict.value.code == 10164
    assert (await broker.state(stream.name)).last_sequence == 0


async def test_a_batch_may_go_on_with_a_subject_it_expected(broker, stream):
    batch = [on(stream, "a", expect_subject_sequence=0), on(stream, "a")]
    assert (await broker.store_batch(stream.name, batch)).sequence == 2


async def test_a_known_message_id_refuses_a_batch(broker, stream):
    batch = [
        on(stream, "a", message_id="1", expect_subject_sequence=0),
        on(stream, "b", message_id="2", expect_subject_sequence=0),
    ]
    await broker.store_batch(stream.name, batch)
    with pytest.raises(AppendConflictError) as again:
        await broker.store_batch(stream.name, batch)
    assert again.value.code == 10201
    with pytest.raises(AppendConflictError) as within:
        await broker.store_batch(
            stream.name, [on(stream, s, message_id="3") for s in "cd"]
        )
    assert within.value.code == 10201
    assert (await broker.state(stream.name)).last_sequence == 2


async def test_a_refused_batch_leaves_no_message_id_behind(broker, stream):
    await broker.store(stream.name, on(stream, "b"))
    batch = [
        on(stream, "a", message_id="1"),
        on(stream, "b", message_id="2", expect_subject_sequence=0),
    ]
    with pytest.raises(AppendConflictError):
        await broker.store_batch(stream.name, batch)
    assert not (await broker.store(stream.name, batch[0])).duplicate


async def test_a_stream_may_not_take_batches(broker):
    spec = spec_of(allow_atomic=False)
    await broker.create_stream(spec)
    with pytest.raises(SettingsError, match="10174"):
        await broker.store_batch(spec.name, [on(spec, "a"), on(spec, "b")])


async def test_a_batch_that_does_not_fit_is_refused_whole(broker):
    spec = spec_of(max_bytes=2000, discard_new=True)
    await broker.create_stream(spec)
    with pytest.raises(LogFullError):
        await broker.store_batch(spec.name, [on(spec, "a", b"x" * 100)] * 30)
    assert (await broker.state(spec.name)).messages == 0


# ---- republishing --------------------------------------------------------------
async def test_stored_messages_are_republished_with_their_place(broker):
    spec = spec_of()
    live = f"live-{spec.name}"
    spec = spec_of(
        name=spec.name,
        subjects=spec.subjects,
        republish=(f"{spec.name}.>", f"{live}.>"),
    )
    await broker.create_stream(spec)
    subscription = await broker.subscribe(f"{live}.>")
    await broker.store(spec.name, on(spec, "view", b"0", message_id="m"))
    batch = [on(spec, s, b"%d" % n) for n, s in enumerate(["view", "other", "view"], 1)]
    await broker.store_batch(spec.name, batch)
    got = await receive(subscription, 4)
    assert payloads(got) == [b"0", b"1", b"2", b"3"]
    assert [m.subject.removeprefix(live) for m in got] == [
        ".view",
        ".view",
        ".other",
        ".view",
    ]
    assert [m.headers["Nats-Sequence"] for m in got] == ["1", "2", "3", "4"]
    assert [m.headers["Nats-Last-Sequence"] for m in got] == ["0", "1", "0", "2"]
    assert {m.headers["Nats-Stream"] for m in got} == {spec.name}
    assert got[0].headers["Nats-Subject"] == f"{spec.name}.view"
    assert got[0].headers["Nats-Msg-Id"] == "m"


async def test_what_is_refused_is_not_republished(broker):
    name = spec_of().name
    view, live = f"{name}.view", f"{name}.live"
    await broker.create_stream(
        spec_of(name=name, subjects=(view,), republish=(view, live))
    )
    subscription = await broker.subscribe(live)
    refused = Outgoing(subject=view, payload=b"bad", expect_stream_sequence=7)
    with pytest.raises(AppendConflictError):
        await broker.store(name, refused)
    await broker.store(name, Outgoing(subject=view, payload=b"good"))
    [first] = await receive(subscription, 1)
    assert (first.subject, first.payload) == (live, b"good")


async def test_who_listens_on_a_stream_subject_hears_appends(broker, stream):
    subscription = await broker.subscribe(f"{stream.name}.>")
    await broker.store(stream.name, on(stream, "a", b"appended"))
    assert payloads(await receive(subscription, 1)) == [b"appended"]


async def test_a_core_message_on_a_stream_subject_is_stored(broker, stream):
    await broker.publish(f"{stream.name}.a", b"core")

    async def stored() -> bool:
        return (await broker.state(stream.name)).last_sequence == 1

    await eventually(stored)
    assert (await broker.get(stream.name, 1)).payload == b"core"
