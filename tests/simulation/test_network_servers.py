"""The simulated servers do what they say: their faults really happen."""

import asyncio

import pytest

from controlplane.broker import Outgoing, StreamSpec
from controlplane.errors import (
    AppendOutcomeUnknownError,
    HistoryForkedError,
    LogUnavailableError,
)
from tests.simulation.broker import Weather
from tests.simulation.net import GIVES_UP_S, RECONNECTS_S, SPEC, Net
from tests.simulation.server import NODES

SEEDS = range(12)


@pytest.fixture
def net():
    return Net()


# ---- stalls, and two nodes ---------------------------------------------------
def test_a_stalled_server_answers_all_at_once(net):
    clients = [net.client(f"c{number}") for number in range(3)]
    hearer = net.client("hearer")
    hearer.listen()
    net.run(0.5)
    net.server.stall(NODES)
    tasks = [c.begin(c.store(payload=b"x")) for c in clients for _ in range(5)]
    net.run(2.5)
    assert not any(task.done() for task in tasks)
    assert net.payloads == []
    net.server.resume(NODES)
    net.run(0.01)
    assert sorted(task.result()[0].sequence for task in tasks) == list(range(1, 16))
    assert hearer.heard == [b"x"] * 15
    assert all([up for _, up in c.connections] == [True] for c in clients)


def test_what_a_stalled_server_has_is_stored_though_its_sender_gave_up(net):
    client = net.client()
    net.server.stall(NODES)
    error, took_s = client.ask(client.store(payload=b"in its socket"))
    assert isinstance(error, AppendOutcomeUnknownError)
    assert GIVES_UP_S[0] <= took_s <= GIVES_UP_S[1]
    net.run(10.0)
    assert net.payloads == []
    net.server.resume(NODES)
    assert net.payloads == [b"in its socket"]
    net.run(RECONNECTS_S)
    assert client.broker.connected


def test_clients_of_a_stopped_node_find_the_other(net):
    first, second = net.client("c1", node="n1"), net.client("c2", node="n2")
    assert (first.broker.server_id, second.broker.server_id) == ("n1-1", "n2-1")
    stopped_s = net.loop.time()
    net.server.stall(("n1",))
    first.begin(first.store(payload=b"held"))
    assert second.ask(second.store())[1] < 0.01, "nothing is wrong with its node"
    net.run(GIVES_UP_S[1] + RECONNECTS_S)
    assert first.broker.server_id == "n2-1"
    assert [up for _, up in first.connections] == [True, False, True]
    gone_s = first.connections[1][0] - stopped_s
    assert GIVES_UP_S[0] <= gone_s <= GIVES_UP_S[1]
    assert first.ask(first.store(payload=b"by n2"))[0].sequence == 2
    net.server.resume(("n1",))
    assert net.payloads == [b"", b"by n2", b"held"]
    assert [up for _, up in second.connections] == [True]


def test_what_was_sent_to_a_node_arrives_there_though_its_sender_moved_on():
    for seed in SEEDS:
        net = Net(seed)
        client = net.client(node="n1", weather=Weather(least_s=3.9, more_s=0.0))
        net.run(10.0)
        net.server.stall(("n1",))
        net.run(2.0)
        client.begin(client.store(payload=b"to n1"))
        net.run(6.0)
        assert client.broker.node == "n2"
        assert net.payloads == []


# ---- restarts ----------------------------------------------------------------
def test_a_restart_loses_tails_and_gives_their_sequences_again(net):
    client = net.client()
    for number in range(1, 6):
        client.ask(client.store(f"k{number}", b"%d" % number, message_id=f"{number}"))
    net.server.crash(landing=0.0, tails={"S": 2})
    net.run(1.0)
    assert not client.broker.connected
    net.server.come_back()
    net.run(RECONNECTS_S)
    assert client.broker.server_id in ("n1-2", "n2-2")
    assert net.payloads == [b"1", b"2", b"3"]
    kept, _ = client.ask(client.store("k3", message_id="3"))
    assert (kept.sequence, kept.duplicate) == (3, True)
    lost, _ = client.ask(
        client.store("k5", b"again", message_id="5", expect_subject_sequence=0)
    )
    assert (lost.sequence, lost.duplicate) == (4, False)


