"""The runner of the simulation, as a shell sees it, in a world of a few lines."""

import json
import re
import shlex

import msgspec
import pytest

from tests.simulation import toy_world
from tests.simulation.plan import Crash, Freeze, Say, Wait
from tests.simulation.running import BadInputError, attempt
from tests.simulation.seeds import KeptSeed, indexes, kept_seeds, plan_in, plan_kept
from tests.simulation.shell import HARMLESS, TOY, ended, simulation, spawn
from tests.simulation.special import SEEDS_END


async def test_sim_shrinks_the_first_failure_and_its_one_command_replays_it():
    found = await simulation("sim", "--from", "1", "--jobs", "1", *TOY)
    assert found.code == 1
    assert "seed 7 breaks prefix" in found.out
    assert "to 2 by" in found.out
    command = re.search(r"replay it with:\n +(.*)\n", found.out)[1]
    again = await ended(await spawn(*shlex.split(command)))
    assert again.code == 1
    assert "seed 7 breaks prefix" in again.out
    assert "crash process=p1" in again.out


async def test_the_steps_kept_are_named_when_none_had_to_be_simplified():
    found = await simulation("sim", "--from", "11", "--jobs", "1", *TOY)
    command = re.search(r"replay it with:\n +(.*)\n", found.out)[1]
    assert "--seed 11 --keep" in command
    assert (await ended(await spawn(*shlex.split(command)))).code == 1


async def test_sim_says_what_it_ran_when_all_hold():
    held = await simulation("sim", *HARMLESS, "--seconds", "0.5", *TOY)
    assert held.code == 0
    assert re.fullmatch(
        r"sim: \d+ seeds in \d+ s \(\d+/min\), \d+ records, [\d.]+ virtual hours\n"
        rf"from seed {toy_world.HARMLESS}: all hold\n",
        held.out,
    )
    assert held.err == f"sim: seeds from {toy_world.HARMLESS}\n"


async def test_quiet_leaves_the_last_lines_only():
    held = await simulation("sim", *HARMLESS, "--seconds", "0", "-q", *TOY)
    assert (held.code, held.err) == (0, "")
    assert held.out.startswith("sim: ")


async def test_sim_says_where_it_began_if_nobody_did():
    words = ("sim", "--seconds", "0", "--jobs", "1", *TOY)
    one, other = await simulation(*words), await simulation(*words)
    begun = re.compile(r"sim: seeds from (\d+)\n")
    assert begun.match(one.err)[1] != begun.match(other.err)[1]


async def test_soak_gathers_one_failure_of_each_shape_and_goes_on():
    found = await simulation(
        *("soak", "--hours", "0.001", "--from", "76", "--stuck-s", "1", *TOY),
        *("--jobs", "2", "-q"),
    )
    assert found.code == 1
    whole, _, summary = found.out.rpartition("soak: ")
    assert whole.count("breaks prefix") == 1
    assert whole.count("breaks liveness") == 1
    for name in ("prefix", "liveness", "stuck", "crash:RuntimeError"):
        assert re.search(rf"^{name}: \d+ seeds\n +\S+ -m", summary, re.MULTILINE)


async def test_a_run_that_never_ends_is_a_failure_that_tells_where():
    stuck = await simulation("shrink", "--seed", "77", "--stuck-s", "1", *TOY)
    assert stuck.code == 1
    assert "breaks stuck" in stuck.out
    assert re.search(r"toy_world\.py., line \d+ in run", stuck.out)


async def test_a_seed_that_comes_to_something_else_the_second_time_is_told():
    moody = await simulation("shrink", "--seed", str(toy_world.MOODY), *TOY)
    assert moody.code == 1
    assert f"seed {toy_world.MOODY} breaks determinism" in moody.out


async def test_replay_puts_a_mutant_in():
    words = ("replay", "--seed", "1", *TOY)
    assert (await simulation(*words)).code == 0
    caught = await simulation(*words, "--mutant", "deaf")
    assert caught.code == 1
    assert "breaks routable" in caught.out


async def test_the_hunt_tells_who_caught_which_mutant_and_fails_by_a_survivor():
    hunted = await simulation("mutants", "--seeds", "6", "-o", "json", "-q", *TOY)
    assert hunted.code == 1
    deaf, harmless, ill_fitting = json.loads(hunted.out)
    assert (deaf["caught_by"], deaf["seeds"]) == ({"routable": 3}, 3)
    assert (harmless["caught"], harmless["noticed"], harmless["errors"]) == (0, 6, [])
    assert ill_fitting["caught"] == 0
    assert "TypeError" in ill_fitting["errors"][0]


async def test_a_seed_that_fails_without_the_mutant_is_no_evidence():
    hunted = await simulation(
        "mutants", "--only", "deaf", "--enough", "9", "--seeds", "7", *TOY
    )
    assert hunted.code == 1
    assert "seed 7 fails without a mutant" in " ".join(hunted.out.split())


async def test_the_table_of_mutants_fits_80_columns():
    hunted = await simulation("mutants", "--only", "deaf", "-q", *TOY, COLUMNS="200")
    assert hunted.code == 0
    assert "routable (3)" in hunted.out
    assert max(map(len, hunted.out.splitlines())) <= 80


