"""Plans of seeds: all kinds of faults occur in them, and end in time."""

from hashlib import blake2b
from typing import Literal, get_args, get_origin, get_type_hints

import msgspec
import pytest

from tests.simulation import plan as plan_module
from tests.simulation.plan import (
    PLAN_DECODER,
    Enter,
    Operate,
    Plant,
    SpoilSnapshot,
    Step,
)
from tests.simulation.planning import CORE, plan_of
from tests.support.hash_seeds import printed_under

SEEDS = range(1, 301)
LENGTHS = ("for_s", "down_s", "gone_s", "restart_s", "hold_s")
BY_HAND = {(Enter, "label_bytes"), (SpoilSnapshot, "chunk")}
"""What only plans that are written by hand make use of."""
ONLY_BY_HAND = {(Plant, "where"): {"false_head"}, (Operate, "verb"): {"drain"}}
"""Values that are not drawn either."""
LATE_S = 60.0
"""A worker that left may come again so long after the last fault."""


@pytest.fixture(scope="module")
def plans():
    return [plan_of(seed) for seed in SEEDS]


@pytest.fixture(scope="module")
def steps(plans):
    """All steps, by their kind."""
    found = {kind: [] for kind in get_args(Step)}
    for plan in plans:
        for step in plan.steps:
            found[type(step)].append(step)
    return found


def fields():
    """Every field of every kind of step, with what it may be."""
    for kind in get_args(Step):
        hints = get_type_hints(kind, vars(plan_module))
        for field in msgspec.structs.fields(kind):
            yield pytest.param(
                kind,
                field.name,
                hints[field.name],
                id=f"{kind.__name__}.{field.name}",
            )


@pytest.mark.parametrize("kind", get_args(Step))
def test_every_kind_of_step_is_drawn_often(steps, kind):
    assert len(steps[kind]) >= 40


@pytest.mark.parametrize(("kind", "name", "hint"), list(fields()))
def test_every_field_of_a_step_is_made_use_of(steps, kind, name, hint):
    if (kind, name) in BY_HAND:
        return
    drawn = {getattr(step, name) for step in steps[kind]}
    if get_origin(hint) is Literal:
        by_hand = ONLY_BY_HAND.get((kind, name), set())
        assert drawn == set(get_args(hint)) - by_hand
    else:
        assert len(drawn) > 1


def test_all_that_goes_wrong_has_ended_when_the_plan_says_so(plans):
    for plan in plans:
        for step in plan.steps:
            lasts = [getattr(step, name, None) or 0.0 for name in LENGTHS]
            late_s = LATE_S if isinstance(step, Enter) else 0.0
            if step in plan.steps[-4:]:
                late_s = plan.end_s  # somebody waits for routers when all is over
            end_s = step.at_s + max(lasts)
            assert end_s <= plan.faults_end_s + late_s + 0.001, (plan.seed, step)
        assert plan.faults_end_s + LATE_S < plan.end_s - 60.0


def test_every_process_of_a_plan_is_one_that_there_is(plans):
    workers = {f"w{number:02}" for number in range(1, 21)}
    known = {*CORE, *workers, "op", "broker", "c1", "c2", "c3", "c4"}
    for plan in plans:
        assert {getattr(step, "process", "op") for step in plan.steps} <= known
        for step in plan.steps:
            if isinstance(step, Enter | Operate):
                assert step.worker_id in workers


def test_steps_stand_in_the_order_of_their_times(plans):
    for plan in plans:
        times = [step.at_s for step in plan.steps]
        assert times == sorted(times)
        assert times[0] >= 0


def test_moods_differ(plans):
    """Some seeds are calm, with a fault or two, and some are storms of one kind."""
    faults = [
        [type(s) for s in plan.steps if type(s).__name__ not in PEACEFUL]
        for plan in plans
    ]
    counts = [len(kinds) for kinds in faults]
    assert min(counts) <= 3
    assert max(counts) >= 25
    assert any(kinds.count(kind) >= 10 for kinds in faults for kind in set(kinds))


PEACEFUL = ("Enter", "Say", "Operate", "Claim", "Wait")


def test_a_plan_written_as_json_is_the_plan(plans):
    for plan in plans:
        assert PLAN_DECODER.decode(msgspec.json.encode(plan)) == plan


def digest():
    """Of all the plans, byte for byte."""
    text = b"".join(msgspec.json.encode(plan_of(seed)) for seed in SEEDS)
    return blake2b(text, digest_size=16).hexdigest()


def test_a_seed_has_the_same_plan_in_every_process():
    program = f"from {__name__} import digest; print(digest())"
    told = [printed_under(seed, "-c", program).strip() for seed in ("0", "1")]
    assert told == [digest()] * 2


def test_another_seed_has_another_plan(plans):
    assert len({msgspec.json.encode(plan.steps) for plan in plans}) == len(plans)
