"""Each fault of the broker's, alone in a small world: what it does shows."""

from types import SimpleNamespace

import pytest

from tests.simulation.plan import (
    BrokerRestart,
    BrokerStall,
    DropConsumers,
    Lag,
    LogRecreated,
    NodeStall,
    NoResponders,
    Pace,
    Plant,
    Say,
    SpoilSnapshot,
    TrimView,
)
from tests.simulation.playing import (
    FAULT_S,
    NAMES,
    W01,
    W02,
    Probe,
    kinds,
    lines,
    play,
    times,
)
from tests.simulation.server import NODES


# ---- the broker --------------------------------------------------------------
def test_a_stalled_broker_stores_nothing_and_then_all():
    world = play(
        W01,
        BrokerStall(at_s=FAULT_S, for_s=2.0),
        Say(at_s=20.5, process="w01", verb="update", value="9001"),
    )
    assert times(world, "log", "WorkerUpdated") == [22.0]
    [done_s] = times(world, "w01", "^update done")
    assert done_s == pytest.approx(22.0, abs=0.01)


def test_a_restart_loses_the_tails_that_it_says_it_loses():
    says = [
        Say(at_s=10.0 + n, process="w01", verb="update", value=f"{9000 + n}")
        for n in range(4)
    ]
    restart = BrokerRestart(
        at_s=FAULT_S, down_s=1.0, lose_log=2, lose_view=1, lose_snapshot=1
    )
    up = Probe(lambda w: (w.server.up, w.server.starts), 20.5, 21.5)
    world = play(
        W01,
        *says,
        restart,
        Say(at_s=30.0, process="w01", verb="update", value="9100"),
        probes=up.times,
        pace=Pace(snapshot_every=1),
    )
    assert up.seen == [(False, 1), (True, 2)]
    cut = [what.split()[0] for _, what in lines(world, "broker", "lost all after")]
    assert cut == [NAMES.log_stream, NAMES.view_stream, NAMES.snapshot_stream]
    assert lines(world, "broker", f"{NAMES.log_stream} lost all after 3")
    revisions = [int(what.split()[0]) for _, what in lines(world, "log")]
    assert revisions[:5] == [1, 2, 3, 4, 5]
    assert revisions[5] == 4, "sequences are given again"
    assert world.watch.announced


def test_a_log_that_is_recreated_is_another():
    world = play(W01, LogRecreated(at_s=FAULT_S, gone_s=2.0))
    gone_s, made_s = (
        times(world, "broker", f"{NAMES.log_stream} {verb}")[-1]
        for verb in ("deleted", "made")
    )
    assert gone_s == FAULT_S
    assert made_s == pytest.approx(FAULT_S + 2.1, abs=0.2)
    assert [what.split()[0] for _, what in lines(world, "log")][:2] == ["1", "1"]


@pytest.mark.parametrize("keep", [0, 2])
def test_a_trimmed_view_keeps_its_last_messages_only(keep):
    def count(world):
        return world.server.held(NAMES.view_stream).state().messages

    probe = Probe(count, FAULT_S - 0.001, FAULT_S + 0.001)
    says = [
        Say(at_s=5.0 + n, process="w01", verb="update", value=f"{9000 + n}")
        for n in range(4)
    ]
    play(W01, *says, TrimView(at_s=FAULT_S, keep=keep), probes=probe.times)
    before, after = probe.seen
    assert (before > 2, after) == (True, keep)


