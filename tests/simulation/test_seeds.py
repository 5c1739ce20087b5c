"""Seeds: a fixed range, those that once failed, and the same in every process."""

import pytest

from tests.simulation.planning import plan_of
from tests.simulation.reporting import replay_command, said
from tests.simulation.running import attempt
from tests.simulation.seeds import PLANS, SEEDS_FILE, kept_seeds, plan_kept
from tests.simulation.world import run
from tests.support.hash_seeds import printed_under

SEEDS = 300
CHUNK = 10
SHARES = 4
KEPT = kept_seeds(SEEDS_FILE.read_text(encoding="utf-8"))
TWICE = tuple(range(1, 7))


def failing(seed, plan, /, **how):
    """What is to be printed if the plan breaks an invariant, else nothing."""
    broken = attempt(run, plan).broken
    if broken is None:
        return []
    return [f"seed {seed} breaks {said(broken)}", f"  {replay_command(seed, **how)}"]


@pytest.mark.parametrize("first", range(1, SEEDS + 1, CHUNK))
def test_nothing_breaks_in_a_fixed_range_of_seeds(first):
    seeds = range(first, first + CHUNK)
    lines = [line for seed in seeds for line in failing(seed, plan_of(seed))]
    assert not lines, "\n".join(lines)


@pytest.mark.parametrize("share", range(SHARES))
def test_seeds_that_once_failed_hold(share):
    lines = []
    for kept in KEPT[share::SHARES]:
        plan = plan_kept(kept, plan_of)
        file = PLANS / kept.plan if kept.plan else None
        if found := failing(plan.seed, plan, keep=kept.keep, plan=file):
            lines += [f"once more: {kept.what}", *found]
    assert not lines, "\n".join(lines)


def digests(hash_seed):
    """What the traces of some seeds come to, in a process of that hash seed."""
    words = ("-m", "tests.simulation", "digests", *map(str, TWICE))
    return printed_under(hash_seed, *words).splitlines()


def test_a_seed_comes_to_the_same_in_every_process():
    one, *others = (digests(hash_seed) for hash_seed in ("0", "1", "random"))
    assert len(one) == len(TWICE)
    for other in others:
        assert other == one, "compare what `replay --wide --seed` prints under both"