@pytest.mark.parametrize(("landing", "stored"), [(0.0, 0), (1.0, 1)])
def test_a_dying_server_stores_what_lands(net, landing, stored):
    client = net.client()
    task = client.begin(client.store())
    net.run(0.0001)
    net.server.crash(landing=landing)
    net.run(0.1)
    assert isinstance(task.result()[0], AppendOutcomeUnknownError)
    assert len(net.payloads) == stored


def test_nothing_that_was_stopped_lands_when_it_is_killed(net):
    client = net.client()
    net.server.stall(NODES)
    client.begin(client.store())
    net.run(0.5)
    client.begin(client.store())
    net.run(0.0001)
    net.server.crash(landing=1.0)
    net.run(0.5)
    net.server.come_back()
    net.run(5.0)
    assert net.payloads == []
    assert client.broker.connected


# ---- followers ---------------------------------------------------------------
@pytest.mark.parametrize("again", [False, True])
def test_followers_of_a_deleted_stream_say_so(net, again):
    client = net.client()
    client.ask(client.store())
    client.follow()
    net.run(0.5)
    net.server.delete("S")
    if again:
        net.server.create(SPEC)
    net.run(5.0)
    [(_, first), (_, error)] = client.heard
    assert first == [1]
    assert isinstance(error, HistoryForkedError)


def test_followers_notice_that_what_they_saw_was_lost(net):
    writer, seer = net.client("writer"), net.client("seer")
    for _ in range(3):
        writer.ask(writer.store())
    seer.follow()
    net.run(0.5)
    net.server.crash(landing=0.0, tails={"S": 1})
    net.run(0.5)
    net.server.come_back()
    net.run(5.0)
    assert isinstance(seer.batches[-1], HistoryForkedError)


def test_followers_resume_after_a_restart_that_kept_all(net):
    client = net.client()
    client.ask(client.store())
    client.follow()
    net.run(0.5)
    net.server.crash(landing=0.0)
    net.run(0.5)
    net.server.come_back()
    net.run(1.0)
    client.ask(client.store())
    net.run(0.1)
    assert client.batches == [[1], [], [2]]


def test_followers_resume_when_their_consumers_are_deleted(net):
    client, other = net.client(), net.client("other")
    client.ask(client.store())
    client.follow()
    net.run(0.5)
    net.server.drop_consumers("S")
    other.ask(other.store())
    assert client.batches == [[1]]
    net.run(0.2)
    assert client.batches == [[1], [], [2]]


def test_nobody_delivers_to_a_follower_that_stopped(net):
    client = net.client()

    async def follow_a_while():
        async with asyncio.timeout(0.0002):
            async for _ in client.broker.follow("S"):
                raise AssertionError

    task = client.spawn(follow_a_while())
    net.run(1.0)
    assert isinstance(task.exception(), TimeoutError)
    assert not any(net.server._consumers.values())
    assert client.broker._boxes == []


# ---- replicas that lag -------------------------------------------------------
def test_a_lagging_replica_delivers_each_message_so_much_later(net):
    client = net.client()
    client.follow()
    net.run(0.5)
    net.server.fall_behind(2.0)
    stored_s = []
    for _ in range(4):
        client.ask(client.store())
        stored_s.append(net.loop.time())
        net.run(0.7)
    net.run(5.0)
    assert client.batches == [[1], [2], [3], [4]]
    for (heard_s, _), at_s in zip(client.heard, stored_s, strict=True):
        assert heard_s - at_s == pytest.approx(2.0, abs=0.01)


