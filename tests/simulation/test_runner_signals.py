"""The runner is told to stop: it ends, says what it knows, and leaves nobody.

A terminal sends its signal to the whole group of processes, so these do.
"""

import json
import os
import signal
import sys
from pathlib import Path

import pytest

from tests.simulation import toy_hunt
from tests.simulation.shell import (
    HARMLESS,
    RUNNER,
    TOY,
    at_work,
    ended,
    none_alive,
    spawn,
)
from tests.support.waiting import eventually

HUNT = ("--world", "tests.simulation.toy_hunt")
BEGUN = toy_hunt.SPINNING.encode()
SIGNALLED_WHILE_IMPORTING = """
import os, runpy, signal, sys

class Signalling:
    def find_spec(self, name, *_):
        if name == "tests.simulation.commands":
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Signalling())
runpy.run_module("tests.simulation", run_name="__main__", alter_sys=True)
"""


async def stopped(process, pids, number=signal.SIGINT):
    """How it ends by the signal; nobody outlives it."""
    os.killpg(process.pid, number)
    end = await ended(process)
    assert "Traceback" not in end.err
    await eventually(lambda: none_alive(pids))
    return end


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)]
)
async def test_a_signal_ends_sim_and_all_its_processes(number, code):
    words = ("sim", "--seconds", "600", *HARMLESS, "--jobs", "2", *TOY)
    async with at_work(*RUNNER, *words) as (process, pids):
        end = await stopped(process, pids, number)
        assert end.code == code
        assert "stopped; all held" in end.out


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_a_signal_ends_a_soak_that_says_what_it_found(number):
    words = ("soak", "--hours", "1", *HARMLESS, "--jobs", "2", *TOY)
    async with at_work(*RUNNER, *words) as (process, pids):
        end = await stopped(process, pids, number)
        assert end.code == 0
        assert "0 failed" in end.out


async def test_a_soak_that_found_something_says_so_when_it_is_stopped():
    words = ("soak", "--hours", "1", "--from", "7", "--jobs", "1", *TOY)
    async with at_work(*RUNNER, *words) as (process, pids):
        line = b""
        while b"breaks prefix" not in line:
            line = await process.stdout.readline()
            assert line
        end = await stopped(process, pids)
        assert end.code == 1
        assert "\nprefix: " in end.out


async def test_make_has_nothing_to_say_of_a_soak_that_was_stopped():
    words = " ".join((*HARMLESS, "--jobs", "2", *TOY))
    here = f"BIN={Path(sys.executable).parent}"
    make = ("make", "soak", here, "STAMP=", f"ARGS={words}")
    async with at_work(*make, crew=3) as (process, pids):
        end = await stopped(process, pids)
        assert "0 failed" in end.out
        assert "***" not in end.err
        assert end.code in (0, -signal.SIGINT)  # make itself ends by the signal


async def test_a_signal_during_the_start_ends_a_soak_as_any_other():
    words = ("soak", *HARMLESS, "--jobs", "1", *TOY)
    end = await ended(
        await spawn(sys.executable, "-c", SIGNALLED_WHILE_IMPORTING, *words)
    )
    assert (end.code, "Traceback" in end.err) == (0, False)
    assert end.out.startswith("soak: 0 seeds")


async def test_a_replay_that_never_ends_is_interrupted_at_once():
    words = ("replay", "--seed", "1", "--mutant", "endless", *HUNT)
    async with at_work(*RUNNER, *words, begun=BEGUN, crew=0) as (process, pids):
        end = await stopped(process, pids)
        assert (end.code, end.out) == (130, "")


async def test_mutants_not_tried_by_then_are_no_survivors():
    """Of those that were: one is caught, one survives, and that is an answer."""
    words = ("mutants", "--seeds", "3", "--jobs", "1", "-q", *HUNT)
    async with at_work(*RUNNER, *words, begun=BEGUN) as (process, pids):
        end = await stopped(process, pids)
        assert end.code == 1
        said = " ".join(end.out.split())
        assert "harmless survives: 3 of 3 runs went another way" in said
        assert "endless untried 0 0 0" in said
        assert "late untried 0 0 0" in said
        assert "late survives" not in said
        assert said.endswith("1 of 4 mutants caught, 1 survived, 2 untried")


async def test_without_a_survivor_a_hunt_that_was_stopped_has_no_answer():
    words = ("mutants", "--only", "endless", "-o", "json", "--jobs", "1", "-q", *HUNT)
    async with at_work(*RUNNER, *words, begun=BEGUN) as (process, pids):
        end = await stopped(process, pids)
        assert end.code == 130
        [row] = json.loads(end.out)
        assert (row["fate"], row["caught"], row["seeds"]) == ("untried", 0, 0)


async def test_no_process_outlives_a_runner_that_was_killed():
    words = ("sim", "--seconds", "600", *HARMLESS, "--jobs", "2", *TOY)
    async with at_work(*RUNNER, *words) as (process, pids):
        process.kill()
        await process.wait()
        await eventually(lambda: none_alive(pids), within_s=20.0)
