"""Orders to drain in virtual time: told whoever leads, whatever got lost meanwhile."""

import pytest

from tests.simulation.plan import BlackHole, Crash, Operate, Say
from tests.simulation.playing import FAULT_S, W01, Probe, play

DRAIN = Operate(at_s=FAULT_S, verb="drain", namespace="prod", worker_id="w01")
RESUME = Operate(at_s=40.0, verb="resume", namespace="prod", worker_id="w01")
READY = Say(at_s=10.0, process="w01", verb="ready")
ASK_AGAIN_S = 12.0
"""A leader that died is replaced in less, and tells the worker within three seconds."""


def asked(world):
    """Whether the worker was asked to drain."""
    handle = world.host("w01").handle
    return handle is not None and handle.drain_requested.is_set()


def told(*steps, at_s=(FAULT_S - 1, FAULT_S + ASK_AGAIN_S)):
    """Whether the worker had been asked at each of these times."""
    probe = Probe(asked, *at_s)
    play(W01, READY, *steps, probes=probe.times)
    return probe.seen


@pytest.mark.parametrize(
    "fault",
    [
        (),
        [Crash(at_s=FAULT_S, process=p, restart_s=3.0) for p in ("p1", "p2")],
        [Crash(at_s=FAULT_S + 0.2, process=p, restart_s=3.0) for p in ("p1", "p2")],
        [BlackHole(at_s=FAULT_S - 1.0, process="w01", for_s=4.0)],
    ],
    ids=["nothing", "leaders-die", "leaders-die-later", "notice-lost"],
)
def test_a_worker_is_asked_whoever_leads(fault):
    assert told(DRAIN, *fault) == [False, True]


def test_the_next_life_is_asked_too_until_somebody_resumes_it():
    lives = [Crash(at_s=at_s, process="w01") for at_s in (30.0, 45.0)]
    seen = told(DRAIN, *lives, RESUME, at_s=(29.0, 39.0, 60.0))
    assert seen == [True, True, False]