def test_who_begins_to_follow_sees_what_the_replica_knows_and_then_the_rest(net):
    client = net.client()
    client.ask(client.store())
    net.server.fall_behind(2.0)
    for _ in range(2):
        client.ask(client.store())
        net.run(0.5)
    client.follow()
    net.run(0.5)
    assert client.batches == [[1]]
    net.run(3.0)
    assert client.batches == [[1], [2], [3]]


def test_a_replica_that_catches_up_delivers_all_at_once(net):
    client = net.client()
    client.follow()
    net.run(0.5)
    net.server.fall_behind(60.0)
    for _ in range(3):
        client.ask(client.store())
    assert client.batches == []
    net.server.catch_up()
    net.run(0.01)
    assert client.batches == [[1, 2, 3]]


def test_listings_are_stale_where_answers_of_the_leader_are_fresh(net):
    spec = StreamSpec(name="KV", subjects=("kv.>",), max_messages_per_subject=1)
    net.server.create(spec)
    client = net.client()

    async def put(subject, payload):
        message = Outgoing(subject=subject, payload=payload)
        return await client.broker.store("KV", message)

    async def listing():
        found = client.broker.read("KV", last_per_subject=True)
        return [m.payload async for batch in found for m in batch]

    client.ask(put("kv.a", b"old"))
    net.run(1.0)
    net.server.fall_behind(5.0)
    client.ask(put("kv.a", b"new"))
    client.ask(put("kv.b", b"new too"))
    assert client.ask(listing())[0] == [b"old"]
    assert client.ask(client.broker.last("KV", "kv.a"))[0].payload == b"new"
    assert client.ask(client.broker.state("KV"))[0].last_sequence == 3
    net.server.offset_s -= 3600.0
    assert client.ask(listing())[0] == [b"old"]
    net.run(6.0)
    assert client.ask(listing())[0] == [b"new", b"new too"]
    net.server.catch_up()


# ---- JetStream without a leader ----------------------------------------------
def test_without_a_leader_appends_are_refused_and_questions_get_no_answer(net):
    client, hearer = net.client(), net.client("hearer")
    hearer.listen("core")
    asked = client.begin(client.broker.state("S"))
    net.run(0.0001)
    net.server.lose_leader()
    error, took_s = client.ask(client.store())
    assert isinstance(error, LogUnavailableError)
    assert took_s < 0.01
    net.run(4.0)
    assert isinstance(asked.result()[0], LogUnavailableError), "nobody waits for ever"
    client.ask(client.broker.publish("core", b"still flows"))
    error, took_s = client.ask(client.broker.last("S", "s.a"))
    assert isinstance(error, LogUnavailableError)
    assert took_s == pytest.approx(4.0, abs=0.01)
    assert hearer.heard == [b"still flows"]
    net.server.elect()
    assert client.ask(client.store())[0].sequence == 1


# ---- clocks ------------------------------------------------------------------
def test_a_jump_of_the_servers_clock_moves_ages(net):
    spec = StreamSpec(
        name="LEASE",
        subjects=("lease.>",),
        max_age_s=60.0,
        max_messages_per_subject=1,
    )
    net.server.create(spec)
    client = net.client()

    async def take(expected):
        message = Outgoing(
            subject="lease.me", payload=b"", expect_subject_sequence=expected
        )
        return await client.broker.store("LEASE", message)

    client.ask(take(0))
    before, _ = client.ask(client.broker.state("LEASE"))
    net.server.offset_s += 3600.0
    after, _ = client.ask(client.broker.state("LEASE"))
    assert (before.messages, after.messages) == (1, 0)
    assert (after.now - before.now).total_seconds() == pytest.approx(3600, abs=1)
    assert client.ask(take(0))[0].sequence == 2
    net.server.offset_s -= 3600.0
    net.run(120.0)
    assert client.ask(client.broker.last("LEASE", "lease.me"))[0].sequence == 2
