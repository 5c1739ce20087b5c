"""The simulated connections do what they say: their faults really happen."""

import asyncio

import pytest

from controlplane.errors import (
    AppendOutcomeUnknownError,
    LogUnavailableError,
)
from tests.simulation.broker import Weather
from tests.simulation.net import GIVES_UP_S, RECONNECTS_S, Net, black

SEEDS = range(12)


@pytest.fixture
def net():
    return Net()


# ---- good weather ------------------------------------------------------------
def test_what_one_connection_carries_arrives_in_order_both_ways(net):
    sender = net.client("sender", weather=Weather(more_s=0.2))
    hearer = net.client("hearer", weather=Weather(more_s=0.2))
    hearer.listen()
    net.run(1.0)
    said = [b"%d" % number for number in range(60)]

    async def send():
        for payload in said:
            await sender.broker.publish("s.a", payload)

    sender.spawn(send())
    tasks = [sender.begin(sender.store(payload=payload)) for payload in said]
    net.run(5.0)
    assert net.payloads[:60] == said
    assert [task.result()[0].sequence for task in tasks] == list(range(61, 121))
    assert hearer.heard == said + said


def test_a_slow_way_takes_longer_both_ways(net):
    client = net.client(weather=Weather(least_s=0.5, more_s=0.0))
    _, took_s = client.ask(client.store())
    assert took_s == pytest.approx(1.0, abs=0.002)


def test_a_way_too_slow_for_an_answer_is_an_unknown_outcome(net):
    client = net.client(weather=Weather(least_s=2.5, more_s=0.0))
    error, took_s = client.ask(client.store())
    assert isinstance(error, AppendOutcomeUnknownError)
    assert took_s == pytest.approx(4.0, abs=0.002)
    assert len(net.payloads) == 1


# ---- lost answers ------------------------------------------------------------
def test_a_lost_answer_leaves_it_stored_and_its_sender_without_knowledge(net):
    client = net.client()
    client.broker.answers_to_lose = 1
    error, took_s = client.ask(client.store(payload=b"once"))
    assert isinstance(error, AppendOutcomeUnknownError)
    assert took_s == pytest.approx(4.0, abs=0.01)
    assert net.payloads == [b"once"]
    assert client.ask(client.store())[0].sequence == 2


def test_a_lost_answer_may_have_been_a_refusal(net):
    client = net.client()
    client.broker.answers_to_lose = 1
    error, _ = client.ask(client.store(expect_subject_sequence=7))
    assert isinstance(error, AppendOutcomeUnknownError)
    assert net.payloads == []


# ---- cuts --------------------------------------------------------------------
@pytest.mark.parametrize(("landing", "stored"), [(0.0, []), (1.0, [b"sent"])])
def test_a_cut_loses_or_lands_what_is_under_way(net, landing, stored):
    client = net.client(weather=Weather(least_s=0.01, more_s=0.0))
    task = client.begin(client.store(payload=b"sent"))
    net.run(0.005)
    client.broker.broken(landing=landing)
    net.run(0.001)
    error, _ = task.result()
    assert isinstance(error, AppendOutcomeUnknownError)
    assert "connection lost" in str(error)
    net.run(1.0)
    assert net.payloads == stored


def test_of_what_is_under_way_lands_what_was_sent_first():
    lengths = set()
    for seed in range(40):
        net = Net(seed)
        client = net.client()
        said = [b"%d" % number for number in range(6)]
        for payload in said:
            client.begin(client.store(payload=payload))
        client.spawn(asyncio.sleep(0))
        net.run(0.0001)
        client.broker.broken(landing=0.7)
        net.run(1.0)
        assert net.payloads == said[: len(net.payloads)]
        lengths.add(len(net.payloads))
    assert lengths >= {0, 1, 2, 6}


def test_no_connection_comes_about_while_the_network_is_cut(net):
    client = net.client()
    client.broker.cut = True
    client.broker.broken(landing=0.0)
    net.run(30.0)
    assert client.connections[-1][1] is False
    error, took_s = client.ask(client.store())
    assert isinstance(error, LogUnavailableError)
    assert took_s == pytest.approx(4.0, abs=0.01)
    client.broker.cut = False
    client.broker.may_connect()
    net.run(RECONNECTS_S)
    assert client.broker.connected
    assert net.payloads == []


def test_a_question_survives_a_cut_that_ends_in_time(net):
    client = net.client(weather=Weather(least_s=0.01, more_s=0.0))
    task = client.begin(client.broker.state("S"))
    net.run(0.005)
    client.broker.broken(landing=0.0)
    net.run(1.0)
    state, _ = task.result()
    assert state.last_sequence == 0


def test_a_frozen_client_learns_of_its_cut_when_it_is_continued(net):
    client = net.client()
    client.process.freeze()
    client.broker.broken(landing=0.0)
    net.run(5.0)
    assert client.broker.connected, "as far as it knows"
    client.process.thaw()
    net.run(0.001)
    assert not client.broker.connected
    net.run(RECONNECTS_S)
    assert client.broker.connected


# ---- black holes -------------------------------------------------------------
def test_a_client_leaves_a_black_hole_after_its_pings(net):
    client = net.client()
    black(client, on=True)
    error, took_s = client.ask(client.store())
    assert isinstance(error, AppendOutcomeUnknownError)
    assert GIVES_UP_S[0] <= took_s <= GIVES_UP_S[1]
    net.run(20.0)
    assert not client.broker.connected
    assert net.payloads == []
    black(client, on=False)
    net.run(RECONNECTS_S)
    assert client.broker.connected


