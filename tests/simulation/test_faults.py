"""Each step of a plan, alone in a small world: what it does shows."""

import pytest

import projections
from events import codec
from projections import FOLD_VERSION
from tests.simulation.loop import State
from tests.simulation.plan import (
    BlackHole,
    Claim,
    ClockJump,
    Crash,
    Cut,
    Freeze,
    LoseAnswers,
    Noise,
    Operate,
    Pace,
    Say,
    Slow,
    Upgrade,
    Wait,
)
from tests.simulation.playing import (
    FAULT_S,
    NAMES,
    W01,
    W02,
    Probe,
    kinds,
    lines,
    moved,
    play,
    times,
)
from tests.simulation.server import NODES
from tests.simulation.versions import OLD_FOLD_VERSION, UNKNOWN_TO_OLD


# ---- what the fleet does -----------------------------------------------------
def test_a_worker_enters_says_things_and_leaves():
    verbs = ("starting", "ready", "draining", "update", "load", "unload", "leave")
    values = {"update": "9001", "load": "lora", "unload": "lora"}
    says = [
        Say(at_s=5.0 + n, process="w01", verb=verb, value=values.get(verb, ""))
        for n, verb in enumerate(verbs)
    ]
    world = play(W01, *says)
    assert times(world, "w01", "^entered as") == [pytest.approx(3.3, abs=0.5)]
    done = [what.split()[0] for _, what in lines(world, "w01", " done$")]
    assert done == list(verbs)
    assert kinds(world) == [
        "WorkerRegistered",
        "WorkerStatusChanged",
        "WorkerStatusChanged",
        "WorkerStatusChanged",
        "WorkerUpdated",
        "AdapterLoaded",
        "AdapterUnloaded",
        "WorkerDeregistered",
    ]
    assert not world.host("w01").alive


def test_an_operator_decides():
    verbs = {
        "hold": "WorkerHeld",
        "drain": "WorkerHeld",
        "resume": "WorkerResumed",
        "weight": "TrafficWeightSet",
        "thresholds": "LoadThresholdsSet",
        "forget": "ModelForgotten",
    }
    steps = [
        Operate(
            at_s=5.0 + n, verb=verb, namespace="prod", worker_id="w01", model="llama"
        )
        for n, verb in enumerate(verbs)
    ]
    assert kinds(play(*steps)) == list(verbs.values())


@pytest.mark.parametrize("register", [True, False])
def test_a_claimant_claims_a_block_and_releases_it(register):
    claim = Claim(
        at_s=5.0,
        process="c1",
        host="10.0.0.1",
        port=20000,
        size=2,
        hold_s=10.0,
        register=register,
    )
    world = play(claim)
    released_s, _ = lines(world, "c1", "^released")[-1]
    assert released_s == pytest.approx(15.5, abs=0.5)
    registered = ["WorkerRegistered"] if register else []
    left = ["WorkerDeregistered"] if register else []
    claimed = ["PortClaimed"] * 2
    assert kinds(world) == [*claimed, *registered, *left, *["PortReleased"] * 2]


def test_somebody_waits_for_routers():
    steps = [
        Wait(at_s=20.0 + n, kind=kind, router="r2")
        for n, kind in enumerate(("wait", "synced", "wait_for"))
    ]
    world = play(W01, *steps)
    assert [what for _, what in lines(world, "op", "^wait 1: True")]
    assert [what for _, what in lines(world, "r2", "^synced at 1, asked at 1")]
    assert [what for _, what in lines(world, "r2", "^wait_for 1: at 1")]


# ---- processes ---------------------------------------------------------------
@pytest.mark.parametrize("callbacks", [0, 1, 5, 20])
def test_a_crash_leaves_so_many_callbacks_done_and_starts_again(callbacks):
    done = []

    def count(world):
        process = world.host("p1").process
        look = process.look
        process.look = lambda: (done.append(process), look())

    crash = Crash(at_s=FAULT_S, process="p1", callbacks=callbacks, restart_s=3.0)
    starts = Probe(lambda w: w.host("p1").starts, 22.9, 23.1)
    world = play(W01, crash, probes=[(FAULT_S - 1e-9, count), *starts.times])
    assert len([process for process in done if process.state is State.DEAD]) == (
        callbacks
    )
    assert len(times(world, "p1", "^killed")) == 1
    assert starts.seen == [1, 2]


