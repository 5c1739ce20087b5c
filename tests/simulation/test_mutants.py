"""Deliberate faults come and go without a trace, and some are caught in seconds."""

import sys

import pytest

from tests.simulation.mutants import MUTANTS
from tests.simulation.mutating import Everywhere, bindings_of
from tests.simulation.reporting import replay_command, said
from tests.simulation.running import PRODUCT_ROOMS, attempt
from tests.simulation.special import VARIANTS, name_of, numbers_of, plan_of
from tests.simulation.world import run

BY_NAME = {mutant.name: mutant for mutant in MUTANTS}
QUICK = (
    ("snapshot-before-state", "snapshot", ()),
    ("publish-before-acknowledged", "view", ("foreign-amid",)),
    ("released-claim-is-a-grant", "granted", ("claim-expire-repeat",)),
    ("delta-from-outside", "fold", ()),
    ("held-is-live", "routable", ()),
    ("step-back-taken", "backwards", ("false-heads",)),
    ("refuted-head-believed", "spinning", ("false-heads",)),
    ("leader-after-its-lease", "leads", ("frozen-leader",)),
    ("epoch-adopted-below-the-fold", "view", ("began-and-gone",)),
)
"""Mutant, the invariant that notices, and in which special plan; else in some seed."""
FEW = range(1, 9)


def product():
    """Every attribute of the product's modules and classes, by where it is."""
    modules = [
        module
        for name, module in sorted(sys.modules.items())
        if module is not None and name.split(".")[0] in PRODUCT_ROOMS
    ]
    classes = {
        value
        for module in modules
        for value in vars(module).values()
        if isinstance(value, type) and value.__module__.split(".")[0] in PRODUCT_ROOMS
    }
    return {
        (repr(owner), name): value
        for owner in (*modules, *classes)
        for name, value in list(vars(owner).items())
    }


def patched(mutant):
    """What a mutant says that it changes, as it is now."""
    for patch in mutant.patches:
        if isinstance(patch, Everywhere):
            yield from bindings_of(patch.function)
        else:
            yield patch.owner, patch.name


def test_each_mutant_changes_the_product_and_leaves_it_as_it_was():
    before = product()
    for mutant in MUTANTS:
        places = list(patched(mutant))
        sound = [getattr(*place) for place in places]
        with mutant.applied():
            for place, was in zip(places, sound, strict=True):
                assert getattr(*place) is not was, mutant.name
        for place, was in zip(places, sound, strict=True):
            assert getattr(*place) is was, mutant.name
    after = product()
    assert [key for key in before if after[key] is not before[key]] == []
    assert after.keys() == before.keys()


def test_a_function_is_replaced_wherever_it_was_imported():
    patches = [patch for mutant in MUTANTS for patch in mutant.patches]
    for patch in patches:
        if isinstance(patch, Everywhere):
            places = bindings_of(patch.function)
            assert places
            with patch.applied():
                assert len({id(getattr(*place)) for place in places}) == 1
                assert getattr(*places[0]) is not patch.function


def test_each_mutant_has_a_name_of_its_own_and_a_line_that_says_what_it_does():
    assert len(BY_NAME) == len(MUTANTS) >= 36
    for mutant in MUTANTS:
        assert mutant.name == mutant.name.lower().replace(" ", "-").replace("_", "-")
        assert mutant.what
        assert "\n" not in mutant.what
        numbers_of(*mutant.plans)


@pytest.mark.parametrize("seed", numbers_of()[::VARIANTS], ids=name_of)
def test_special_plans_hold(seed):
    broken = attempt(run, plan_of(seed)).broken
    assert broken is None, f"{said(broken)}\n  {replay_command(seed)}"


@pytest.mark.parametrize(("name", "invariant", "plans"), QUICK)
def test_a_deliberate_fault_is_caught(name, invariant, plans):
    seeds = numbers_of(*plans)[:1] if plans else FEW
    with BY_NAME[name].applied():
        runs = (attempt(run, plan_of(seed)).broken for seed in seeds)
        broken = next((found for found in runs if found is not None), None)
    assert broken is not None
    assert broken.invariant == invariant