def test_what_a_black_hole_held_lands_later_or_never():
    found = []
    for seed in SEEDS:
        net = Net(seed)
        client = net.client()
        black(client, on=True)
        client.ask(client.store(payload=b"held"))
        net.run(20.0)
        assert net.payloads == []
        black(client, on=False)
        found.append(len(net.payloads))
    assert set(found) == {0, 1}


def test_a_short_black_hole_only_takes_time(net):
    client, other = net.client(), net.client("c2")
    client.listen()
    net.run(0.5)
    black(client, on=True)
    task = client.begin(client.store(payload=b"mine"))
    other.ask(other.store(payload=b"other's"))
    net.run(2.0)
    assert (client.heard, task.done()) == ([], False)
    black(client, on=False)
    net.run(0.01)
    assert task.result()[0].sequence == 2
    assert client.heard == [b"other's", b"mine"]
    assert [up for _, up in client.connections] == [True]


def test_what_a_killed_process_sent_may_land_after_its_death():
    found = []
    for seed in SEEDS:
        net = Net(seed)
        client = net.client()
        black(client, on=True)
        client.begin(client.store(payload=b"last words"))
        net.run(0.5)
        client.process.kill()
        client.broker.die()
        net.run(10.0)
        black(client, on=False)
        found.append(len(net.payloads))
    assert set(found) == {0, 1}


# ---- core messages -----------------------------------------------------------
def heard_after_subscribing(seed, *, node, deaf_s, later_s=0.0):
    """What a subscriber hears that is stored just after its subscription."""
    net = Net(seed)
    writer = net.client("writer", node="n2")
    hearer = net.client("hearer", node=node, weather=Weather(deaf_s=deaf_s))
    subscription, _ = hearer.ask(hearer.broker.subscribe("live.>"))
    hearer.subscription = subscription
    hearer.spawn(hearer.read())
    net.run(later_s)
    writer.ask(writer.store(payload=b"first"))
    net.run(0.1)
    return hearer.heard


def test_a_new_subscription_may_miss_what_another_node_republishes():
    found = [heard_after_subscribing(s, node="n2", deaf_s=0.05) for s in SEEDS]
    assert found.count([]) > 3
    for node, deaf_s, later_s in (
        ("n1", 0.05, 0.0),
        ("n2", 0.0, 0.0),
        ("n2", 0.05, 0.05),
    ):
        for seed in SEEDS:
            heard = heard_after_subscribing(
                seed, node=node, deaf_s=deaf_s, later_s=later_s
            )
            assert heard == [b"first"], (seed, node, deaf_s, later_s)


def test_a_connection_made_again_may_be_deaf_again(net):
    hearer = net.client("hearer", weather=Weather(deaf_s=1e9))
    hearer.listen()
    net.run(1.0)
    [subscription] = hearer.broker._subscriptions
    before = subscription.deaf_until_s
    hearer.broker.broken(landing=0.0)
    net.run(1.0)
    assert subscription.deaf_until_s not in (0.0, before)


def test_a_slow_reader_loses_the_oldest_and_counts_them(net):
    hearer, sender = net.client("hearer", mailbox_limit=3), net.client("sender")
    hearer.listen(read=False)
    net.run(0.5)
    for number in range(10):
        sender.ask(sender.store(payload=b"%d" % number))
    net.run(0.5)
    hearer.spawn(hearer.read())
    net.run(0.5)
    assert hearer.heard == [b"7", b"8", b"9"]
    assert hearer.subscription.lost == 7


def noisy(weather):
    """What a listener hears of a hundred core messages, and what a follower gets."""
    net = Net(3)
    hearer, sender = net.client("hearer", weather=weather), net.client("sender")
    hearer.listen()
    follower = net.client("follower", weather=weather)
    follower.follow()
    net.run(0.5)

    async def send():
        for number in range(100):
            await sender.broker.publish("s.a", b"%d" % number)
            await asyncio.sleep(0.01)

    sender.spawn(send())
    net.run(5.0)
    followed = [number for batch in follower.batches for number in batch]
    assert followed == list(range(1, 101)), "noise is of core messages only"
    return [int(payload) for payload in hearer.heard]


def test_noise_loses_doubles_and_reorders_core_messages():
    assert noisy(Weather()) == list(range(100))
    lost = noisy(Weather(lose=0.5))
    assert 20 < len(lost) < 80
    assert lost == sorted(set(lost))
    doubled = noisy(Weather(double=0.3))
    assert 110 < len(doubled) < 150
    assert sorted(set(doubled)) == list(range(100))
    late = noisy(Weather(late_s=0.4))
    assert late != sorted(late)
    assert sorted(late) == list(range(100))


def test_what_a_frozen_process_did_not_read_waits_for_it(net):
    hearer, sender = net.client("hearer"), net.client("sender")
    hearer.listen()
    net.run(0.5)
    hearer.process.freeze()
    for number in range(3):
        sender.ask(sender.store(payload=b"%d" % number))
    net.run(10.0)
    assert hearer.heard == []
    hearer.process.thaw()
    net.run(0.01)
    assert hearer.heard == [b"0", b"1", b"2"]
    assert hearer.broker.connected


# ---- luck --------------------------------------------------------------------
def test_the_same_seed_has_the_same_weather():
    def play(seed):
        net = Net(seed)
        client = net.client()
        for number in range(20):
            client.begin(client.store(payload=b"%d" % number))
            net.run(0.001)
            if number == 10:
                client.broker.broken(landing=0.5)
        net.run(2.0)
        return net.payloads, client.connections

    assert play(4) == play(4)
    assert play(4) != play(5)