def test_a_worker_that_crashes_for_good_is_expired():
    world = play(W01, Crash(at_s=FAULT_S, process="w01", restart_s=None))
    assert kinds(world) == ["WorkerRegistered", "WorkerExpired"]
    assert times(world, "log", "WorkerExpired")[0] > FAULT_S + W01.lease_ttl_s - 4.0
    assert world.host("w01").starts == 1


def test_a_checkpoint_survives_the_crash_of_its_router():
    steps = [Crash(at_s=FAULT_S, process=r, restart_s=1.0) for r in ("r1", "r2")]

    def source(world):
        views = [world.host(name).view for name in ("r1", "r2")]
        return [(view.source, view.revision) for view in views]

    probe = Probe(source, FAULT_S + 1.015)
    play(W01, *steps, probes=probe.times)
    assert probe.seen == [[("none", 0), ("checkpoint", 1)]]


def test_a_frozen_router_moves_when_it_is_continued():
    world = play(Freeze(at_s=FAULT_S, process="r1", for_s=10.0), W02)
    assert moved(world, "r2", FAULT_S) < 23.0
    assert moved(world, "r1", FAULT_S) == pytest.approx(30.0, abs=0.1)


@pytest.mark.parametrize("by_s", [3600.0, -3600.0])
def test_the_clock_of_a_process_jumps_and_nobody_elses(by_s):
    def shown(world):
        now = [world.host(name).clock.now() for name in ("w01", "w02")]
        return [(each - world.server._now()).total_seconds() for each in now]

    probe = Probe(shown, FAULT_S - 1.0, FAULT_S + 4.0)
    world = play(
        W01,
        W02,
        ClockJump(at_s=FAULT_S, process="w01", by_s=by_s),
        Say(at_s=30.0, process="w01", verb="update"),
        probes=probe.times,
    )
    assert probe.seen == [[0.0, 0.0], [by_s, 0.0]]
    [told, *_] = lines(world, "log", "WorkerUpdated")
    made_ms = int(told[1].split()[3].replace("-", "")[:12], 16)
    stored_ms = (world.server._now().timestamp() - world.loop.time() + 30.0) * 1000
    assert made_ms - stored_ms == pytest.approx(by_s * 1000, abs=1500)


def test_the_brokers_clock_moves_what_ages():
    stream = Probe(
        lambda w: w.server.held(NAMES.view_stream).state().messages,
        FAULT_S - 0.001,
        FAULT_S + 0.001,
    )
    jump = ClockJump(at_s=FAULT_S, process="broker", by_s=3600.0)
    play(W01, jump, probes=stream.times, pace=Pace(view_max_age_s=300.0))
    before, after = stream.seen
    assert before > 0
    assert after == 0


def test_an_upgrade_runs_another_version_in_that_process_alone():
    seen = {name: set() for name in ("p1", "r1", "r2", "w01")}

    def look_on(world):
        for name, found in seen.items():
            host = world.host(name)
            add_what_is_seen(host, found)

    def add_what_is_seen(host, found):
        """Note the fold version whenever the host's process did something."""
        look = host.process.look

        def noting():
            at_s = host.loop.time()
            known = UNKNOWN_TO_OLD in codec.EVENT_TYPES.values()
            found.add((at_s > 40.0, projections.FOLD_VERSION, known))
            look()

        host.process.look = noting

    steps = [
        W01,
        Upgrade(at_s=FAULT_S, process="r1", version="old"),
        Upgrade(at_s=50.0, process="r1", version="new"),
    ]
    starts = Probe(lambda w: w.host("r1").starts, 25.9, 26.1, 57.0)
    versions = Probe(lambda w: w.host("r1").process.version, 19.0, 30.0, 57.0)
    world = play(
        *steps,
        probes=[(26.5, look_on), *starts.times, *versions.times],
        end_s=100.0,
    )
    assert starts.seen == [1, 2, 3]
    assert versions.seen == [None, "old", None]
    new = {(False, FOLD_VERSION, True), (True, FOLD_VERSION, True)}
    assert seen["p1"] == seen["r2"] == seen["w01"] == new
    old = (OLD_FOLD_VERSION, False)
    assert seen["r1"] == {(False, *old), (True, *old)}
    assert len(times(world, "r1", "^stopped")) == 2
    assert projections.FOLD_VERSION == FOLD_VERSION