@pytest.mark.parametrize(
    "words",
    [
        "sim --from x",
        "sim --from=-1",
        "sim --seconds nan",
        "sim --jobs 0",
        "sim --from 9999999999999999999999",
        "mutants --only nobody",
        "mutants --seeds 0",
        "replay",
        "replay --seed 7 --keep 0,99",
        "replay --seed 7 --keep a,b",
        "replay --seed 7 --keep 4,4",
        "replay --plan /no/such/plan.json",
        "replay --seed 1 --mutant nobody",
        "digests",
        "digests -5",
        "digests 99999999999999999999999999999",
        "sim --world no.such.world",
        "sim --world os",
        "sim --world .os",
        "mutants --world os",
        "dance",
    ],
)
async def test_what_makes_no_sense_is_one_line_and_exit_code_64(words):
    toy = () if "--world" in words or words == "dance" else TOY
    refused = await simulation(*words.split(), *toy)
    assert (refused.code, refused.out) == (64, "")
    assert refused.err.startswith("simulation: ")
    assert refused.err.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "what"),
    [
        ("soak --hours=-1", "--hours must be 0 or more, not -1"),
        ("sim --from 1000000009990", "there is no seed 1000000009990"),
        ("replay --seed 1000000009999", "there is no seed 1000000009999"),
        ("shrink --seed 1000000009999", "there is no seed 1000000009999"),
        ("digests 1 1000000009999", "there is no seed 1000000009999"),
    ],
)
async def test_what_makes_no_sense_for_the_product_is_told(words, what):
    refused = await simulation(*words.split())
    assert (refused.code, refused.out) == (64, "")
    assert refused.err.startswith(f"simulation: {what}")
    assert refused.err.count("\n") == 1


async def test_the_special_plans_come_to_an_end():
    last = SEEDS_END - 1
    held = await simulation("sim", "--from", str(last), "--jobs", "1", "-q")
    assert held.code == 0
    assert held.out.startswith("sim: 1 seeds in ")


@pytest.mark.parametrize(
    "step",
    [
        Crash(at_s=1.0, process="zzz"),
        Freeze(at_s=1.0, process="broker", for_s=1.0),
        Say(at_s=1.0, process="p1", verb="ready"),
        Wait(at_s=1.0, kind="synced", router="p1"),
    ],
)
def test_a_plan_names_only_processes_that_can_be(tmp_path, step):
    plan = msgspec.structs.replace(toy_world.plan_of(1), steps=(step,))
    file = tmp_path / "plan.json"
    file.write_bytes(msgspec.json.encode(plan))
    with pytest.raises(BadInputError, match="step 0 cannot be of process"):
        plan_in(file)


@pytest.mark.parametrize(
    "wrong",
    [{"lease_ttl_s": 1.0}, {"namespace": ""}, {"model": ""}, {"role": "cook"}],
    ids=str,
)
def test_a_plan_names_only_workers_that_can_be(tmp_path, wrong):
    entry = {"type": "enter", "at_s": 1.0, "process": "w01", "worker_id": "w01"}
    entry |= {"namespace": "prod", "model": "llama"}
    plan = {"seed": 1, "faults_end_s": 2.0, "end_s": 3.0}
    file = tmp_path / "plan.json"
    file.write_bytes(msgspec.json.encode({**plan, "steps": [entry]}))
    assert plan_in(file).steps[0].worker_id == "w01"
    file.write_bytes(msgspec.json.encode({**plan, "steps": [entry | wrong]}))
    with pytest.raises(BadInputError, match="step 0 is of no worker"):
        plan_in(file)


def test_kept_seeds_are_read_with_what_they_found():
    text = """
        # a comment
        12  # routers went back
        34 keep=0,4,9  # a lost tail
        56 keep=none  # an empty plan
        plan=trimmed.json  # an old snapshot
    """
    assert kept_seeds(text) == (
        KeptSeed(seed=12, what="routers went back"),
        KeptSeed(seed=34, keep=(0, 4, 9), what="a lost tail"),
        KeptSeed(seed=56, keep=(), what="an empty plan"),
        KeptSeed(plan="trimmed.json", what="an old snapshot"),
    )


@pytest.mark.parametrize(
    "line", ["12", "12 #", "x # why", "12 keep=a # why", "12 keep=4,4 # why", "-1 # y"]
)
def test_a_kept_seed_says_what_it_found_and_is_a_number(line):
    with pytest.raises(BadInputError):
        kept_seeds(line)


def test_a_kept_seed_runs_with_its_steps_only():
    kept = KeptSeed(seed=11, keep=indexes("0,2"), what="")
    assert plan_kept(kept, toy_world.plan_of).steps == (
        toy_world.plan_of(11).steps[0],
        toy_world.plan_of(11).steps[2],
    )


def test_a_crash_of_the_world_is_an_outcome_with_its_place():
    outcome = attempt(toy_world.run, toy_world.plan_of(88))
    assert outcome.broken.invariant == "crash:RuntimeError"
    assert "tests/simulation/toy_world.py:" in outcome.broken.what
    assert outcome.trace[-1] == "RuntimeError: a toy broke"
