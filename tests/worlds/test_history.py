"""Answers are lost, and logs."""

from tests.worlds import history


def test_lost_answers_are_no_second_events(world):
    world.run(history.lost_answers_are_no_second_events)


def test_a_log_made_anew_is_never_taken_for_the_old_one(world):
    world.run(history.log_made_anew)


def test_a_store_that_goes_back_is_named_and_never_mixed(world):
    world.run(history.rolled_back_store)