def test_an_upgrade_that_a_smaller_plan_left_half_done_ends_with_the_faults():
    versions = Probe(lambda w: w.host("r1").process.version, 40.0, 57.0)
    old = Upgrade(at_s=FAULT_S, process="r1", version="old")
    play(old, probes=versions.times, end_s=70.0)
    assert versions.seen == ["old", None]


# ---- the network -------------------------------------------------------------
def connected(name):
    """Whether each connection of a process is there."""
    return lambda world: [broker.connected for broker in world.host(name).brokers]


def test_a_cut_breaks_every_connection_of_a_process_for_so_long():
    probe = Probe(connected("w01"), 19.0, 20.001, 29.9, 30.5)
    others = Probe(connected("r1"), 20.001)
    cut = Cut(at_s=FAULT_S, process="w01", for_s=10.0)
    play(W01, cut, probes=[*probe.times, *others.times])
    assert probe.seen == [[True] * 2, [False] * 2, [False] * 2, [True] * 2]
    assert others.seen == [[True]]


def test_a_black_hole_is_noticed_by_pings_and_left():
    probe = Probe(connected("r1"), 22.9, 24.1, 29.9, 30.5)
    world = play(BlackHole(at_s=FAULT_S, process="r1", for_s=10.0), W02)
    assert moved(world, "r1", FAULT_S) > 30.0
    assert moved(world, "r2", FAULT_S) < 23.0
    play(BlackHole(at_s=FAULT_S, process="r1", for_s=10.0), probes=probe.times)
    assert probe.seen == [[True], [False], [False], [True]]


def test_what_the_dead_sent_into_a_black_hole_may_come_out_of_it():
    landed = set()
    for seed in range(1, 9):
        world = play(
            W01,
            BlackHole(at_s=FAULT_S, process="w01", for_s=5.0),
            Say(at_s=21.0, process="w01", verb="update", value="9009"),
            Crash(at_s=22.0, process="w01", restart_s=0.5),
            seed=seed,
        )
        landed |= set(times(world, "log", "WorkerUpdated"))
    assert landed == {25.0}


def test_a_lost_answer_is_of_what_is_stored_and_found_out_about_later():
    world = play(
        W01,
        LoseAnswers(at_s=FAULT_S, process="w01", count=1),
        Say(at_s=21.0, process="w01", verb="update", value="9009"),
    )
    [stored_s] = times(world, "log", "WorkerUpdated")
    [known_s] = times(world, "w01", "^update done")
    assert stored_s < 21.1
    assert known_s - stored_s > 3.9


def test_when_faults_end_no_answer_is_lost_any_more():
    left = Probe(lambda w: w.host("w01").brokers[0].answers_to_lose, 49.0, 51.0)
    play(W01, LoseAnswers(at_s=FAULT_S, process="w01", count=9), probes=left.times)
    assert left.seen == [9, 0]


def test_noise_keeps_news_from_a_router_until_it_asks():
    noise = Noise(at_s=FAULT_S, process="r2", for_s=15.0, lose=1.0, deaf_s=0.05)
    weather = Probe(lambda w: w.host("r2").weather.deaf_s, 21.0, 36.0)
    world = play(noise, W02, probes=weather.times)
    assert moved(world, "r3", 22.0) < 22.5
    assert moved(world, "r2", 22.0) > moved(world, "r3", 22.0) + 0.1
    assert weather.seen == [0.05, 0.0]


def test_a_router_that_is_deaf_at_first_asks_for_what_it_missed():
    nodes = set()
    for seed in range(1, 7):
        node = Probe(lambda w: w.host("r2").brokers[0].node, 21.0)
        world = play(
            W01,
            Noise(at_s=FAULT_S, process="r2", for_s=5.0, deaf_s=15.0),
            Say(at_s=20.6, process="w01", verb="update", value="9001"),
            probes=node.times,
            seed=seed,
            end_s=50.0,
        )
        late_s = moved(world, "r2", 20.6) - moved(world, "r3", 20.6)
        assert (late_s > 0.1) is (node.seen == ["n2"])
        nodes |= set(node.seen)
    assert nodes == set(NODES)


def test_a_slow_network_brings_news_later():
    world = play(Slow(at_s=FAULT_S, process="r2", for_s=15.0, by_s=0.3), W02)
    late_s = moved(world, "r2", 22.0) - moved(world, "r3", 22.0)
    assert late_s == pytest.approx(0.3, abs=0.05)