@pytest.mark.parametrize("how", ["corrupt", "missing", "gone"])
def test_a_spoilt_snapshot_cannot_be_used(how):
    def newest(world):
        stream = world.server.held(NAMES.snapshot_stream)
        held = stream.between(0, stream.last_sequence, None)
        return {message.subject: message.payload for message in held}

    probe = Probe(newest, FAULT_S - 0.001, FAULT_S + 0.001)
    spoil = SpoilSnapshot(at_s=FAULT_S, how=how)
    play(W01, spoil, probes=probe.times, pace=Pace(snapshot_every=1))
    before, after = probe.seen
    changed = {name for name in before if after.get(name) != before[name]}
    chunks = {name for name in before if name != NAMES.snapshot_pointer}
    assert NAMES.snapshot_pointer in before
    assert chunks
    if how == "gone":
        assert after == {}
        return
    assert len(changed) == 1
    assert changed <= chunks
    [name] = changed
    assert (name in after) is (how == "corrupt")
    if how == "corrupt":
        assert len(after[name]) == len(before[name])


def test_deleted_consumers_are_made_again():
    def count(world):
        return len(world.server._consumers.get(NAMES.log_stream, ()))

    probe = Probe(count, FAULT_S - 0.001, FAULT_S + 0.001, FAULT_S + 3.0)
    play(W01, DropConsumers(at_s=FAULT_S, stream="log"), probes=probe.times)
    before, during, after = probe.seen
    assert before == after > 0
    assert during == 0


@pytest.mark.parametrize("node", NODES)
def test_the_clients_of_a_stalled_node_find_the_other(node):
    def nodes(world):
        brokers = [b for host in world.hosts.values() for b in host.brokers]
        return {broker.node for broker in brokers if broker.connected}

    stall = NodeStall(at_s=FAULT_S, node=node, for_s=10.0)
    probe = Probe(nodes, FAULT_S - 0.001, FAULT_S + 5.0)
    play(W01, stall, probes=probe.times)
    assert probe.seen == [set(NODES), set(NODES) - {node}]


def test_without_a_leader_nothing_is_stored():
    world = play(
        W01,
        NoResponders(at_s=FAULT_S, for_s=5.0),
        Say(at_s=21.0, process="w01", verb="update", value="9001"),
    )
    stored = times(world, "log", "WorkerUpdated")
    assert all(at_s >= 25.0 for at_s in stored)
    assert stored or lines(world, "w01", "^update failed: LogUnavailableError")


def test_a_lagging_replica_brings_the_log_later_to_who_follows():
    world = play(Lag(at_s=FAULT_S, for_s=15.0, by_s=2.0), W02)
    [stored_s] = times(world, "log", "WorkerRegistered")
    delta_s = min(at_s for at_s in times(world, "view", "delta") if at_s > stored_s)
    assert delta_s - stored_s == pytest.approx(2.0, abs=0.1)


@pytest.mark.parametrize(
    ("where", "kind"),
    [("log", "Undecodable"), ("unknown_event", "UnknownEvent")],
)
def test_what_is_planted_in_the_log_stands_there(where, kind):
    assert kinds(play(W01, Plant(at_s=FAULT_S, where=where)))[-1] == kind


def test_what_is_planted_in_the_view_stands_there():
    world = play(W01, Plant(at_s=FAULT_S, where="view"))
    assert times(world, "view", "planted") == [FAULT_S]


def test_a_life_of_long_ago_is_planted_in_the_log():
    world = play(W01, Plant(at_s=FAULT_S, where="stale"))
    assert kinds(world)[-2:] == ["WorkerDeregistered", "PortReleased"]


@pytest.mark.parametrize("where", ["beat", "notice", "head"])
def test_somebody_hears_what_is_planted_on_core_subjects(where):
    heard = []

    def listen(world):
        deliver = world.server.deliver

        def delivering(subject, payload, headers):
            listening = len(world.server._listening_on(subject))
            heard.append(SimpleNamespace(payload=payload, listening=listening))
            deliver(subject, payload, headers)

        world.server.deliver = delivering

    payload = {"beat": b"nonsense", "notice": b'{"kind": "expired"}', "head": b"[]"}
    play(W01, Plant(at_s=FAULT_S, where=where), probes=[(FAULT_S - 0.001, listen)])
    planted = [each for each in heard if each.payload == payload[where]]
    assert len(planted) == 1
    assert planted[0].listening > 0
