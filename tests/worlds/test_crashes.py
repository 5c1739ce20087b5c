"""Processes die or stop between any two steps."""

from tests.worlds import crashes


def test_a_crash_between_applying_and_keeping_costs_and_doubles_nothing(world):
    world.run(crashes.killed_between_applying_and_keeping)


def test_a_zombie_is_fenced(world):
    world.run(crashes.zombie_is_fenced)
